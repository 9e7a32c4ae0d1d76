// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/templates"
)

// updateDefinition brings the cluster's definition of OnecloudCluster up to the one that is built in, and reports whether it is. It never
// stops the operator: clouds run with an older definition, only the fields that it lacks are refused.
func updateDefinition(ctx context.Context, cfg *rest.Config, log *slog.Logger) (current bool) {
	built, err := builtDefinition()
	if err != nil {
		log.Warn("the definition of OnecloudCluster was not updated", "error", err)
		return false
	}
	var live int
	c, err := kube.New(cfg)
	if err == nil {
		live, err = applyDefinition(ctx, c, built)
	}
	mine := revision(built)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		log.Warn("no right to update the definition of OnecloudCluster: a field that it lacks is refused; give it with ocadm init phase operator",
			"error", err)
	case err != nil:
		log.Warn("the definition of OnecloudCluster was not updated", "error", err)
	case live < mine:
		log.Info("updated the definition of OnecloudCluster", "from", live, "to", mine)
	case live > mine:
		log.Info("the definition of OnecloudCluster is that of a later release and stays", "revision", live, "own", mine)
	}
	return err == nil
}

// applyDefinition applies the definition where the cluster has an earlier revision, and returns the revision it found there.
func applyDefinition(ctx context.Context, c client.Client, built *unstructured.Unstructured) (live int, err error) {
	// Another operator, or the installer, may write it at the same time: a definition is replaced only while it is the one that was read.
	for range definitionTries {
		if live, err = applyOver(ctx, c, built); !apierrors.IsConflict(err) {
			break
		}
	}
	return live, err
}

// definitionTries is how often the definition is read anew after another client has written it.
const definitionTries = 5

func applyOver(ctx context.Context, c client.Client, built *unstructured.Unstructured) (live int, err error) {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(built.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(built), now); err != nil {
		return 0, fmt.Errorf("reading the definition of OnecloudCluster: %w", err)
	}
	if live = revision(now); live >= revision(built) {
		return live, nil
	}
	sent := built.DeepCopy()
	sent.SetUID(now.GetUID())
	sent.SetResourceVersion(now.GetResourceVersion())
	// The installer's manager, so that the definition has one owner, whichever of the two has written it last.
	//nolint:staticcheck // the definition is read from a manifest
	if err := c.Patch(ctx, sent, client.Apply, client.FieldOwner(kube.FieldManager), client.ForceOwnership); err != nil {
		return live, fmt.Errorf("updating the definition of OnecloudCluster: %w", err)
	}
	return live, nil
}

func builtDefinition() (*unstructured.Unstructured, error) {
	data, err := templates.ReadDir("operator/crds")
	if err != nil {
		return nil, err
	}
	objs, err := kube.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading the definition that is built in: %w", err)
	}
	if len(objs) != 1 || revision(objs[0]) == 0 {
		return nil, errors.New("reading the definition that is built in: there is not one, with a revision")
	}
	return objs[0], nil
}

// revision of a definition; 0 where it bears none, as those of the earlier operator.
func revision(o metav1.Object) int {
	n, err := strconv.Atoi(o.GetAnnotations()[v1alpha1.AnnotationRevision])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

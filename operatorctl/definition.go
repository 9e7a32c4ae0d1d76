// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
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

// updateDefinitions updates the CRDs in the cluster to the built-in ones, and reports whether that of OnecloudCluster is current. Failures never stop
// the operator: clouds run with an older CRD, only the fields that it lacks are rejected.
func updateDefinitions(ctx context.Context, cfg *rest.Config, log *slog.Logger) (current bool) {
	all, err := builtDefinitions()
	if err != nil {
		log.Warn("the definitions were not updated", "error", err)
		return false
	}
	c, err := kube.New(cfg)
	if err != nil {
		log.Warn("the definitions were not updated", "error", err)
		return false
	}
	for _, built := range all {
		kind, _, _ := unstructured.NestedString(built.Object, "spec", "names", "kind")
		if updateDefinition(ctx, c, kind, built, log) && kind == v1alpha1.Kind {
			current = true
		}
	}
	return current
}

func updateDefinition(ctx context.Context, c client.Client, kind string, built *unstructured.Unstructured, log *slog.Logger) (current bool) {
	live, err := applyDefinition(ctx, c, built)
	mine := revision(built)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		log.Warn("no permission to update the definition of "+kind+": fields that it lacks are rejected; to grant the permission: ocadm init phase operator",
			"error", err)
	case apierrors.IsNotFound(err): // the operator may not create CRDs; whatever depends on this one reports that
	case err != nil:
		log.Warn("the definition of "+kind+" was not updated", "error", err)
	case live < mine:
		log.Info("updated the definition of "+kind, "from", live, "to", mine)
	case live > mine:
		log.Info("the definition of "+kind+" is from a later release and is kept", "revision", live, "own", mine)
	}
	return err == nil
}

// applyDefinition applies a CRD if the cluster has an earlier revision, and returns the revision that it found.
func applyDefinition(ctx context.Context, c client.Client, built *unstructured.Unstructured) (live int, err error) {
	// Another operator or the installer may write the CRD at the same time, so it is replaced only if it is still the one that was read.
	for range definitionTries {
		if live, err = applyOver(ctx, c, built); !apierrors.IsConflict(err) {
			break
		}
	}
	return live, err
}

// definitionTries is how often a write is attempted when other clients write the CRD, too.
const definitionTries = 5

func applyOver(ctx context.Context, c client.Client, built *unstructured.Unstructured) (live int, err error) {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(built.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(built), now); err != nil {
		return 0, fmt.Errorf("reading the definition %s: %w", built.GetName(), err)
	}
	if live = revision(now); live >= revision(built) {
		return live, nil
	}
	sent := built.DeepCopy()
	sent.SetUID(now.GetUID())
	sent.SetResourceVersion(now.GetResourceVersion())
	// Use the installer's field manager, so that the CRD has one owner, whichever of the two wrote it last.
	//nolint:staticcheck // the definition is read from a manifest
	if err := c.Patch(ctx, sent, client.Apply, client.FieldOwner(kube.FieldManager), client.ForceOwnership); err != nil {
		return live, fmt.Errorf("updating the definition %s: %w", built.GetName(), err)
	}
	return live, nil
}

func builtDefinitions() ([]*unstructured.Unstructured, error) {
	data, err := templates.ReadDir("operator/crds")
	if err != nil {
		return nil, err
	}
	objs, err := kube.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading the built-in definitions: %w", err)
	}
	for _, o := range objs {
		if revision(o) == 0 {
			return nil, fmt.Errorf("reading the built-in definitions: %s has no revision", o.GetName())
		}
	}
	return objs, nil
}

// revision returns the revision of a CRD, or 0 if it has none, like those of the earlier operator.
func revision(o metav1.Object) int {
	n, err := strconv.Atoi(o.GetAnnotations()[v1alpha1.AnnotationRevision])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

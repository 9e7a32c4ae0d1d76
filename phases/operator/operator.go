// SPDX-License-Identifier: Apache-2.0

// Package operator installs the operator into the cluster: definition, permissions, Deployment. It installs by manifest and shares no code with the
// operator. To upgrade, apply it again with another version.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/templates"
)

// The Deployment of the operator.
const (
	Namespace = "onecloud"
	Name      = "onecloud-operator"
)

// rolloutPatience is how long to wait for the operator while nothing changes.
const rolloutPatience = 10 * time.Minute

// Objects renders everything the operator needs, for an image and the namespaces of its clouds, including its own. It is pure.
func Objects(image string, namespaces ...string) ([]*unstructured.Unstructured, error) {
	namespaces = all(namespaces)
	data := map[string]any{"Namespace": Namespace, "Image": image, "PullPolicy": images.PullPolicy(image), "Namespaces": strings.Join(namespaces, ",")}
	// The definition is used unchanged: its patterns are not templates.
	crds, err := templates.ReadDir("operator/crds")
	if err != nil {
		return nil, err
	}
	text := crds
	for _, dir := range []string{"operator/rbac", "operator/deployment"} {
		more, err := templates.RenderDir(dir, data)
		if err != nil {
			return nil, err
		}
		text = append(append(text, "\n---\n"...), more...)
	}
	objs, err := kube.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading the manifests of the operator: %w", err)
	}
	for _, ns := range namespaces {
		more, err := Rights(ns)
		if err != nil {
			return nil, err
		}
		objs = append(objs, more...)
	}
	return inOrder(objs), nil
}

// inOrder sorts objects for clients that apply them one by one: namespaces first, then definitions.
func inOrder(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index([]string{"Namespace", "CustomResourceDefinition"}, o.GetKind()); i >= 0 {
			return i
		}
		return len(objs)
	}
	slices.SortStableFunc(objs, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objs
}

// Install applies the operator's definition, permissions and Deployment, without waiting for its pods; Ready does. In a cluster that ocadm created,
// the operator looks after the certificates of the control-plane nodes.
func Install() host.Phase { return install(nil, nodeCertificates) }

// InstallOnCluster is like Install, for a cluster that ocadm did not create. It marks the namespaces that it creates, for Remove.
func InstallOnCluster() host.Phase { return install(markNamespaces) }

func install(before func(context.Context, *host.Host, client.WithWatch, bool) (kube.ChangeSet, error), more ...func(namespace string) *unstructured.Unstructured) host.Phase {
	m := host.Manifests{Before: before, Objects: func(ctx context.Context, h *host.Host, c client.WithWatch) (objs []*unstructured.Unstructured, err error) {
		image := h.Config.OperatorImage()
		if c == nil {
			objs, err = Objects(image, h.Config.Cloud.Namespace)
		} else if image, err = present(ctx, h, c, image, before == nil); err == nil && image != "" {
			objs, err = ObjectsFor(ctx, c, image, h.Config.Cloud.Namespace)
		} else {
			return nil, err
		}
		for _, one := range more {
			objs = append(objs, one(h.Config.Cloud.Namespace))
		}
		return objs, err
	}}
	return m.Phase(host.Phase{
		Name: "operator", Short: "Install the operator", AnyRelease: true, // present refuses an operator of another release
		Long: "Applies the definition of OnecloudCluster, the operator's permissions, and Deployment onecloud/onecloud-operator (--operator-version,\n" +
			"by default this ocadm's own). The phase operator-ready waits for it.",
	})
}

// present returns the image that the operator gets. Unless flags choose one, an operator of this release keeps its own, to which an update may have moved it.
// For one of another release, init returns "", which leaves it alone, and its phase a finding: manifests of an earlier release would take permissions away.
func present(ctx context.Context, h *host.Host, c client.Client, image string, init bool) (string, error) {
	d, err := installed(ctx, c)
	if err != nil || d == nil || len(d.Spec.Template.Spec.Containers) == 0 || h.Config.Gives("cloud.operatorImage", "cloud.operatorVersion", "cluster.imageRepository") {
		return image, err
	}
	own, is := images.Split(image).Tag, d.Spec.Template.Spec.Containers[0].Image
	tag := images.Split(is).Tag
	switch {
	case tag == own:
		return is, nil
	case !init:
		return image, nil
	case h.Config.Run.Phase == "":
		return "", nil
	}
	remedy := "to replace it: ocadm cluster update --operator-version " + own + " --operator-only"
	if semver.Compare(tag, own) > 0 {
		remedy = "run the same command with ocadm " + tag
	}
	return "", finding.New("OCA-7037", "The operator is of another release than this ocadm", "it runs "+is+", and this is ocadm "+own, remedy)
}

// nodeCertificates returns the ConfigMap in which the operator records the certificates of control-plane nodes. Without it, the operator ignores them.
func nodeCertificates(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": certreport.ConfigMap, "labels": map[string]any{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}},
	}}
}

// Ready waits until the wanted version of the operator runs.
func Ready() host.Phase {
	return host.Await(host.Phase{Name: "operator-ready", Short: "Wait until the operator runs", Patience: rolloutPatience},
		func(ctx context.Context, _ *host.Host, c client.WithWatch) bool {
			d, err := installed(ctx, c)
			if d == nil || err != nil {
				return false
			}
			ready, _ := kube.Ready(d, nil)
			return ready
		},
		func(ctx context.Context, h *host.Host, c client.WithWatch, r workflow.Reporter) error {
			return waitReady(ctx, h, c, func(why string) { r.Waiting("operator", why) })
		})
}

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}}
}

// waitReady waits until the operator runs and every pod of an older version has ended. It does not wait long for a pod that cannot start, unless the user
// has yet to install the pod network. A cluster that others built has one.
func waitReady(ctx context.Context, h *host.Host, c client.WithWatch, report func(why string)) error {
	limit := kube.StartLimit
	if h.Config.Addons.CNI == config.None && h.Cluster == nil {
		limit = rolloutPatience
	}
	err := kube.WaitStarted(ctx, c, deployment(), limit, report)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return finding.New("OCA-7001", "The operator did not become ready in time", wait.Why(err),
		"kubectl -n "+Namespace+" describe pods -l app="+Name+"   # then run the same command again: it continues from here").Wrap(err)
}

// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/templates"
)

// Rights returns the permissions that the operator needs in a namespace of clouds, and the service accounts there. It is pure.
func Rights(namespace string) ([]*unstructured.Unstructured, error) {
	text, err := templates.RenderDir("operator/namespace", map[string]any{"Namespace": namespace, "Operator": Namespace})
	if err != nil {
		return nil, err
	}
	objs, err := kube.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading the manifests of a namespace: %w", err)
	}
	return objs, nil
}

// Watched returns the namespaces that the installed operator watches, nil if it is not installed.
func Watched(ctx context.Context, c client.Client) ([]string, error) {
	d, err := installed(ctx, c)
	if d == nil || err != nil {
		return nil, err
	}
	return all(cluster.WatchedBy(d)), nil
}

// installed returns the Deployment of the operator, nil if it does not exist.
func installed(ctx context.Context, c client.Client) (*appsv1.Deployment, error) {
	d := deployment()
	if found, err := kube.Find(ctx, c, client.ObjectKeyFromObject(d), d, "the Deployment of the operator"); !found {
		return nil, err
	}
	return d, nil
}

// Serve makes the installed operator manage the clouds of a namespace: it grants the permissions there and restarts the operator. It does nothing
// without an operator, and does not restart one that already manages the namespace.
func Serve(ctx context.Context, c client.WithWatch, namespace string) (kube.ChangeSet, error) {
	d, err := installed(ctx, c)
	if d == nil || err != nil {
		return nil, err
	}
	if err := ofHelm(d, append(cluster.WatchedBy(d), namespace)); err != nil {
		if slices.Contains(cluster.WatchedBy(d), namespace) {
			return nil, nil
		}
		return nil, err
	}
	objs, err := Rights(namespace)
	if err != nil {
		return nil, err
	}
	set, err := kube.Apply(ctx, c, kube.FieldManager, objs...)
	if err != nil || slices.Contains(cluster.WatchedBy(d), namespace) {
		return set, err
	}
	change, err := watch(ctx, c, d, append(cluster.WatchedBy(d), namespace))
	return append(set, change), err
}

// Leave makes the installed operator stop managing the clouds of a namespace, and removes its permissions there. The namespace stays. If it holds a
// cloud, Leave returns a finding: the operator must finish deleting the cloud first.
func Leave(ctx context.Context, c client.WithWatch, namespace string) (kube.ChangeSet, error) {
	d, err := installed(ctx, c)
	if d == nil || err != nil {
		return nil, err
	}
	if namespace == Namespace {
		return nil, finding.New("OCA-7019", "The operator cannot leave namespace "+namespace, "it runs there", "ocadm operator namespace list")
	}
	var clouds v1alpha1.OnecloudClusterList
	if err := c.List(ctx, &clouds, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the clouds of namespace %q: %w", namespace, err)
	}
	if len(clouds.Items) > 0 {
		return nil, finding.New("OCA-7019", "The operator cannot leave namespace "+namespace, "it contains the cloud "+clouds.Items[0].Name,
			"ocadm cluster delete --namespace "+namespace+" --name "+clouds.Items[0].Name)
	}
	var set kube.ChangeSet
	rest := slices.DeleteFunc(cluster.WatchedBy(d), func(n string) bool { return n == namespace })
	if err := ofHelm(d, rest); err != nil {
		return nil, err
	}
	if slices.Contains(cluster.WatchedBy(d), namespace) {
		change, err := watch(ctx, c, d, rest)
		if err != nil {
			return nil, err
		}
		set = append(set, change)
	}
	objs, err := Rights(namespace)
	if err != nil {
		return set, err
	}
	for _, o := range objs {
		if o.GetKind() == "Namespace" {
			continue
		}
		switch err := c.Delete(ctx, o); {
		case err == nil:
			set = append(set, change(o))
		case !apierrors.IsNotFound(err):
			return set, fmt.Errorf("deleting %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
	}
	return set, nil
}

// ofHelm returns a finding with the value of the chart for these namespaces.
func ofHelm(d *appsv1.Deployment, namespaces []string) error {
	return cluster.OfHelm(d, "namespaces={"+strings.Join(all(namespaces)[1:], ",")+"}")
}

// watch sets the namespaces that the operator watches, which restarts it.
func watch(ctx context.Context, c client.Client, d *appsv1.Deployment, namespaces []string) (kube.Change, error) {
	change := kube.Change{Action: kube.Configured, Kind: "Deployment", Namespace: Namespace, Name: Name}
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == Name })
	if i < 0 {
		return change, fmt.Errorf("changing the namespaces of the operator: its Deployment has no container %q", Name)
	}
	args := slices.DeleteFunc(slices.Clone(d.Spec.Template.Spec.Containers[i].Args), func(a string) bool { return strings.HasPrefix(a, cluster.NamespacesFlag) })
	args = append(args, cluster.NamespacesFlag+strings.Join(all(namespaces), ","))
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": Name, "args": args}},
	}}}})
	if err != nil {
		return change, fmt.Errorf("changing the namespaces of the operator: %w", err)
	}
	if err := c.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(kube.FieldManager)); err != nil {
		return change, fmt.Errorf("changing the namespaces of the operator: %w", err)
	}
	return change, nil
}

// markNamespaces creates missing namespaces with a mark. A dry run shows them among the objects.
func markNamespaces(ctx context.Context, h *host.Host, c client.WithWatch, look bool) (kube.ChangeSet, error) {
	if look {
		return nil, nil
	}
	var set kube.ChangeSet
	for _, name := range all([]string{h.Config.Cloud.Namespace}) {
		marks := map[string]string{cluster.AnnotationInstalled: "true"}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: marks}}
		switch err := c.Create(ctx, ns, client.FieldOwner(kube.FieldManager)); {
		case err == nil:
			set = append(set, kube.Change{Action: kube.Created, Kind: "Namespace", Name: name})
		case !apierrors.IsAlreadyExists(err):
			return set, fmt.Errorf("creating namespace %q: %w", name, err)
		}
	}
	return set, nil
}

// ObjectsFor renders the operator for a cluster that may already have one: the operator watches the given namespaces in addition to its present ones,
// and keeps its registry credentials and number of replicas.
func ObjectsFor(ctx context.Context, c client.Client, image string, namespaces ...string) ([]*unstructured.Unstructured, error) {
	d, err := installed(ctx, c)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return Objects(image, namespaces...)
	}
	objs, err := Objects(image, slices.Concat(cluster.WatchedBy(d), namespaces)...)
	if err != nil {
		return nil, err
	}
	secrets := lists.Map(d.Spec.Template.Spec.ImagePullSecrets, func(s corev1.LocalObjectReference) any { return map[string]any{"name": s.Name} })
	for _, o := range objs {
		if o.GetKind() != "Deployment" {
			continue
		}
		if replicas := int64(ptr.Deref(d.Spec.Replicas, 1)); replicas != 1 { // 1 is the default of Kubernetes, and in no manifest
			if err := unstructured.SetNestedField(o.Object, max(1, replicas), "spec", "replicas"); err != nil {
				return nil, fmt.Errorf("preserving the number of operators: %w", err)
			}
		}
		if len(secrets) == 0 {
			continue
		}
		if err := unstructured.SetNestedSlice(o.Object, secrets, "spec", "template", "spec", "imagePullSecrets"); err != nil {
			return nil, fmt.Errorf("adding registry credentials to the operator: %w", err)
		}
	}
	return objs, nil
}

// all returns the namespaces without duplicates: the operator's own first, the others sorted.
func all(namespaces []string) []string {
	rest := slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return n == "" || n == Namespace })
	return append([]string{Namespace}, lists.Distinct(rest)...)
}

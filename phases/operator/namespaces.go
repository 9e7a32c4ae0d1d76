// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/templates"
)

// Rights are what a namespace of clouds needs: the operator's rights there, and the accounts of services. It is pure.
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

// Watched are the namespaces that the installed operator watches; none if it is not installed.
func Watched(ctx context.Context, c client.Client) ([]string, error) {
	d := deployment()
	err := c.Get(ctx, client.ObjectKeyFromObject(d), d)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Deployment of the operator: %w", err)
	}
	return all(cluster.WatchedBy(d)), nil
}

// Serve makes the installed operator look after the clouds of a namespace: it gives it the rights there, and tells it. Nothing happens
// where there is no operator, or where it is so already.
func Serve(ctx context.Context, c client.WithWatch, namespace string) (kube.ChangeSet, error) {
	d := deployment()
	err := c.Get(ctx, client.ObjectKeyFromObject(d), d)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Deployment of the operator: %w", err)
	}
	objs, err := Rights(namespace)
	if err != nil {
		return nil, err
	}
	set, err := kube.Apply(ctx, c, kube.FieldManager, objs...)
	if err != nil || slices.Contains(cluster.WatchedBy(d), namespace) {
		return set, err
	}
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == Name })
	if i < 0 {
		return set, fmt.Errorf("telling the operator of namespace %q: its Deployment has no container %q", namespace, Name)
	}
	args := slices.DeleteFunc(slices.Clone(d.Spec.Template.Spec.Containers[i].Args), func(a string) bool { return strings.HasPrefix(a, cluster.NamespacesFlag) })
	args = append(args, cluster.NamespacesFlag+strings.Join(all(append(cluster.WatchedBy(d), namespace)), ","))
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": Name, "args": args}},
	}}}})
	if err != nil {
		return set, fmt.Errorf("telling the operator of namespace %q: %w", namespace, err)
	}
	if err := c.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(kube.FieldManager)); err != nil {
		return set, fmt.Errorf("telling the operator of namespace %q: %w", namespace, err)
	}
	return append(set, kube.Change{Action: kube.Configured, Kind: "Deployment", Namespace: Namespace, Name: Name}), nil
}

// toApply are the operator's objects for what is asked for and what is watched already.
func toApply(ctx context.Context, c client.Client, image string, namespaces []string) ([]*unstructured.Unstructured, error) {
	live, err := Watched(ctx, c)
	if err != nil {
		return nil, err
	}
	return Objects(image, slices.Concat(live, namespaces)...)
}

// all are the namespaces, the operator's own first, each once, in order.
func all(namespaces []string) []string {
	rest := slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return n == "" || n == Namespace })
	slices.Sort(rest)
	return append([]string{Namespace}, slices.Compact(rest)...)
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// The images of a node's pods, by full name; without an answer, the last known ones.
func TestPodImages(t *testing.T) {
	pod := func(name, node, image string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{NodeName: node,
			InitContainers: []corev1.Container{{Name: "i", Image: "busybox:1"}}, Containers: []corev1.Container{{Name: "c", Image: image}}}}
	}
	failing := false
	k := fake.NewClientBuilder().WithObjects(pod("a", "node1", "r.example/region:v1"), pod("b", "node2", "r.example/region:v2")).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if failing {
				return errors.New("no answer")
			}
			return c.List(ctx, l, o...)
		}}).Build()
	images := podImages(k, "node1")
	want := []string{"docker.io/library/busybox:1", "r.example/region:v1"}
	if got, err := images(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	failing = true
	if got, err := images(t.Context()); err == nil || !slices.Equal(got, want) {
		t.Errorf("without an answer: %q, %v", got, err)
	}
}

// In use is what runs, what ran before a rolling update, and what a stored release of a cloud would restore.
func TestImagesInUse(t *testing.T) {
	pods := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}
	}
	meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "x"}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta}
	deployment.Spec.Template.Spec = pods("registry.example.org/region:v4.0.2")
	kept, err := release.ObjectOf("region", 0, "hash", deployment)
	require.NoError(t, err)
	secret, err := release.Release{Contents: release.Contents{Objects: []release.Object{kept}}}.Secret(
		metav1.ObjectMeta{Namespace: "onecloud", Name: "cloud-release-1", Labels: map[string]string{v1alpha1.LabelRelease: "1"}})
	require.NoError(t, err)
	pinned := "sha256:" + strings.Repeat("a", 64)
	replicas := &appsv1.ReplicaSet{ObjectMeta: meta}
	replicas.Spec.Template.Spec = pods("registry.example.org/region:v4.0.3")
	revision := &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{
		Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"flannel:v1"},{"image":"flannel:v0@` + pinned + `"}]}}}}`)}}
	s := kube.Scheme()
	k := fake.NewClientBuilder().WithScheme(s).WithObjects(secret, replicas, revision, &corev1.Pod{ObjectMeta: meta, Spec: pods("registry.example.org/region:v4.0.4")}).Build()
	used, err := imagesInUse(t.Context(), k)
	require.NoError(t, err)
	want := []string{"docker.io/library/flannel:v1", "registry.example.org/region:v4.0.2", "registry.example.org/region:v4.0.3", "registry.example.org/region:v4.0.4", pinned}
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	secret.Data = nil
	_, err = imagesInUse(t.Context(), fake.NewClientBuilder().WithScheme(s).WithObjects(secret).Build())
	if list := finding.Of(noCluster(err)); len(list) != 1 || list[0].Code != "OCA-2335" || !strings.Contains(list[0].Remedy, "kubectl -n onecloud delete secret cloud-release-1") {
		t.Errorf("with a damaged release: %v", err)
	}
}

// Until an update has begun to move the cloud, nothing but the operation names the images that the nodes have pulled for it.
func TestPruneDuringAnOperation(t *testing.T) {
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "update-x"}}
	o.Spec.Cloud, o.Spec.Action = "default", v1alpha1.ActionUpdate
	for phase, refused := range map[v1alpha1.OperationPhase]bool{
		"": true, v1alpha1.OperationPaused: true, v1alpha1.OperationRunning: true, v1alpha1.OperationSucceeded: false, v1alpha1.OperationReverted: false,
	} {
		o.Status.Phase = phase
		k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o.DeepCopy()).Build()
		if err := quiet(t.Context(), k); (err != nil) != refused {
			t.Errorf("%q: %v", phase, err)
		}
	}
}

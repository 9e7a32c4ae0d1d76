// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
)

// What runs is in use, what ran before a rolling update, and what a kept release of a cloud would bring back.
func TestImagesInUse(t *testing.T) {
	pods := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}
	}
	meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "x"}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta}
	deployment.Spec.Template.Spec = pods("registry.example.org/region:v4.0.2")
	kept, err := release.ObjectOf("region", 0, "hash", deployment)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := release.Release{Contents: release.Contents{Objects: []release.Object{kept}}}.Secret(
		metav1.ObjectMeta{Namespace: "onecloud", Name: "cloud-release-1", Labels: map[string]string{v1alpha1.LabelRelease: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	pinned := "sha256:" + strings.Repeat("a", 64)
	replicas := &appsv1.ReplicaSet{ObjectMeta: meta}
	replicas.Spec.Template.Spec = pods("registry.example.org/region:v4.0.3")
	revision := &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{
		Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"flannel:v1"},{"image":"flannel:v0@` + pinned + `"}]}}}}`)}}
	s, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	k := fake.NewClientBuilder().WithScheme(s).WithObjects(secret, replicas, revision, &corev1.Pod{ObjectMeta: meta, Spec: pods("registry.example.org/region:v4.0.4")}).Build()
	used, err := imagesInUse(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"docker.io/library/flannel:v1", "registry.example.org/region:v4.0.2", "registry.example.org/region:v4.0.3", "registry.example.org/region:v4.0.4", pinned}
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// A cloud whose release in force is lost does not return to the previous one. It continues with its spec when a user allows that.
func TestLostRelease(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	b.edit(`{"metadata":{"generation":7},"spec":{"glance":{"replicas":3}}}`)
	b.settle()
	in := b.cloud().Status.Release.Revision
	replicas := func() int32 {
		t.Helper()
		d := &appsv1.Deployment{}
		b.get(d, "default-glance")
		return *d.Spec.Replicas
	}
	if in < 2 || replicas() != 3 {
		t.Fatalf("release %d, %d replicas", in, replicas())
	}
	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: release.SecretName("default", in)}}
	require.NoError(t, b.api.Delete(t.Context(), gone))
	for range 2 {
		if _, err := b.r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), "update-at-once="+strconv.Itoa(in)) {
			t.Fatalf("%v", err)
		}
	}
	c := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded)
	if c == nil || c.Reason != status.ReasonBlocked || replicas() != 3 || b.cloud().Status.Release.Revision != in {
		t.Errorf("%+v, %d replicas, release %d", c, replicas(), b.cloud().Status.Release.Revision)
	}
	b.edit(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationAtOnce + `":"` + strconv.Itoa(in) + `"}}}`)
	b.settle()
	if now := b.cloud().Status.Release.Revision; now != in+1 || replicas() != 3 || b.release().Why[0] != "release "+strconv.Itoa(in)+" is lost" {
		t.Errorf("release %d: %q, %d replicas", now, b.release().Why, replicas())
	}
}

// A release without its inputs, which another build needs, is reported like one that cannot be read.
func TestReleaseWithoutInputs(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	r := b.release()
	r.From.Cloud = nil
	s, err := r.Secret(metav1.ObjectMeta{Name: "default", Labels: map[string]string{}})
	require.NoError(t, err)
	live := &corev1.Secret{}
	b.get(live, s.Name)
	live.Data = s.Data
	require.NoError(t, b.api.Update(t.Context(), live))
	var wrote []string
	b.build(&wrote, newer)
	if _, err := b.r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), "restore it; or let the cloud continue") {
		t.Errorf("%v", err)
	}
	if c := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded); c == nil || c.Reason != status.ReasonBlocked {
		t.Errorf("%+v", c)
	}
}

// A release that only the cache lacks is not lost, and a user's consent does not count while an operation moves the cloud.
func TestReleaseKept(t *testing.T) {
	cr := newCloud()
	cr.UID, cr.Status.Release.Revision = "u", 5
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		r := release.Release{Summary: release.Summary{Revision: 5}}
		s, err := r.Secret(metav1.ObjectMeta{Namespace: cr.Namespace, Name: cr.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}})
		require.NoError(t, err)
		s.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: new(true)}}
		change(s)
		return s
	}
	consent := map[string]string{v1alpha1.AnnotationAtOnce: "5"}
	for _, c := range []struct {
		name        string
		there       client.Object
		annotations map[string]string
		running     *v1alpha1.OnecloudOperation
		stale       bool
		says        string
	}{
		{"the cache is behind", secret(func(*corev1.Secret) {}), nil, nil, true, "the cache"},
		{"without a label", secret(func(s *corev1.Secret) { delete(s.Labels, v1alpha1.LabelManagedBy) }), consent, nil, false, "were changed"},
		{"lost", &corev1.Secret{}, map[string]string{v1alpha1.AnnotationAtOnce: "4"}, nil, false, "is lost: restore Secret default-release-5"},
		{"lost, and a user goes on without it", &corev1.Secret{}, consent, nil, false, ""},
		{"lost, while an operation runs", &corev1.Secret{}, consent, &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: "u"}}, false, "end operation u first"},
	} {
		if c.there.GetName() == "" {
			c.there.SetName("other")
		}
		s := State{Cloud: cr.DeepCopy(), Now: b0}
		s.Cloud.Annotations = c.annotations
		r := reader{direct: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(c.there).Build()}
		err := r.releaseKept(t.Context(), s, 0, c.running)
		var stale *staleCache
		if errors.As(err, &stale) != c.stale || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

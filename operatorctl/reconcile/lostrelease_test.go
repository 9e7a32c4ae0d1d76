// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
)

// A cloud whose release in force is lost does not go back to the one before. It goes on when a user says so, with what the spec says.
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
	if err := b.api.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
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

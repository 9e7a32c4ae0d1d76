// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func TestDatabaseRedundant(t *testing.T) {
	state := func(redundant string) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: map[string]string{"redundant": redundant, "message": "why"}}
	}
	for name, c := range map[string]struct {
		host   string
		state  *corev1.ConfigMap
		is     metav1.ConditionStatus // "" if there is no such condition
		reason string
	}{
		"a server of its own":                  {host: "db.example.org"},
		"a server of its own beside a replica": {host: "10.0.0.5", state: state("true")},
		"one copy":                             {"ocadm-mysql", nil, metav1.ConditionFalse, ReasonOneCopy},
		"in sync":                              {"ocadm-mysql.onecloud.svc", state("true"), metav1.ConditionTrue, ReasonInSync},
		"alone":                                {"ocadm-mysql.onecloud", state("false"), metav1.ConditionFalse, ReasonNotInSync},
		"not reported":                         {"ocadm-mysql", &corev1.ConfigMap{}, metav1.ConditionFalse, ReasonNotInSync},
	} {
		before := []metav1.Condition{{Type: v1alpha1.ConditionDatabaseRedundant, Status: metav1.ConditionUnknown}}
		out := &Cloud{OnecloudClusterStatus: v1alpha1.OnecloudClusterStatus{Conditions: before}, now: time.Now()}
		out.DatabaseRedundant(c.host, c.state)
		got := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionDatabaseRedundant)
		if (got == nil) != (c.is == "") || got != nil && (got.Status != c.is || got.Reason != c.reason || got.Message == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/operatorctl/status"
)

// A report that lists no certificates, because it is damaged or of another release, does not count as valid: nothing would be renewed.
func TestNodeCertificatesWithoutAny(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	valid := certreport.Report{Time: at, Certificates: []certreport.Certificate{{Name: "apiserver", Ends: at.Add(90 * 24 * time.Hour), RenewAt: at.Add(60 * 24 * time.Hour)}}}
	for name, c := range map[string]struct {
		reports map[string]certreport.Report
		want    metav1.ConditionStatus
		says    string
	}{
		"valid":    {map[string]certreport.Report{"a": valid}, metav1.ConditionTrue, "apiserver expires first"},
		"none":     {map[string]certreport.Report{"a": {Time: at}}, metav1.ConditionFalse, "node a: the report lists no certificates"},
		"one none": {map[string]certreport.Report{"a": {Time: at}, "b": valid}, metav1.ConditionFalse, "node a: the report lists no certificates"},
	} {
		out := status.Of(&v1alpha1.OnecloudCluster{}, at)
		out.NodeCertificates(c.reports)
		got := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionNodeCertificates)
		if got == nil || got.Status != c.want || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/test/require"
)

// A report that cannot be read, here one that the kubelet has cut off, is a problem that ocadm why shows. What was known before stays.
func TestUnreadableReport(t *testing.T) { synctest.Test(t, unreadableReport) }

func unreadableReport(t *testing.T) {
	t.Helper()
	var asked []string
	c := jobsEnd(t, map[string]end{"a": {}}, &asked)
	j := lookJob(cloud(), "a", "image:1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: "p", Labels: map[string]string{batchv1.JobNameLabel: j.Name}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: `{"time":"2027-01-02T03:04:05Z","certifi`}}}}}}
	require.NoError(t, c.Create(t.Context(), j))
	time.Sleep(100 * time.Millisecond) // until jobsEnd has made it fail
	j.Status = batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
	require.NoError(t, c.Status().Update(t.Context(), j))
	require.NoError(t, c.Create(t.Context(), pod))
	k := &Keeper{Client: c, Direct: c, Image: "image:1"}
	version := ""
	for range 2 {
		if _, err := k.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cloud())}); err == nil {
			t.Error("it passes for read")
		}
		cm := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "onecloud", Name: certreport.ConfigMap}, cm))
		if r := certreport.All(cm.Data)["a"]; r.Problem == "" || len(r.Certificates) != 1 {
			t.Errorf("%+v", r)
		}
		if version != "" && cm.ResourceVersion != version {
			t.Error("the same problem is written again, which starts the next pass")
		}
		version = cm.ResourceVersion
	}
}

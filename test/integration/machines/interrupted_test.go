// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// TestMachinesContinue checks that a machine joins whatever happens to it while it joins, or to its bootstrap data before that.
func TestMachinesContinue(t *testing.T) {
	f := newMachinesTest(t)
	f.operate()
	// It boots while it joins.
	boots := f.server(func(s *standIn) { s.hangs = "join" })
	f.machine("boots", boots)
	f.UntilOperation("join-boots-1", runs("join"))
	f.Eventually(func() (bool, string) { return len(boots.commands()) == 2, "join has not begun on the machine" })
	boots.Down()
	m := f.until("boots", func(m *v1alpha1.OnecloudMachine) bool { return !m.Status.RetryAfter.IsZero() })
	if m.Status.Phase != v1alpha1.MachinePending || !strings.Contains(m.Status.Message, "OCA-7605") {
		t.Errorf("%+v", m.Status)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "boots", `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"1"}}}`)
	m = f.until("boots", func(m *v1alpha1.OnecloudMachine) bool { return m.Status.Tries == 2 && !m.Status.RetryAfter.IsZero() })
	if !strings.Contains(m.Status.Message, "OCA-7601") || !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionHostReachable) {
		t.Errorf("%+v", m.Status)
	}
	boots.let("")
	boots.Up(t)
	f.EditObject(&v1alpha1.OnecloudMachine{}, "boots", `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"2"}}}`)
	f.until("boots", in(v1alpha1.MachineRunning))

	// Its bootstrap data expire while it waits. It gets new data and joins with them.
	waits := f.server()
	f.machine("waits", waits, func(m *v1alpha1.OnecloudMachine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationPausedByClusterAPI: ""}
	})
	f.until("waits", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "paused") })
	var data corev1.Secret
	f.Get(&data, "waits-bootstrap")
	before := string(data.Data[v1alpha1.BootstrapScript])
	f.StopOperator()
	f.EditObject(&corev1.Secret{}, "waits-bootstrap", `{"metadata":{"annotations":{"onecloud.yunion.io/expires":"2026-01-01T00:00:00Z"}}}`)
	f.operate()
	f.Until(&corev1.Secret{}, "waits-bootstrap", func(o client.Object) (bool, string) {
		s, there := o.(*corev1.Secret)
		return there && string(s.Data[v1alpha1.BootstrapScript]) != before, "the expired data are still there"
	})
	f.EditObject(&v1alpha1.OnecloudMachine{}, "waits", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	f.until("waits", in(v1alpha1.MachineRunning))

	// Its token is deleted while it waits. The cluster refuses it, and it joins with a new one.
	f.machine("refused", f.server(), func(m *v1alpha1.OnecloudMachine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationPausedByClusterAPI: ""}
	})
	f.until("refused", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "paused") })
	id, _, _ := strings.Cut(f.tokenOf("refused"), ".")
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}}
	require.NoError(t, f.Client.Delete(t.Context(), token))
	f.EditObject(&v1alpha1.OnecloudMachine{}, "refused", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	m = f.until("refused", func(m *v1alpha1.OnecloudMachine) bool { return !m.Status.RetryAfter.IsZero() })
	if m.Status.Phase != v1alpha1.MachinePending || !strings.Contains(m.Status.Message, "OCA-7651") || f.tokenOf("refused")[:6] == id {
		t.Errorf("%+v", m.Status)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "refused", `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"1"}}}`)
	f.until("refused", in(v1alpha1.MachineRunning))
	f.StopOperator()
}

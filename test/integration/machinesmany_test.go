// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
)

// TestManyMachines adds many machines (1,000 with OCADM_SWEEP=1), one of them invalid, from a file and over the REST API. It is named and none is added.
func TestManyMachines(t *testing.T) {
	n := 30
	if os.Getenv("OCADM_SWEEP") != "" {
		n = 1000
	}
	f := newAPITest(t, nil)
	file := func(change func(i int, m *v1alpha1.OnecloudMachine)) (text []byte, body string) {
		var items []json.RawMessage
		for i := range n {
			m := &v1alpha1.OnecloudMachine{}
			m.APIVersion, m.Kind, m.Name = v1alpha1.GroupVersion.String(), v1alpha1.MachineKind, fmt.Sprintf("m%d", i)
			m.Spec.Cloud = cloud
			m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: fmt.Sprintf("m%d.example.org", i), CredentialsSecretName: "fleet"}
			change(i, m)
			one, err := json.Marshal(map[string]any{"apiVersion": m.APIVersion, "kind": m.Kind, "metadata": map[string]any{"name": m.Name}, "spec": m.Spec})
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, one)
			text = fmt.Appendf(text, "---\n%s\n", one)
		}
		all, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			t.Fatal(err)
		}
		return text, string(all)
	}
	add := func(text []byte) (count int, err error) {
		all, err := cluster.ReadMachines("machines.yaml", text, namespace, cloud)
		if err != nil {
			return 0, err
		}
		return count, cluster.AddMachines(t.Context(), f.Client, all, func(string, string) { count++ })
	}
	bad := n / 2
	for what, change := range map[string]func(i int, m *v1alpha1.OnecloudMachine){
		fmt.Sprintf("m%d: ", bad): func(i int, m *v1alpha1.OnecloudMachine) {
			if i == bad {
				m.Spec.Infrastructure.SSH.Port = 70000
			}
		},
		fmt.Sprintf("document %d (m%d): machine m3 has the same address", bad+1, bad): func(i int, m *v1alpha1.OnecloudMachine) {
			if i == bad {
				m.Spec.Infrastructure.SSH.Address = "M3.example.org"
			}
		},
	} {
		text, body := file(change)
		began := time.Now()
		_, err := add(text)
		t.Logf("%d machines with one that is wrong: refused after %s", n, time.Since(began).Round(time.Millisecond))
		found := finding.Of(err)
		if len(found) != 1 || found[0].Code != "OCA-7611" || !strings.Contains(found[0].Cause, what) || strings.Contains(found[0].Cause, "; ") {
			t.Errorf("%v", err)
		}
		began = time.Now()
		if r := f.ask("writer", "POST", "machines/batch", body, 422, "OCA-7611"); !strings.Contains(r.Detail, what) {
			t.Errorf("%s", r.text)
		}
		t.Logf("the same by the REST API: %s", time.Since(began).Round(time.Millisecond))
		var list v1alpha1.OnecloudMachineList
		if err := f.Client.List(t.Context(), &list); err != nil || len(list.Items) > 0 {
			t.Fatalf("%d machines were added: %v", len(list.Items), err)
		}
	}
	text, body := file(func(int, *v1alpha1.OnecloudMachine) {})
	f.ask("reader", "POST", "machines/batch", body, 403, "OCA-7616")
	began := time.Now()
	if count, err := add(text); err != nil || count != n {
		t.Errorf("added %d machines: %v", count, err)
	}
	t.Logf("%d machines added in %s", n, time.Since(began).Round(time.Millisecond))
	if r := f.ask("writer", "POST", "machines/batch", body, 200, ""); strings.Count(r.text, `"unchanged"`) != n {
		t.Errorf("%.2000s", r.text)
	}
	text, _ = file(func(i int, m *v1alpha1.OnecloudMachine) { m.Name = "other-" + m.Name })
	if _, err := add(text); err == nil || !strings.Contains(err.Error(), "other-m0: machine m0 has the same address") {
		t.Errorf("addresses of machines that are there: %.500v", err)
	}
}

// TestMachinesGoOn checks that a machine joins whatever happens to it while it joins, or to its bootstrap data before that.
func TestMachinesGoOn(t *testing.T) {
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
	if err := f.Client.Delete(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "refused", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	m = f.until("refused", func(m *v1alpha1.OnecloudMachine) bool { return !m.Status.RetryAfter.IsZero() })
	if m.Status.Phase != v1alpha1.MachinePending || !strings.Contains(m.Status.Message, "OCA-7651") || f.tokenOf("refused")[:6] == id {
		t.Errorf("%+v", m.Status)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "refused", `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"1"}}}`)
	f.until("refused", in(v1alpha1.MachineRunning))
	f.StopOperator()
}

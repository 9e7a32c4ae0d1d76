// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
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
			require.NoError(t, err)
			items = append(items, one)
			text = fmt.Appendf(text, "---\n%s\n", one)
		}
		all, err := json.Marshal(map[string]any{"items": items})
		require.NoError(t, err)
		return text, string(all)
	}
	add := func(text []byte) (count int, err error) {
		all, err := cluster.ReadMachines("machines.yaml", text, namespace, cloud)
		if err != nil {
			return 0, err
		}
		return count, cluster.AddMachines(t.Context(), f.Client, all, nil, func(string, string) { count++ })
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

// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/test/fleetnode"
)

// TestCompareMachines compares machines that are each healthy. One is a copy of another, and one loses packets of the pod network in one direction.
func TestCompareMachines(t *testing.T) {
	f := newMachinesTest(t)
	f.operate()
	key := client.ObjectKey{Namespace: namespace, Name: cloud}
	var names []string
	nodes := map[string]*fleetnode.Machine{}
	for _, name := range []string{"pair-a", "pair-b", "pair-c"} {
		nodes[name] = fleetnode.Start(t, name, f.public, fleetnode.Hooks{})
		f.machine(name, &standIn{Server: nodes[name].Server}, func(m *v1alpha1.OnecloudMachine) {
			m.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"}
		})
		names = append(names, name)
	}
	compare := func(want ...string) *cluster.Operation {
		t.Helper()
		o, err := cluster.Compare(t.Context(), f.Client, key, names, "a test")
		if err != nil || o == nil {
			t.Fatal(o, err)
		}
		var got []string
		for _, one := range o.Status.Findings {
			got = append(got, one.Code+" "+one.What)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		return o
	}
	checks, err := cluster.Precheck(t.Context(), f.Client, key, names, "a test")
	if err != nil || len(checks) != 3 || checks[0].Status.Machine.HostKey == "" {
		t.Fatalf("%+v, %v", checks, err)
	}
	f.until("pair-c", func(m *v1alpha1.OnecloudMachine) bool { return m.Status.HostKey != "" })
	o := compare()
	if o.Status.Phase != v1alpha1.OperationSucceeded || o.Status.Machine == nil || !strings.HasPrefix(o.Status.Machine.Ways, "6 connections between 3 machines") {
		t.Errorf("%+v", o.Status)
	}
	nodes["pair-b"].Say("machineid", "id-of-pair-a")
	nodes["pair-c"].Lose(func(from string, port, _ int) bool { return from == "pair-a" && port == 8472 })
	o = compare("OCA-7642 pair-b and pair-a have the same machine id", "OCA-7648 Nothing arrives from pair-a at pair-c on UDP 8472 (pod network)")
	if o.Status.Phase != v1alpha1.OperationFailed {
		t.Errorf("%s: %s", o.Status.Phase, o.Status.Message)
	}
	for _, name := range names {
		m := f.until(name, in(v1alpha1.MachinePending))
		if m.Status.HostKey != nodes[name].HostKey() {
			t.Errorf("%s has lost its host key", name)
		}
	}
	// The host key of one has changed: nothing is sent to it, and the others are compared.
	nodes["pair-b"].Reinstall(t)
	o = compare("OCA-7648 Nothing arrives from pair-a at pair-c on UDP 8472 (pod network)", "OCA-7650 Machine pair-b was not compared with the others")
	if last := o.Status.Findings[len(o.Status.Findings)-1]; !strings.Contains(last.Cause, "a different host key") || !last.Warning {
		t.Errorf("%+v", last)
	}
	for _, name := range names { // nothing changes a machine
		if did := nodes[name].Did(); len(did) > 0 {
			t.Errorf("%s: %v", name, did)
		}
	}
	f.StopOperator()
}

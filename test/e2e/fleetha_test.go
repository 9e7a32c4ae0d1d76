// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/fleet"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestFleetOfThree creates a cluster of three control-plane nodes and a worker from one file, and hands all of them over to the operator. The
// operator then removes control-plane nodes from the cluster, including one whose machine is lost, and joins one.
func TestFleetOfThree(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_FLEET") == "" {
		t.Skip("make fleet-ha runs it: it takes minutes")
	}
	f := newFleet(t, 4, 3)
	f.walk(t, f.explainControlPlane,
		step{"dry run", f.dryRunOfAll},
		step{"ocadm is killed while a control-plane node joins", f.killedInJoin},
		step{"it goes on", f.threeControlPlanes},
		step{"again changes nothing", f.again},
		step{"the operator removes a control-plane node", f.removeControlPlane},
		step{"the operator joins a control-plane node", f.joinControlPlaneMachine},
		step{"the operator removes one that is lost", f.removeLost},
		step{"the last one stays", f.lastStays},
	)
}

func (f *fleetTest) killedInJoin(t *testing.T) {
	f.killed(t, "init, a control-plane node begins to join", 2)
}

// killed kills ocadm while it installs software on a machine.
func (f *fleetTest) killed(t *testing.T, name string, node int) {
	t.Helper()
	c := f.command(t.Context(), "apply", "-f", f.file)
	c.Stdout = io.Discard
	err := f.Timed(name, func() error {
		if err := c.Start(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		_, err := f.On(ctx, node, "sh", "-c", "until [ -e /usr/local/bin/kubelet ]; do sleep 0.1; done")
		return err
	})
	require.NoError(t, err)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
}

// threeControlPlanes continues: the first node stays unchanged, and in the end the operator manages all machines.
func (f *fleetTest) threeControlPlanes(t *testing.T) {
	res, status := f.apply(t, "two control planes, a worker")
	want(t, res, fleet.Unchanged, fleet.Changed, fleet.Changed, fleet.Changed)
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	f.whole(t, 1)
	for n := 1; n <= 4; n++ {
		m := f.arrives(t, n, "runs", running)
		if m.ControlPlane() != (n <= 3) || m.Status.FailureReason != "" {
			t.Errorf("%s: roles %v, %s", m.Name, m.Spec.Roles, m.Status.FailureReason)
		}
	}
	out, err := f.Kubectl(t.Context(), "-n", "onecloud", "get", "jobs,secrets", "-o", "name")
	if err != nil || strings.Contains(out, "authorities") || strings.Contains(out, "certificate-key") {
		t.Errorf("the operator has stored the authorities for machines that had joined: %s, %v", out, err)
	}
}

// removeControlPlane removes node 3: its machine is as it was before, and etcd has two members.
func (f *fleetTest) removeControlPlane(t *testing.T) {
	f.removed(t, "remove node3", 3)
	compare(t, "node3 after it was removed", f.fresh[3], f.look(t, 3))
}

func (f *fleetTest) removed(t *testing.T, name string, node int, args ...string) {
	t.Helper()
	machine := f.Lab.Node(node).Name
	err := f.Timed(name, func() error {
		_, err := f.On(t.Context(), 1, append([]string{scenario.Ocadm, "machine", "remove", machine, "--yes", "--wait"}, args...)...)
		return err
	})
	require.NoError(t, err)
	got, err := f.HAStatus(t.Context(), 1)
	require.NoError(t, err)
	for _, n := range got.Nodes {
		if n.Name == machine {
			t.Errorf("%s is still there: %+v", machine, got)
		}
	}
	if out, err := f.Kubectl(t.Context(), "-n", "onecloud", "get", "ocm", machine, "--ignore-not-found", "-o", "name"); err != nil || out != "" {
		t.Errorf("machine %s: %q, %v", machine, out, err)
	}
}

// joinControlPlaneMachine adds node 3 as a resource.
func (f *fleetTest) joinControlPlaneMachine(t *testing.T) {
	n := f.Lab.Node(3)
	err := f.Timed("the operator joins node3", func() error {
		_, err := f.On(t.Context(), 1, scenario.Ocadm, "machine", "add", n.Name, "--address", n.Address.String(), "--user", "debian", "--secret", "fleet-login",
			"--roles", "controlplane", "--wait")
		return err
	})
	require.NoError(t, err)
	f.arrives(t, 3, "runs", func(m *v1alpha1.OnecloudMachine) bool { return running(m) && m.ControlPlane() })
	f.whole(t, 1)
}

// removeLost abandons node 3, whose machine has no power.
func (f *fleetTest) removeLost(t *testing.T) {
	require.NoError(t, f.Lab.Node(3).Kill(t.Context()))
	f.removed(t, "remove node3, which is lost", 3, "--abandon")
}

// lastStays also removes node 2. Removing node 1 is then refused before anything is done.
func (f *fleetTest) lastStays(t *testing.T) {
	f.removed(t, "remove node2", 2)
	compare(t, "node2 after it was removed", f.fresh[2], f.look(t, 2))
	f.refused(t, 1, "OCA-4141", "machine", "remove", "node1", "--yes")
	f.arrives(t, 1, "still runs", running)
}

func (f *fleetTest) explainControlPlane(t *testing.T) {
	t.Helper()
	f.explainMachines(t)
	ctx := context.WithoutCancel(t.Context())
	_, _ = f.On(ctx, 1, scenario.Ocadm, "ha", "status")
	for _, argv := range [][]string{
		{"-n", "onecloud", "get", "jobs,pods", "-o", "wide"}, {"-n", "onecloud", "logs", "-l", "onecloud.yunion.io/authorities-of", "--tail=40"},
	} {
		out, err := f.Kubectl(ctx, argv...)
		t.Logf("$ kubectl %s\n%s%v", strings.Join(argv, " "), out, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/cluster/fleet"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
	"yunion.io/x/ocadm/test/sshserver"
)

// fleetTest is a fleet of lab machines that have only OpenSSH. This host is the administrator's machine.
type fleetTest struct {
	*suite
	ocadm, file string
}

// TestFleet creates a cluster of one control-plane node and five workers from one file. One is unreachable, one fails its checks, one loses power
// halfway, and ocadm itself is killed.
func TestFleet(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_FLEET") == "" {
		t.Skip("make fleet runs it: it takes minutes")
	}
	f := newFleet(t, 6, 1)
	f.walk(t, f.explainMachines,
		step{"dry run", f.dryRunOfAll},
		step{"ocadm is killed", f.killedInInit},
		step{"three bad workers do not stop the others", f.threeBad},
		step{"the bad ones recover", f.allJoin},
		step{"again changes nothing", f.again},
		step{"remove a machine", f.removeOne},
	)
}

// newFleet creates machines that have only OpenSSH, and the file that lists them. The first ones are control-plane nodes.
func newFleet(t *testing.T, nodes, controlPlanes int) *fleetTest {
	t.Helper()
	log := logf(t)
	ocadm, bundle, err := scenario.Build(t.Context(), repository, version, "", log)
	require.NoError(t, err)
	l := up(t, machine.Options{Nodes: nodes, Ocadm: ocadm, Bundle: bundle, Packages: []string{"openssh-server", "sudo"}, Logf: log})
	s := newSuite(t, l)
	f := &fleetTest{suite: s, ocadm: ocadm}
	f.write(t, bundle, controlPlanes)
	return f
}

// write makes the machines fresh and reachable, and writes the file.
func (f *fleetTest) write(t *testing.T, bundle string, controlPlanes int) {
	t.Helper()
	private, public := sshserver.NewKey(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), private, 0o600))
	authorized := public.Type() + " " + base64.StdEncoding.EncodeToString(public.Marshal())
	var out strings.Builder
	fmt.Fprintf(&out, "apiVersion: ocadm.yunion.io/v1\nkind: Fleet\nssh: {keyFile: key}\nbundle: %s\nsettings:\n  cloud: {version: %s}\n"+
		"  addons: {ingress: none}\n  node: {offline: true, allowCgroupV1: true, restrictOOMScoreAdj: true, conntrackMaxPerCore: 0}\n", bundle, version)
	if controlPlanes > 1 {
		fmt.Fprintf(&out, "  cluster: {highAvailabilityVIP: %s}\n", f.VirtualAddress())
	}
	for i, n := range f.Lab.Nodes() {
		if _, err := f.On(t.Context(), i+1, "sh", "-ec", freshScript, "sh", authorized, labSettings); err != nil {
			t.Fatal(err)
		}
		f.fresh[i+1] = f.look(t, i+1)
		switch i {
		case 0:
			out.WriteString("controlPlanes:\n")
		case controlPlanes:
			out.WriteString("workers:\n")
		}
		user := []string{"root", "debian"}[i%2] // with sudo
		fmt.Fprintf(&out, "- {name: %s, address: %s, ssh: {user: %s}, labels: {example.org/rack: r1}}\n", n.Name, n.Address, user)
	}
	f.file = filepath.Join(dir, "fleet.yaml")
	require.NoError(t, os.WriteFile(f.file, []byte(out.String()), 0o600))
}

// command returns an ocadm fleet command.
func (f *fleetTest) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, f.ocadm, append([]string{"fleet"}, args...)...)
	c.Stderr = f.Story
	return c
}

// apply runs ocadm fleet apply and returns the results of the machines.
func (f *fleetTest) apply(t *testing.T, name string, args ...string) (res fleet.Result, status int) {
	t.Helper()
	var out bytes.Buffer
	_ = f.Timed(name, func() error {
		c := f.command(t.Context(), append([]string{"apply", "-f", f.file, "-o", "json"}, args...)...)
		c.Stdout = &out
		err := c.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	for _, m := range res.Machines {
		t.Logf("%s %s %.1f s %s %v", m.Name, m.State, m.Seconds, m.Reason, m.Findings)
	}
	return res, status
}

// want compares the states of the machines, in order.
func want(t *testing.T, res fleet.Result, states ...fleet.State) {
	t.Helper()
	var got []fleet.State
	for _, m := range res.Machines {
		got = append(got, m.State)
	}
	if !slices.Equal(got, states) {
		t.Fatalf("%v, want %v", got, states)
	}
}

func code(m fleet.MachineResult) string {
	if len(m.Findings) == 0 {
		return ""
	}
	return m.Findings[0].Code
}

func (f *fleetTest) dryRunOfAll(t *testing.T) {
	res, status := f.apply(t, "dry run", "--dry-run")
	want(t, res, slices.Repeat([]fleet.State{fleet.Planned}, len(f.fresh))...)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	for n := range f.fresh {
		compare(t, fmt.Sprintf("node %d after a dry run", n), f.fresh[n], f.look(t, n))
	}
	if _, err := os.Stat(strings.TrimSuffix(f.file, ".yaml") + ".fleet"); err == nil {
		t.Error("a dry run makes a directory")
	}
}

// killedInInit kills ocadm while init installs software.
func (f *fleetTest) killedInInit(t *testing.T) { f.killed(t, "init begins", 1) }

// threeBad continues. The cable of node 5 is unplugged, a port of node 6 is taken, and node 4 loses power.
func (f *fleetTest) threeBad(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, f.Lab.Node(5).CutNetwork())
	if _, err := f.On(ctx, 6, "systemd-run", "--unit=other", "socat", "TCP-LISTEN:10250,fork", "SYSTEM:true"); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 1)
	go func() {
		if _, _, err := f.Lab.Node(4).Exec(ctx, "sh", "-c", "until [ -e /usr/local/bin/kubelet ]; do sleep 0.1; done"); err != nil {
			lost <- err
			return
		}
		lost <- f.Lab.Node(4).Kill(ctx)
	}()
	res, status := f.apply(t, "init, two workers join")
	require.NoError(t, <-lost)
	want(t, res, fleet.Changed, fleet.Changed, fleet.Changed, fleet.Failed, fleet.Failed, fleet.Failed)
	if status != 76 {
		t.Errorf("status %d", status)
	}
	for node, wanted := range map[int]string{4: "OCA-7605", 5: "OCA-7601", 6: "OCA-2001"} {
		if got := code(res.Machines[node-1]); got != wanted {
			t.Errorf("node %d: %s, want %s", node, got, wanted)
		}
	}
	for _, n := range []int{2, 3} {
		f.arrives(t, n, "runs", running)
	}
}

// allJoin repairs what is wrong.
func (f *fleetTest) allJoin(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, f.Lab.Node(5).RestoreNetwork())
	if _, err := f.On(ctx, 6, "systemctl", "stop", "other"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, f.Lab.Node(4).Start(ctx))
	if _, err := f.On(ctx, 4, "sh", "-c", "until systemctl is-active -q ssh; do sleep 0.2; done"); err != nil {
		t.Fatal(err)
	}
	res, status := f.apply(t, "three workers join at once")
	want(t, res, fleet.Unchanged, fleet.Unchanged, fleet.Unchanged, fleet.Changed, fleet.Changed, fleet.Changed)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	for n := 2; n <= 6; n++ {
		f.arrives(t, n, "runs", running)
	}
}

func (f *fleetTest) again(t *testing.T) {
	res, status := f.apply(t, "again")
	want(t, res, slices.Repeat([]fleet.State{fleet.Unchanged}, len(f.fresh))...)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	dir := strings.TrimSuffix(f.file, ".yaml") + ".fleet"
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// removeOne has the operator remove a machine, with its login. The machine is then as it was before.
func (f *fleetTest) removeOne(t *testing.T) {
	ctx := t.Context()
	err := f.Timed("remove node2", func() error {
		_, err := f.On(ctx, 1, scenario.Ocadm, "machine", "remove", "node2", "--yes", "--wait")
		return err
	})
	require.NoError(t, err)
	compare(t, "node2 after it was removed", f.fresh[2], f.look(t, 2))
}

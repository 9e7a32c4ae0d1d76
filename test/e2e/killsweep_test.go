// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestKillSweep does everything twice on the same machines: first undisturbed, then killed before, within and after every phase and run again. Both
// must end with the same machines and the same objects. OCADM_KILLSWEEP selects what is swept (init,join,control-plane,reset,restore,rollback), by
// default all; OCADM_KILLSWEEP_POINTS limits the number of points of each, OCADM_KILLSWEEP_ROLLBACKS (6) that of rollbacks; with
// OCADM_KILLSWEEP_CLOUD=1, init also creates a cloud, which makes every step slower.
func TestKillSweep(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_KILLSWEEP") == "" {
		t.Skip("make killsweep runs it: it takes an hour")
	}
	k := &sweep{suite: newSuite(t, machines(t, 2)),
		stories: map[string][]workflow.Event{}, want: map[string]map[string]string{}}
	k.only = strings.FieldsFunc(os.Getenv("OCADM_KILLSWEEP"), func(r rune) bool { return r == ',' })
	k.withCloud = os.Getenv("OCADM_KILLSWEEP_CLOUD") != ""
	k.rollbacks, _ = strconv.Atoi(cmp.Or(os.Getenv("OCADM_KILLSWEEP_ROLLBACKS"), "6"))
	k.limit, _ = strconv.Atoi(os.Getenv("OCADM_KILLSWEEP_POINTS")) // empty means all
	for i := range k.Lab.Nodes() {
		k.fresh[i+1] = k.look(t, i+1)
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"undisturbed", k.undisturbed},
		{"init", func(t *testing.T) { k.swept(t, "init", 1, k.initCommand()) }},
		{"join of a worker", func(t *testing.T) { k.swept(t, "join", 2, k.joinCommand(t)) }},
		{"reset of a worker", func(t *testing.T) { k.sweptReset(t, 2) }},
		{"join of a control plane", func(t *testing.T) { k.swept(t, "control-plane", 2, k.joinCommand(t, "--control-plane")) }},
		{"reset of a control plane", func(t *testing.T) { k.sweptReset(t, 2) }},
		{"a rolled back join", func(t *testing.T) { k.rolledBack(t, "join", 2, k.joinCommand(t)) }},
		{"a rolled back join of a control plane", func(t *testing.T) { k.rolledBack(t, "control-plane", 2, k.joinCommand(t, "--control-plane")) }},
		{"etcd restore", k.sweptRestore},
		{"reset of the last control plane", func(t *testing.T) { k.sweptReset(t, 1) }},
		{"a rolled back init", func(t *testing.T) { k.rolledBack(t, "init", 1, k.initCommand()) }},
	} {
		if !t.Run(step.name, step.run) {
			break
		}
	}
	var times strings.Builder
	k.Report(&times)
	t.Logf("times\n%s", times.String())
}

// sweep is the suite with the results of the undisturbed runs.
type sweep struct {
	*suite
	only      []string
	limit     int
	withCloud bool
	// rollbacks is the number of points of each command that are rolled back.
	rollbacks int
	// stories holds the events of each command, want the resulting state.
	stories map[string][]workflow.Event
	want    map[string]map[string]string
}

func (k *sweep) selected(what string) bool { return len(k.only) == 0 || slices.Contains(k.only, what) }

func (k *sweep) initCommand() []string {
	args := []string{"--high-availability-vip", k.VirtualAddress(), "--ignore-preflight-errors", "Disk"}
	if k.withCloud {
		args = append(args, "--onecloud-version", version)
	}
	return k.initArgs(1, args...)
}

func (k *sweep) joinCommand(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := k.On(t.Context(), 1, append([]string{scenario.Ocadm, "token", "create", "--print-join-command"}, args...)...)
	argv := strings.Fields(out)
	if err != nil || len(argv) < 3 {
		t.Fatalf("no join command: %v", err)
	}
	argv[0] = scenario.Ocadm
	return append(append(argv, k.JoinFlags(2)...), "--ignore-preflight-errors", "Disk")
}

var resetCommand = []string{scenario.Ocadm, "reset", "--yes"}

// undisturbed runs each command to its end, and stores its events and result.
func (k *sweep) undisturbed(t *testing.T) {
	k.learn(t, "init", 1, k.initCommand())
	k.want["init"] = k.settled(t, 1)
	k.learn(t, "join", 2, k.joinCommand(t))
	k.want["join"] = k.settled(t, 2)
	k.learn(t, "reset", 2, resetCommand)
	k.forget(t)
	k.learn(t, "control-plane", 2, k.joinCommand(t, "--control-plane"))
	k.want["control-plane"] = k.settled(t, 2)
	k.learn(t, "reset", 2, resetCommand)
	k.learn(t, "reset", 1, resetCommand)
	for node, fresh := range k.fresh {
		compare(t, fmt.Sprintf("node %d after reset", node), fresh, k.look(t, node))
	}
}

func (k *sweep) learn(t *testing.T, what string, node int, argv []string) {
	t.Helper()
	err := k.Timed(what+" undisturbed", func() error {
		k.stories[what] = k.events(t, node, argv...)
		return nil
	})
	require.NoError(t, err)
}

// forget deletes the Node of machine 2, as reset of a worker advises, and the second replica of the operator, which the reset of a control plane leaves.
func (k *sweep) forget(t *testing.T) {
	t.Helper()
	if _, err := k.Kubectl(t.Context(), "-n", "onecloud", "scale", "deployment", "onecloud-operator", "--replicas=1"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Kubectl(t.Context(), "delete", "node", "node2", "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
}

// swept kills a command at every point, and runs it to its end.
func (k *sweep) swept(t *testing.T, what string, node int, argv []string) {
	if k.selected(what) {
		k.kills(t, node, spread(points(k.stories[what]), k.limit), argv...)
	}
	err := k.Timed(what+" at last", func() error {
		_, err := k.On(t.Context(), node, argv...)
		return err
	})
	require.NoError(t, err)
	k.becomes(t, what, node)
}

func (k *sweep) sweptReset(t *testing.T, node int) {
	if k.selected("reset") {
		k.kills(t, node, spread(points(k.stories["reset"]), k.limit), resetCommand...)
	}
	if _, err := k.On(t.Context(), node, resetCommand...); err != nil {
		t.Fatal(err)
	}
	compare(t, fmt.Sprintf("node %d after reset", node), k.fresh[node], k.look(t, node))
	if node != 1 {
		k.forget(t)
		k.becomes(t, "init", 1)
	}
}

// sweptRestore restores a snapshot of etcd.
func (k *sweep) sweptRestore(t *testing.T) {
	if !k.selected("restore") {
		t.Skip("not selected")
	}
	ctx := t.Context()
	k.mark(t, "before")
	out, err := k.On(ctx, 1, scenario.Ocadm, "etcd", "snapshot", "-o", "json")
	var info struct{ File string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &info)
	}
	require.NoError(t, err)
	k.mark(t, "after")
	argv := []string{scenario.Ocadm, "etcd", "restore", info.File, "--yes"}
	var all []point
	for _, phase := range []string{"stop", "prepare", "swap", "etcd", "control-plane"} { // the last one, finish, ends before a signal arrives
		all = append(all, point{event: workflow.PhaseStarted, phase: phase}, point{event: workflow.PhaseDone, phase: phase})
	}
	for _, p := range spread(all[:len(all)-1], k.rollbacks) { // after the last one there is only finish
		k.interruptedAtEntry(t, 1, p, argv...)
		eventually(t, "the former data", func() error {
			out, err := k.quietly(t, 1, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "configmap", "before", "after")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Logf("went back from: %s", p)
	}
	begun := time.Now()
	list := spread(all, k.limit)
	for _, p := range list {
		k.killedAtEntry(t, 1, p, argv...)
	}
	t.Logf("etcd restore was killed at %d points in %.1f s", len(list), time.Since(begun).Seconds())
	if _, err := k.On(ctx, 1, argv...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the virtual address", func() error { // keepalived adds it after it has seen a ready API server
		_, err := k.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	})
	if got := k.marks(t); got != "before" {
		t.Errorf("after the restore there are %q", got)
	}
	if _, err := k.Kubectl(ctx, "delete", "configmap", "before"); err != nil {
		t.Error(err)
	}
	k.becomes(t, "init", 1)
}

// rolledBack interrupts a command with --on-failure=rollback at some points, in some cases after a kill there. Everything that it created is removed.
func (k *sweep) rolledBack(t *testing.T, what string, node int, argv []string) {
	if !k.selected("rollback") {
		t.Skip("not selected")
	}
	all := points(k.stories[what])
	last := all[len(all)-1].phase
	all = slices.DeleteFunc(all, func(p point) bool { return p.phase == last || p.mayEnd() }) // where an interrupt may come too late
	for i, p := range spread(all, k.rollbacks) {
		t.Run(p.String(), func(t *testing.T) {
			if i%2 == 1 {
				k.killedAt(t, node, p, argv...)
			}
			k.interruptedAt(t, node, p, append(argv, "--on-failure", "rollback")...)
			compare(t, fmt.Sprintf("node %d after %s and a rollback", node, p), k.fresh[node], k.look(t, node, "/var/lib/ocadm"))
			if node != 1 {
				k.forget(t)
				k.becomes(t, "init", 1)
			}
		})
	}
	if _, err := k.On(t.Context(), node, resetCommand...); err != nil {
		t.Fatal(err)
	}
	compare(t, fmt.Sprintf("node %d after reset", node), k.fresh[node], k.look(t, node))
}

// interruptedAt ends a command as an impatient user does: with two interrupts.
func (k *sweep) interruptedAt(t *testing.T, node int, p point, argv ...string) {
	t.Helper()
	script := fmt.Sprintf(stopAt, quoted(argv), p.event, p.phase, p.after.Seconds(), twice,
		`[ $reached = no ] || [ $status != 0 ] || { echo "it ended well"; cat /run/story; exit 2; }`)
	if out, err := k.quietly(t, node, "sh", "-c", script); err != nil {
		t.Fatalf("interrupted at %s: %v\n%s", p, err, out)
	}
}

// settled returns the state of a machine and its cluster as soon as it is stable and the cloud is Available.
func (k *sweep) settled(t *testing.T, node int) map[string]string {
	t.Helper()
	return settled(t, func() map[string]string { return k.state(t, node) }, func() error { return k.available(t) })
}

// becomes waits until machine and cluster are in the state after the undisturbed command.
func (k *sweep) becomes(t *testing.T, what string, node int) {
	t.Helper()
	becomes(t, "the state after an undisturbed "+what, k.want[what], func() map[string]string { return k.state(t, node) }, func() error { return k.available(t) })
}

func (k *sweep) available(t *testing.T) error {
	if !k.withCloud {
		return nil
	}
	return k.AllAvailable(t.Context())
}

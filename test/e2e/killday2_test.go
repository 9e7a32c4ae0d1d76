// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	kube "yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestKillSweepDay2 sweeps the commands of day 2, as TestKillSweep does those of day 1: a move of a worker and of the control plane, an upgrade of
// both, and the restore of a cloud, in place and on fresh machines. Each is killed before and after every step, and reverted at some steps: then the
// machines must be as they were. OCADM_KILLSWEEP selects what is swept (move,upgrade,restore); OCADM_KILLSWEEP_POINTS and OCADM_KILLSWEEP_ROLLBACKS
// are as in TestKillSweep. The cluster starts with the version in OCADM_TEST_UPGRADE, as in TestUpgrade.
func TestKillSweepDay2(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_KILLSWEEP") == "" {
		t.Skip("make killsweep runs it: it takes an hour")
	}
	ctx, log := t.Context(), logf(t)
	_, newer, err := scenario.Build(ctx, repository, version, "", log)
	require.NoError(t, err)
	ocadm, bundle, err := scenario.BuildFor(ctx, repository, assemble.Options{KubernetesVersion: upgradeFrom(), CloudVersion: version, Logf: log})
	require.NoError(t, err)
	k := &day2{suite: newSuite(t, up(t, machine.Options{Name: "-day2", Nodes: 2, Ocadm: ocadm, Bundle: bundle, Logf: log})), upgraded: map[int]map[string]string{}}
	k.only = strings.FieldsFunc(os.Getenv("OCADM_KILLSWEEP"), func(r rune) bool { return r == ',' })
	k.limit, _ = strconv.Atoi(os.Getenv("OCADM_KILLSWEEP_POINTS"))
	k.rollbacks, _ = strconv.Atoi(cmp.Or(os.Getenv("OCADM_KILLSWEEP_ROLLBACKS"), "6"))
	at := strings.TrimSpace(k.must(t, "readlink", "-f", scenario.Bundle))
	k.newer = path.Join(path.Dir(at), path.Base(newer)) // the machines see the directory of both
	for i := range k.Lab.Nodes() {
		k.fresh[i+1] = k.look(t, i+1)
	}
	k.walk(t, nil,
		step{"an undisturbed upgrade", k.undisturbed},
		step{"a cluster", k.cluster},
		step{"move of the worker", func(t *testing.T) { k.sweptMove(t, 2) }},
		step{"move of the control plane", func(t *testing.T) { k.sweptMove(t, 1) }},
		step{"upgrade gone back from", k.upgradeBack},
		step{"upgrade of the control plane", func(t *testing.T) { k.sweptUpgrade(t, 1, k.upgradeApply()) }},
		step{"upgrade of the worker", func(t *testing.T) { k.sweptUpgrade(t, 2, []string{scenario.Ocadm, "upgrade", "node", "--yes"}) }},
		step{"restore of a cloud", k.sweptCloudRestore},
	)
}

// day2 is the suite with the results of undisturbed commands.
type day2 struct {
	*suite
	only             []string
	limit, rollbacks int
	// newer is the bundle with the linked version.
	newer string
	// before is the initial state of the machines, upgraded that after an undisturbed upgrade.
	before, upgraded map[int]map[string]string
	key, recipient   string
}

func (k *day2) selected(t *testing.T, what string) {
	t.Helper()
	if len(k.only) > 0 && !slices.Contains(k.only, what) {
		t.Skip("not selected")
	}
}

func (k *day2) upgradeApply() []string {
	return []string{scenario.Ocadm, "upgrade", "apply", "--bundle", k.newer, "--yes"}
}

// cluster creates a cluster of a control plane and a worker, without an operator.
func (k *day2) cluster(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, k.Init(ctx, "--kubernetes-version", upgradeFrom(), "--ingress", "none", "--ignore-preflight-errors", "Disk",
		"--skip-phases", withoutCloud))
	require.NoError(t, k.Join(ctx, 2, "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"))
	// The routes between the nodes are part of the state.
	k.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-flannel", "rollout", "status", "daemonset/kube-flannel-ds", "--timeout=180s")
	k.before = map[int]map[string]string{}
	for node := 1; node <= 2; node++ {
		k.before[node] = settled(t, func() map[string]string { return k.state(t, node) }, always)
	}
}

// undisturbed upgrades a cluster and removes it.
func (k *day2) undisturbed(t *testing.T) {
	k.selected(t, "upgrade")
	k.cluster(t)
	for node, argv := range [][]string{k.upgradeApply(), {scenario.Ocadm, "upgrade", "node", "--yes"}} {
		k.ended(t, node+1, argv)
	}
	for node := 1; node <= 2; node++ {
		k.upgraded[node] = settled(t, func() map[string]string { return k.state(t, node) }, always)
	}
	k.resetsCleanly(t)
}

func (k *day2) resetsCleanly(t *testing.T) {
	t.Helper()
	for _, node := range []int{2, 1} {
		if _, err := k.On(t.Context(), node, resetCommand...); err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("node %d after reset", node), k.fresh[node], k.look(t, node))
	}
}

func (k *day2) ended(t *testing.T, node int, argv []string) {
	t.Helper()
	require.NoError(t, k.Timed(strings.Join(argv[1:3], " ")+" at last", func() error { _, err := k.On(t.Context(), node, argv...); return err }))
}

// isBack waits until a machine and its cluster are in their initial state.
func (k *day2) isBack(t *testing.T, node int) {
	t.Helper()
	becomes(t, "the state before", k.before[node], func() map[string]string { return k.state(t, node) }, always)
}

// sweptMove changes the address of a machine, and changes it back. Then the cluster is as before. At some points the move is reverted immediately.
func (k *day2) sweptMove(t *testing.T, node int) {
	k.selected(t, "move")
	from, to := k.Lab.Node(node).Address.String(), k.beside(60+node)
	there, back := []string{scenario.Ocadm, "move", to, "--yes"}, []string{scenario.Ocadm, "move", from, "--yes"}
	k.address(t, node, "add", to)
	all := k.stepsOf(t, node, there)
	for _, p := range spread(all, k.rollbacks) {
		k.killedAtEntry(t, node, p, there...)
		k.ended(t, node, back)
		k.follows(t, node, from)
		k.isBack(t, node)
		t.Logf("went back from: %s", p)
	}
	for _, argv := range [][]string{there, back} {
		list := spread(all, k.limit)
		for _, p := range list {
			k.killedAtEntry(t, node, p, argv...)
		}
		t.Logf("ocadm move was killed at %d points", len(list))
		k.ended(t, node, argv)
		k.follows(t, node, argv[2])
	}
	k.address(t, node, "del", to)
	k.works(t)
	k.isBack(t, node)
}

// follows makes the worker use the control plane's address, if that has moved.
func (k *day2) follows(t *testing.T, moved int, address string) {
	t.Helper()
	if moved == 1 {
		k.ended(t, 2, []string{scenario.Ocadm, "move", "--follow", address, "--yes"})
	}
}

// stepsOf returns the points before and after every step that a command would perform. The end of its last step is the end of the command.
func (k *day2) stepsOf(t *testing.T, node int, argv []string) (out []point) {
	t.Helper()
	dry, err := k.On(t.Context(), node, append(slices.Clone(argv), "--dry-run", "-o", "json")...)
	var plan struct {
		Steps []struct{ Name, State string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(dry), &plan)
	}
	if err != nil || len(plan.Steps) < 4 {
		t.Fatalf("the plan: %s, %v", dry, err)
	}
	for _, s := range plan.Steps {
		if s.State == string(workflow.Planned) && s.Name != "finish" && s.Name != "pod-network" { // that may be done already
			out = append(out, point{event: workflow.PhaseStarted, phase: s.Name}, point{event: workflow.PhaseDone, phase: s.Name})
		}
	}
	return out
}

// upgradeBack interrupts an upgrade while it can be reverted: the old static pods run then.
func (k *day2) upgradeBack(t *testing.T) {
	k.selected(t, "upgrade")
	all := k.stepsOf(t, 1, k.upgradeApply())
	end := slices.IndexFunc(all, func(p point) bool { return p.phase == "commit" })
	if end < 0 {
		t.Fatalf("no step commits: %v", all)
	}
	for _, p := range spread(all[:end-1], k.rollbacks) { // after the last step, it commits immediately
		k.interruptedAtEntry(t, 1, p, k.upgradeApply()...)
		k.isBack(t, 1)
		t.Logf("went back from: %s", p)
	}
}

func (k *day2) sweptUpgrade(t *testing.T, node int, argv []string) {
	k.selected(t, "upgrade")
	all := k.stepsOf(t, node, argv)
	if at := slices.Index(all, point{event: workflow.PhaseStarted, phase: "commit"}); at > 0 {
		// This step takes no time, and is skipped once started: a signal just before it may come after it.
		all = slices.Concat(all[:at-1], all[at:at+1], all[at+2:])
	}
	list := spread(all, k.limit)
	for _, p := range list {
		k.killedAtEntry(t, node, p, argv...)
		t.Logf("killed: %s", p)
	}
	t.Logf("%s was killed at %d points", strings.Join(argv[1:3], " "), len(list))
	k.ended(t, node, argv)
	if node == 1 { // the worker follows
		return
	}
	for node := 1; node <= 2; node++ {
		becomes(t, "the state after an undisturbed upgrade", k.upgraded[node], func() map[string]string { return k.state(t, node) }, always)
	}
	out, err := k.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if want := kube.Kubernetes + " " + kube.Kubernetes; err != nil || strings.TrimSpace(out) != want {
		t.Errorf("the kubelets are %q, %v", out, err)
	}
}

// sweptCloudRestore restores a cloud in place, killed in each step, and with ocadm init on fresh machines, killed at points throughout.
func (k *day2) sweptCloudRestore(t *testing.T) {
	k.selected(t, "restore")
	ctx := t.Context()
	k.resetsCleanly(t)
	secret, key := agekey.Write(t, t.TempDir())
	k.key, k.recipient = secret, key.Recipient().String()
	small := append(k.initArgs(1), "--kubernetes-version", upgradeFrom(), "--ingress", "none", "--ignore-preflight-errors", "Disk,ComputeModules",
		"--skip-phases", "images/others")
	if _, err := k.On(ctx, 1, small...); err != nil {
		t.Fatal(err)
	}
	k.must(t, scenario.Ocadm, "cluster", "create", "--version", version)
	k.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "patch", "oc", "default", "--type=merge", "-p", without(t, smallCloud))
	k.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "wait", "oc/default", "--for=condition=Ready", "--timeout=600s")
	k.project(t, "before")
	dir := t.TempDir()
	require.NoError(t, k.Lab.Node(1).CopyIn(ctx, k.key, "/root/key.txt"))
	file := k.saved(t, k.recipient, dir)
	k.project(t, "after")
	restore := []string{scenario.Ocadm, "cluster", "backup", "restore", "/root/" + file, "--identity", "/root/key.txt", "--yes", "--wait"}
	for _, name := range []string{"stop", "save", "databases"} { // the last two take no time
		k.killedInStep(t, name, restore)
	}
	k.ended(t, 1, restore)
	k.hasProjects(t)
	k.etcdFromBackup(t)
	if _, err := k.On(ctx, 1, resetCommand...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, "key.txt"} {
		var err error
		if name == file {
			err = k.Lab.Node(1).CopyIn(ctx, filepath.Join(dir, file), "/root/"+file)
		} else {
			err = k.Lab.Node(1).CopyIn(ctx, k.key, "/root/key.txt")
		}
		require.NoError(t, err)
	}
	argv := append(small, "--restore-from", "/root/"+file, "--identity", "/root/key.txt", "--yes")
	k.sampled(t, 1, cmp.Or(k.limit, 20), argv...)
	for _, p := range []point{{event: workflow.PhaseStarted, phase: "restore", after: inside}, {event: workflow.PhaseStarted, phase: "restore", after: deep}} {
		k.killedAt(t, 1, p, argv...)
	}
	k.ended(t, 1, argv)
	k.hasProjects(t)
	if _, err := k.On(ctx, 1, resetCommand...); err != nil {
		t.Fatal(err)
	}
}

// etcdFromBackup restores etcd from the snapshot beside a backup.
func (k *day2) etcdFromBackup(t *testing.T) {
	t.Helper()
	const dir = "/root/beside"
	k.must(t, "mkdir", dir)
	k.must(t, scenario.Ocadm, "etcd", "snapshot")
	k.must(t, scenario.Ocadm, "cluster", "backup", "create", "--to", dir, "--recipient", k.recipient, "--no-proof", "--etcd-snapshots", "/var/lib/ocadm/etcd")
	file := strings.TrimSpace(k.must(t, "sh", "-c", "ls "+dir+"/*.ocadm-etcd"))
	k.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "create", "configmap", "later")
	k.ended(t, 1, []string{scenario.Ocadm, "etcd", "restore", file, "--identity", "/root/key.txt", "--yes"})
	k.until(t, "the API server", func(ctx context.Context) (bool, string, error) {
		out, err := k.Kubectl(ctx, "get", "configmaps", "-o", "name")
		return err == nil && !strings.Contains(out, "later"), out, err
	})
	k.must(t, "rm", "-r", dir)
}

// killedInStep kills the restore of a cloud in a step of its operation, and waits until the operator has noticed.
func (k *day2) killedInStep(t *testing.T, name string, argv []string) {
	t.Helper()
	const script = `operation() { kubectl --kubeconfig /etc/kubernetes/admin.conf -n onecloud get onecloudoperations --sort-by=.metadata.creationTimestamp -o jsonpath="{.items[-1:].$1}"; }
was=$(operation metadata.name)
%[1]s >/run/story 2>&1 & pid=$!
until [ "$(operation metadata.name)" != "$was" ] && [ "$(operation status.step)" = %[2]s ]; do
	kill -0 $pid 2>/dev/null || { wait $pid; echo "it ended with $? before"; cat /run/story; exit 1; }
done
kill -KILL $pid; wait $pid
until operation status.phase | grep -qE 'Failed|Reverted|Succeeded'; do sleep 1; done
operation status.phase`
	out, err := k.quietly(t, 1, "sh", "-c", fmt.Sprintf(script, quoted(argv), name))
	if err != nil {
		t.Fatalf("killed in step %s: %v\n%s", name, err, out)
	}
	t.Logf("killed in step %s: the operation is %s", name, out)
}

func (k *day2) project(t *testing.T, name string) {
	t.Helper()
	session, err := k.Session(t.Context())
	if err == nil {
		err = session.AddProject(t.Context(), name)
	}
	require.NoError(t, err)
}

// hasProjects checks that the cloud has the contents of the backup.
func (k *day2) hasProjects(t *testing.T) {
	t.Helper()
	var have map[string]bool
	k.until(t, "the identity service", func(ctx context.Context) (bool, string, error) {
		session, err := k.Session(ctx)
		if err == nil {
			have, err = session.Projects(ctx)
		}
		return err == nil, "", err
	})
	if !have["before"] || have["after"] {
		t.Errorf("the cloud has the projects %v", have)
	}
}

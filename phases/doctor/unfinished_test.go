// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// The journal names the command that stopped the control plane and did not finish. Commands that finished or were undone do not count.
func TestUnfinished(t *testing.T) {
	started := time.Date(2026, 11, 26, 1, 0, 0, 0, time.UTC)
	run := func(plan, phase, event string, inputs map[string]string) workflow.Entry {
		started = started.Add(time.Second)
		return workflow.Entry{Time: started, Run: plan, Plan: plan, Phase: phase, Event: event, Inputs: inputs}
	}
	begin := func(plan string, inputs map[string]string) []workflow.Entry {
		return []workflow.Entry{run(plan, "", string(workflow.RunStarted), inputs), run(plan, "stop", string(workflow.PhaseStarted), nil)}
	}
	move := map[string]string{"from": "10.0.0.1", "to": "10.0.0.2", "--follow": "false"}
	for name, c := range map[string]struct {
		journal []workflow.Entry
		want    why.Unfinished
	}{
		"restore of a file":   {begin("etcd restore", map[string]string{"file": "/x/a.db"}), why.Unfinished{Command: "ocadm etcd restore /x/a.db"}},
		"stored with backups": {begin("etcd restore", map[string]string{"file": "/x/a.ocadm-etcd"}), why.Unfinished{Command: "ocadm etcd restore /x/a.ocadm-etcd --identity key.txt"}},
		"restore alone":       {begin("etcd restore", map[string]string{"--alone": "true"}), why.Unfinished{Command: "ocadm etcd restore --from-data --alone"}},
		"newer databases": {begin("etcd restore", map[string]string{"file": "/x/a.db", "--newer-databases": "true"}),
			why.Unfinished{Command: "ocadm etcd restore /x/a.db --newer-databases"}},
		"forgotten rotation": {begin("etcd restore", map[string]string{"file": "/x/a.db", "--forget-rotation": "true"}),
			why.Unfinished{Command: "ocadm etcd restore /x/a.db --forget-rotation"}},
		"restore of data": {begin("etcd restore", nil), why.Unfinished{Command: "ocadm etcd restore --from-data"}},
		"rejoin":          {begin("etcd rejoin", nil), why.Unfinished{Command: "ocadm etcd rejoin"}},
		"rejoin that waits": {begin("etcd rejoin", map[string]string{"--after-restore": "10.0.0.1"}), why.Unfinished{Command: "ocadm etcd rejoin --after-restore 10.0.0.1",
			Back: "at 10.0.0.1, which keeps the data that it has: ocadm etcd restore --from-data"}},
		"move":         {begin("move", move), why.Unfinished{Command: "ocadm move 10.0.0.2", Back: "ocadm move 10.0.0.1"}},
		"the last one": {slices.Concat(begin("move", move), begin("etcd rejoin", nil)), why.Unfinished{Command: "ocadm etcd rejoin"}},
		"one that ended": {slices.Concat(begin("move", move), []workflow.Entry{run("move", "stop", string(workflow.PhaseDone), nil), run("move", "", string(workflow.RunDone), nil)}),
			why.Unfinished{}},
		"one that was undone": {append(begin("move", move), run("move", "stop", string(workflow.PhaseUndone), nil)), why.Unfinished{}},
		"none":                {nil, why.Unfinished{}},
	} {
		m := newMachine(t)
		j := workflow.NewJournal(m.Files.Path(host.JournalFile))
		for _, e := range c.journal {
			require.NoError(t, j.Append(t.Context(), e))
		}
		m.put(t, "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/kube-apiserver.yaml", "")
		got, _, ok := Machine(t.Context(), m.Host)
		if !ok || !got.ControlPlane || !slices.Equal(got.Stopped, []string{"kube-apiserver"}) {
			t.Errorf("%s: %v %+v", name, ok, got)
		}
		u := got.Unfinished
		if u == nil {
			u = &why.Unfinished{}
		}
		if u.Command != c.want.Command || u.Back != c.want.Back || u.AtWork != 0 {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

func TestAtWork(t *testing.T) {
	m := newMachine(t)
	m.put(t, host.LockFile, "77\n")
	if got := atWork(m.Host); got != 0 {
		t.Errorf("a process that has ended: %d", got)
	}
	m.put(t, fmt.Sprintf("/proc/%d/cmdline", 77), "/usr/local/bin/ocadm\x00etcd\x00restore")
	if got := atWork(m.Host); got != 77 {
		t.Errorf("%d", got)
	}
}

func TestAddresses(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9 --x"`)
	m.Facts.Address = netip.MustParseAddr("192.0.2.57")
	if node, has := addresses(m.Host); node != "192.0.2.9" || !slices.Equal(has, []string{"192.0.2.57", "192.0.2.10"}) {
		t.Errorf("%q %q", node, has)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestMove changes the address of a worker, and then of the only control-plane node, and removes the old one; the worker follows. The command is
// killed at every step. Then everything moves back on machines that have already lost the old address, as with DHCP, and etcd's data is damaged.
func TestMove(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_MOVE") == "" {
		t.Skip("make move runs it: it takes minutes")
	}
	s := newSuite(t, machines(t, 2))
	ctx := t.Context()
	require.NoError(t, s.Init(ctx, "--ingress", "none", "--ignore-preflight-errors", "Disk",
		"--skip-phases", withoutCloud))
	require.NoError(t, s.Join(ctx, 2, "--host-networks", "eth0/br0/"+s.Lab.Node(2).Address.String(), "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"))
	s.refused(t, 2, "OCA-4164", "move", "192.0.2.9", "--yes")
	was := map[int]string{1: s.Lab.Node(1).Address.String(), 2: s.Lab.Node(2).Address.String()}
	other := map[int]string{1: s.beside(51), 2: s.beside(52)}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the worker moves", func(t *testing.T) { s.moves(t, 2, was[2], other[2], formerKept) }},
		{"the control plane moves, the worker follows", func(t *testing.T) { s.controlPlaneMoves(t, was[1], other[1], formerKept) }},
		{"the control plane moves back", func(t *testing.T) { s.controlPlaneMoves(t, other[1], was[1], formerLost) }},
		{"the worker moves back", func(t *testing.T) { s.moves(t, 2, other[2], was[2], formerLost) }},
		{"the data of the only member is damaged", s.onlyMemberDamaged},
	} {
		if !t.Run(step.name, step.run) {
			break
		}
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// beside returns an address of the lab's network that no machine has.
func (s *suite) beside(last int) string {
	octets := s.Lab.Node(1).Address.As4()
	return fmt.Sprintf("%d.%d.%d.%d", octets[0], octets[1], octets[2], last)
}

// former is what happens to the former address of a machine that moves.
type former int

const (
	formerKept former = iota // until it has moved; the command is killed at every step
	formerLost               // before it moves, while everything runs
)

// moves changes the address of a machine and removes the former one.
func (s *suite) moves(t *testing.T, node int, from, to string, f former) {
	t.Helper()
	s.address(t, node, "add", to)
	if f == formerLost {
		s.address(t, node, "del", from)
	} else {
		s.killedMove(t, node, "move", to, "--yes")
	}
	s.moved(t, node, "move", to, "--yes")
	if f == formerKept {
		s.address(t, node, "del", from)
	}
	s.nothingAt(t, node, from)
	s.works(t)
}

func (s *suite) controlPlaneMoves(t *testing.T, from, to string, f former) {
	t.Helper()
	s.address(t, 1, "add", to)
	s.refused(t, 2, "OCA-4166", "move", "--follow", s.beside(99), "--yes")
	if f == formerLost {
		s.address(t, 1, "del", from)
	} else {
		s.killedMove(t, 1, "move", to, "--yes")
	}
	s.moved(t, 1, "move", to, "--yes")
	if f == formerKept {
		s.killedMove(t, 2, "move", "--follow", to, "--yes")
	}
	s.moved(t, 2, "move", "--follow", to, "--yes")
	if f == formerKept {
		s.address(t, 1, "del", from)
	}
	for _, node := range []int{1, 2} {
		s.nothingAt(t, node, from)
	}
	s.works(t)
	settings, err := s.Kubectl(t.Context(), "get", "configmaps", "-n", "kube-system", "-o", "yaml")
	if err != nil || strings.Contains(settings, from+":") {
		t.Errorf("ConfigMaps hold the former address: %v", err)
	}
	if e := s.etcdStatus(t, 1); len(e.Problems) > 0 || len(e.Members) != 1 {
		t.Errorf("etcd status: %+v", e)
	}
}

// address adds or removes an address of a machine, as its administrator does. A new one becomes the preferred address.
func (s *suite) address(t *testing.T, node int, verb, address string) {
	t.Helper()
	script := fmt.Sprintf("sysctl -qw net.ipv4.conf.eth0.promote_secondaries=1; ip address %s %s/24 dev eth0; ip route show default", verb, address)
	if out, err := s.quietly(t, node, "sh", "-ec", script); err != nil || !strings.Contains(out, "default") {
		t.Fatalf("ip address %s %s on node %d: %s, %v", verb, address, node, out, err)
	}
}

// moved runs the command twice: the second time there is nothing to do.
func (s *suite) moved(t *testing.T, node int, argv ...string) {
	t.Helper()
	err := s.Timed(fmt.Sprintf("node %d: ocadm %s", node, strings.Join(argv[:len(argv)-1], " ")), func() error {
		_, err := s.On(t.Context(), node, append([]string{scenario.Ocadm}, argv...)...)
		return err
	})
	require.NoError(t, err)
	out, err := s.On(t.Context(), node, append([]string{scenario.Ocadm}, append(argv, "-o", "json")...)...)
	var again struct{ Steps []struct{ Name string } }
	if err == nil {
		err = json.Unmarshal([]byte(out), &again)
	}
	if err != nil || len(again.Steps) > 0 {
		t.Errorf("again: %s, %v", out, err)
	}
}

// killedMove kills the command before and after each of its steps. Each run continues where the previous one was killed.
func (s *suite) killedMove(t *testing.T, node int, argv ...string) {
	t.Helper()
	dry, err := s.On(t.Context(), node, append([]string{scenario.Ocadm}, append(argv, "--dry-run", "-o", "json")...)...)
	type planned struct{ Name, State string }
	var plan struct{ Steps []planned }
	if err == nil {
		err = json.Unmarshal([]byte(dry), &plan)
	}
	if err != nil || len(plan.Steps) < 4 {
		t.Fatalf("the plan: %s, %v", dry, err)
	}
	steps := slices.DeleteFunc(plan.Steps, func(p planned) bool { return p.State != string(workflow.Planned) || p.Name == "finish" })
	for i, step := range steps {
		for _, event := range []workflow.EventType{workflow.PhaseStarted, workflow.PhaseDone} {
			if event == workflow.PhaseStarted && step.Name == "pod-network" {
				continue // it may be done already, by the pods that were restarted before
			}
			if late := s.killAtEntry(t, node, point{event: event, phase: step.Name}, append([]string{scenario.Ocadm}, argv...)...); late != "" {
				if i < len(steps)-1 {
					t.Fatalf("it ended before it was killed at %s of %s: %s", event, step.Name, late)
				}
				t.Logf("it ended at %s of %s", event, step.Name)
				return // there is nothing left to kill
			}
			t.Logf("killed: %s of %s", event, step.Name)
		}
	}
}

// nothingAt checks that an address is not in a machine's files with addresses. Certificates keep it, and so does the pod of the depot, which issues
// one; records describe the past.
func (s *suite) nothingAt(t *testing.T, node int, address string) {
	t.Helper()
	script := fmt.Sprintf(`grep -srlwF --exclude=ocadm-depot.yaml %s /etc/kubernetes /etc/ocadm /etc/containerd /etc/yunion /var/lib/kubelet/kubeadm-flags.env /var/lib/kubelet/config.yaml /run/flannel; true`, address)
	if out, err := s.quietly(t, node, "sh", "-c", script); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("node %d: files hold %s: %s, %v", node, address, out, err)
	}
}

// works checks that both nodes are Ready, that a pod on the worker reaches a Service, and that the API server reaches both kubelets.
func (s *suite) works(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Kubectl(ctx, "wait", "node", "--all", "--for=condition=Ready", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	for _, workload := range []string{"deployment/coredns", "daemonset/kube-proxy"} {
		if _, err := s.Kubectl(ctx, "-n", "kube-system", "rollout", "status", workload, "--timeout=240s"); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"node1", "node2"} { // from the worker the pods of the control plane are reached through the pod network
		if _, err := s.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/healthz"); err != nil {
			t.Errorf("the kubelet of %s: %v", node, err)
		}
	}
	script := `set -- $(kubectl --kubeconfig /etc/kubernetes/kubelet.conf get --raw /healthz); test "$1" = ok
timeout 60 sh -c 'until bash -c "exec 3<>/dev/tcp/10.96.0.10/53" 2>/dev/null; do sleep 1; done'`
	if out, err := s.quietly(t, 2, "sh", "-ec", script); err != nil {
		t.Errorf("from the worker: %s, %v", out, err)
	}
}

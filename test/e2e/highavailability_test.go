// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/phases/ha"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestHighAvailability creates a cluster of one control-plane node and a worker, adds a virtual address and two more control-plane nodes, and takes
// each part down. Then it kills the machine that holds the virtual address, as in a power failure, and checks that the address answers again. The
// machine returns, and another is removed and joined again.
func TestHighAvailability(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_HA") == "" {
		t.Skip("make ha runs it: it takes minutes")
	}
	l := machines(t, 4)
	s := newSuite(t, l)
	ctx := t.Context()
	require.NoError(t, s.Init(ctx, "--ingress", "none", "--skip-phases", "database,operator,cloud-settings,operator-ready,cloud"))
	require.NoError(t, s.Join(ctx, 4))
	s.enabled(t, 4)
	s.refused(t, 1, "OCA-4170", "ha", "test", "--yes")
	for _, node := range []int{2, 3} {
		require.NoError(t, s.JoinControlPlane(ctx, 1, node))
	}
	if got := s.whole(t, 1); len(got.NotRedundant) > 0 { // the joins move a pod of CoreDNS
		t.Errorf("after the joins, one node still holds: %q", got.NotRedundant)
	}
	node := 1
	if os.Getenv("OCADM_TEST_HA") != "address" {
		node = s.outages(t)
	}
	s.virtualAddressMoves(t, node, 4, s.VirtualAddress(), s.beside(53), true)
	s.virtualAddressMoves(t, node, 4, s.beside(53), s.VirtualAddress(), false)
}

// outages takes parts of the control plane down, loses a machine and replaces it. It returns a node that was never lost.
func (s *suite) outages(t *testing.T) (other int) {
	t.Helper()
	ctx := t.Context()
	s.haTested(t)
	before := s.whole(t, 1)
	s.nodePort(t, 1)
	holder, err := strconv.Atoi(strings.TrimPrefix(before.Holder, "node"))
	if err != nil {
		t.Fatalf("%q holds the virtual address", before.Holder)
	}
	limited, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	outage, err := s.Outage(limited, time.Minute, func() error { return s.Lab.Node(holder).Kill(ctx) })
	if err != nil || outage == 0 {
		t.Fatalf("the machine with the address is gone: outage %s, %v", outage, err)
	}
	t.Logf("API outage after the machine with the virtual address was lost: %.1f s (goal %.0f s)", outage.Seconds(), ha.APIGoal.Seconds())
	other = holder%3 + 1
	after, err := s.HAStatus(ctx, other)
	if err != nil || after.Holder == "" || after.Holder == before.Holder || after.Tolerates != 0 {
		t.Errorf("after the loss of %s: %+v, %v", before.Holder, after, err)
	}
	s.nodePort(t, other)
	require.NoError(t, s.Lab.Node(holder).Start(ctx))
	s.whole(t, other)
	s.replace(t, other, holder)
	s.forgotten(t, other, holder)
	return other
}

// virtualAddressMoves changes the virtual address of the control plane, with a worker that follows. The command is killed at every step, and reversed once.
func (s *suite) virtualAddressMoves(t *testing.T, node, worker int, from, to string, killed bool) {
	t.Helper()
	ctx := t.Context()
	move := []string{"move", "--virtual-address", to, "--yes"}
	if killed {
		s.refused(t, node, "OCA-4167", "move", "--virtual-address", s.Lab.Node(1).Address.String(), "--yes")
		s.refused(t, node, "OCA-2011", "move", "--virtual-address", s.Lab.Node(worker).Address.String(), "--yes")
		s.killedMove(t, node, move...)
		for _, turn := range []string{from, to} {
			if _, err := s.On(ctx, node, scenario.Ocadm, "move", "--virtual-address", turn, "--yes"); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := s.On(ctx, node, append([]string{scenario.Ocadm}, move...)...)
	if err != nil || !strings.Contains(out, fmt.Sprintf("on node%d: ocadm move --follow %s", worker, to)) {
		t.Fatalf("%s, %v", out, err)
	}
	if got, err := s.HAStatus(ctx, node); err != nil || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], from) {
		t.Errorf("while both are up: %+v, %v", got, err)
	}
	s.moved(t, worker, "move", "--follow", to, "--yes")
	s.moved(t, node, move...)
	s.nothingAt(t, worker, from)
	for _, n := range []int{1, 2, 3} {
		script := fmt.Sprintf("grep -rlwF %s /etc/kubernetes/*.conf /etc/ocadm /etc/containerd /var/lib/ocadm/vip; ip -o address show to %s; true", from, from)
		if left, err := s.quietly(t, n, "sh", "-c", script); err != nil || strings.TrimSpace(left) != "" {
			t.Errorf("node %d has %s: %s, %v", n, from, left, err)
		}
	}
	if got := s.whole(t, node); got.Address != to {
		t.Errorf("the virtual address is %s", got.Address)
	}
	if out, err := s.On(ctx, node, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "wait", "node", "--all", "--for=condition=Ready", "--timeout=120s"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

// enabled adds a virtual address to the cluster, killed at some moments, and has a worker follow. A second time there is nothing to do.
func (s *suite) enabled(t *testing.T, worker int) {
	t.Helper()
	ctx := t.Context()
	s.refused(t, 1, "OCA-4130", "token", "create", "--print-join-command", "--control-plane")
	s.refused(t, 1, "OCA-2011", "ha", "enable", "--high-availability-vip", s.Lab.Node(worker).Address.String(), "--yes")
	enable := []string{"ha", "enable", "--high-availability-vip", s.VirtualAddress(), "--yes"}
	for _, moment := range []string{"0.5", "1", "2", "4", "5"} {
		if _, err := s.quietly(t, 1, append([]string{"timeout", "-s", "KILL", moment, scenario.Ocadm}, enable...)...); err == nil {
			t.Logf("ha enable ended within %s s", moment)
			break
		}
	}
	if _, err := s.On(ctx, 1, append([]string{scenario.Ocadm}, enable...)...); err != nil {
		t.Fatal(err)
	}
	if out, err := s.On(ctx, 1, append([]string{scenario.Ocadm}, enable...)...); err != nil || !strings.Contains(out, "Nothing to do: the endpoint is "+s.VirtualAddress()) {
		t.Errorf("again: %s, %v", out, err)
	}
	s.moved(t, worker, "move", "--follow", s.VirtualAddress(), "--yes")
	s.nothingAt(t, worker, s.Lab.Node(1).Address.String())
	for _, check := range [][]string{{"-n", "kube-system", "get", "cm", "kubeadm-config", "kube-proxy", "-o", "yaml"}, {"-n", "kube-public", "get", "cm", "cluster-info", "-o", "yaml"},
		{"config", "view"}} {
		out, err := s.Kubectl(ctx, check...)
		if err != nil || !strings.Contains(out, s.VirtualAddress()+":6443") || strings.Contains(out, s.Lab.Node(1).Address.String()+":6443") {
			t.Errorf("%q: %s, %v", check, out, err)
		}
	}
}

// haTested has ocadm take parts of the control plane down. The first run is killed during a fault; the second reverts that first.
func (s *suite) haTested(t *testing.T) {
	t.Helper()
	test := []string{scenario.Ocadm, "ha", "test", "--yes", "-o", "json"}
	if out, err := s.On(t.Context(), 1, append([]string{"timeout", "-s", "KILL", "20"}, test...)...); err == nil {
		t.Errorf("the test ended before it was killed: %s", out)
	}
	out, err := s.On(t.Context(), 1, test...)
	status, known := 0, true
	if err != nil {
		var exit *exec.ExitError
		if known = errors.As(err, &exit); known {
			status = exit.ExitCode()
		}
	}
	got, jerr := parseHATested(out)
	if jerr != nil || !known {
		t.Fatalf("ha test: %s, %v", out, errors.Join(err, jerr))
	}
	for _, line := range got.Lines() {
		t.Log(line)
	}
	for _, wrong := range got.Wrong(status) {
		t.Errorf("ha test: %s", wrong)
	}
	if t.Failed() {
		t.Log(err)
	}
	for node := 1; node <= 3; node++ {
		left, err := s.On(t.Context(), node, "sh", "-c", "ip rule show pref 1; cat /proc/sys/net/ipv4/conf/all/arp_ignore; systemctl is-active ocadm-ha-test; grep -l 'State:.*stopped' /proc/[0-9]*/status; true")
		if err != nil || strings.TrimSpace(left) != "0\ninactive" {
			t.Errorf("left on node %d: %q, %v", node, left, err)
		}
	}
	for _, object := range []string{"pod", "configmap"} {
		if left, err := s.Kubectl(t.Context(), "-n", "kube-system", "get", object, "ocadm-ha-test", "--ignore-not-found", "-o", "name"); err != nil || left != "" {
			t.Errorf("left: %s, %v", left, err)
		}
	}
}

// replace removes a control-plane node and joins its machine again.
func (s *suite) replace(t *testing.T, from, node int) {
	t.Helper()
	if _, err := s.On(t.Context(), node, scenario.Ocadm, "reset", "--yes"); err != nil {
		t.Fatal(err)
	}
	got, err := s.HAStatus(t.Context(), from)
	if err != nil || len(got.Nodes) != 2 {
		t.Errorf("after reset: %+v, %v", got, err)
	}
	require.NoError(t, s.JoinControlPlane(t.Context(), from, node))
	s.whole(t, from)
}

// forgotten resets a machine that reaches neither its cluster nor, without a certificate, its own etcd: only with --abandon-etcd, as it may be the last one with
// the data. Its member stays. The join replaces the member.
func (s *suite) forgotten(t *testing.T, from, node int) {
	t.Helper()
	ctx := t.Context()
	name := fmt.Sprintf("node%d", node)
	if out, err := s.quietly(t, node, "sh", "-ec", "sed -i 's|server: .*|server: https://127.0.0.1:1|; "+
		"s|authority-data: .*|authority-data: '$(base64 -w 0 /etc/kubernetes/pki/front-proxy-ca.crt)'|' /etc/kubernetes/admin.conf; "+ // nor its own API server
		"rm /etc/kubernetes/pki/etcd/healthcheck-client.crt"); err != nil {
		t.Fatalf("cutting node %d off: %s, %v", node, out, err)
	}
	s.refused(t, node, "OCA-4155", "reset", "--yes")
	if _, err := s.On(ctx, node, scenario.Ocadm, "reset", "--yes", "--abandon-etcd"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.HAStatus(ctx, from); err != nil || !strings.Contains(strings.Join(got.Problems, "\n"), "API server of node "+name+" does not answer") {
		t.Errorf("after a reset without the cluster: %+v, %v", got, err)
	}
	if _, err := s.On(ctx, from, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "delete", "node", name); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, s.JoinControlPlane(ctx, from, node))
	s.whole(t, from)
}

// nodePort checks that a Service is reachable at the virtual address. kubectl runs on the given node.
func (s *suite) nodePort(t *testing.T, from int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.NodePort(ctx, from); err != nil {
		t.Error(err)
	}
}

// whole waits until three control-plane nodes work and one of them holds the virtual address, if there is one.
func (s *suite) whole(t *testing.T, node int) scenario.HAStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		got, err := s.HAStatus(ctx, node)
		if err == nil && len(got.Nodes) == 3 && (got.Holder != "" || got.Address == "") && len(got.Problems) == 0 && got.Tolerates == 1 {
			return got
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the control plane is not whole: %+v, %v", got, err)
		case <-time.After(2 * time.Second):
		}
	}
}

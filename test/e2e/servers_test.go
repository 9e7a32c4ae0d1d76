// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// agents checks that every agent of a compute node has a ready pod on node 2, and none on node 1.
func (s *suite) agents(t *testing.T) {
	for _, name := range []string{
		"host", "host-image", "host-health", "host-sdnagent", "host-ovs-image", "host-ovsdb-server", "host-ovs-vswitchd", "host-ovn-controller", "host-deployer",
	} {
		want := []string{"node2=True"}
		if name == "host-deployer" { // it also serves glance on controller nodes
			want = []string{"node1=True", "node2=True"}
		}
		s.until(t, fmt.Sprintf("pods of %s: %v", name, want), func(ctx context.Context) (bool, string, error) {
			out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pods", "-l", "app.kubernetes.io/component="+name, "-o",
				`jsonpath={range .items[*]}{.spec.nodeName}={.status.conditions[?(@.type=="Ready")].status} {end}`)
			where := strings.Fields(out)
			slices.Sort(where)
			return slices.Equal(where, want), out, err
		})
	}
}

// servers checks that a program that the host agent started through the executor outlives the agent's pod, a roll of the agent, and the executor.
func (s *suite) servers(t *testing.T) {
	ctx := t.Context()
	cloud, err := s.Session(ctx)
	require.NoError(t, err)
	started := s.start(t, cloud, "survivor")
	agent := []string{"-n", "onecloud", "rollout", "status", "daemonset", "default-host", "--timeout=600s"}
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"the agent's pod is deleted", func() error {
			_, err := s.Kubectl(ctx, "-n", "onecloud", "delete", "pod", "-l", "app.kubernetes.io/component=host", "--wait=true", "--timeout=600s")
			return err
		}},
		{"the agent rolls", func() error { _, err := s.On(ctx, 1, "ocadm", "component", "restart", "host"); return err }},
		{"the executor restarts", func() error { _, err := s.On(ctx, 2, "systemctl", "restart", "yunion-executor"); return err }},
		{"the executor is killed", func() error {
			_, err := s.On(ctx, 2, "systemctl", "kill", "--kill-whom=main", "--signal=KILL", "yunion-executor")
			return err
		}},
		{"the kubelet and containerd restart", func() error { _, err := s.On(ctx, 2, "systemctl", "restart", "containerd", "kubelet"); return err }},
	} {
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if _, err := s.Kubectl(ctx, agent...); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		s.lives(t, started, c.what)
	}
	// The new agent still controls it. The agents' client dials for half a minute, in which systemd restarts a killed executor.
	s.until(t, "the executor", func(ctx context.Context) (bool, string, error) {
		if err := cloud.StopServer(ctx, 2, "survivor"); err != nil && s.born(t, started.pid) != "" { // it may stop it but answer too late
			return false, "", err
		}
		return true, "", nil
	})
	// This one is left until node 1 is reset.
	s.left = s.start(t, cloud, "left")
}

// process is a process on node 2 that the executor started.
type process struct{ pid, born string }

func (s *suite) start(t *testing.T, cloud *scenario.Session, id string) process {
	t.Helper()
	pid, err := cloud.StartServer(t.Context(), 2, id)
	require.NoError(t, err)
	p := process{pid, s.born(t, pid)}
	if p.born == "" {
		t.Fatalf("process %s does not run on node 2", pid)
	}
	return p
}

// born returns the start time of a process on node 2, empty if it does not exist.
func (s *suite) born(t *testing.T, pid string) string {
	t.Helper()
	out, err := s.On(t.Context(), 2, "sh", "-c", "ps -o lstart= -p "+pid+"; true")
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// lives checks that a process has run without interruption.
func (s *suite) lives(t *testing.T, p process, after string) {
	t.Helper()
	if now := s.born(t, p.pid); now != p.born {
		t.Fatalf("%s: process %s was started at %s, now it is %q", after, p.pid, p.born, now)
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// agents: every agent of a compute node has a pod on node 2 that is ready, and none of them on node 1.
func (s *suite) agents(t *testing.T) {
	for _, name := range []string{
		"host", "host-image", "host-health", "host-sdnagent", "host-ovsdb-server", "host-ovs-vswitchd", "host-ovn-controller", "host-deployer",
	} {
		out, err := s.Kubectl(t.Context(), "-n", "onecloud", "get", "pods", "-l", "app.kubernetes.io/component="+name, "-o",
			`jsonpath={range .items[*]}{.spec.nodeName}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err != nil {
			t.Fatal(err)
		}
		where := strings.Fields(out)
		slices.Sort(where)
		want := []string{"node2=True"}
		if name == "host-deployer" { // it also serves glance on controller nodes
			want = []string{"node1=True", "node2=True"}
		}
		if !slices.Equal(where, want) {
			t.Errorf("pods of %s: %v, want %v", name, where, want)
		}
	}
}

// servers: a program that the host agent started through the executor outlives the agent's pod, a roll of the agent, and the executor.
func (s *suite) servers(t *testing.T) {
	ctx := t.Context()
	cloud, err := s.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := cloud.StartServer(ctx, 2, "survivor")
	if err != nil {
		t.Fatal(err)
	}
	born := func() string {
		out, err := s.On(ctx, 2, "ps", "-o", "lstart=", "-p", pid)
		if err != nil {
			return "gone"
		}
		return strings.TrimSpace(out)
	}
	before := born()
	if before == "gone" {
		t.Fatalf("process %s does not run on node 2", pid)
	}
	agent := []string{"-n", "onecloud", "rollout", "status", "daemonset", "default-host", "--timeout=180s"}
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"the agent's pod is deleted", func() error {
			_, err := s.Kubectl(ctx, "-n", "onecloud", "delete", "pod", "-l", "app.kubernetes.io/component=host", "--wait=true", "--timeout=120s")
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
		if after := born(); after != before {
			t.Fatalf("%s: process %s was started at %s, now it is %s", c.what, pid, before, after)
		}
	}
	// The new agent still commands it. The agents' client dials for half a minute, in which systemd starts a killed executor again.
	answers, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = wait.Until(answers, "the executor", time.Second, func(ctx context.Context) (bool, string, error) {
		if err := cloud.StopServer(ctx, 2, "survivor"); err != nil {
			return false, err.Error(), nil //nolint:nilerr // the reason to wait on
		}
		return true, "", nil
	}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
}

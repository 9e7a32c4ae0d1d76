// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// shortLived is the lifetime of certificates in TestCertificates. The operator renews them when a third of it is left.
const shortLived = "15m"

// renewing is a cluster whose operator renews certificates that last minutes.
type renewing struct {
	*suite
	nodes int
	// ends holds all expiry times seen, by node and certificate.
	ends map[string]map[string]bool
	// ran holds the start times of the containers of the API servers and of etcd.
	ran string
}

// TestCertificates has the operator renew short-lived certificates repeatedly, while clients send requests to the API server and the console's
// gateway. With several control-plane nodes no request may fail. With one, failures are printed.
func TestCertificates(t *testing.T) {
	needRoot(t)
	nodes, err := strconv.Atoi(os.Getenv("OCADM_TEST_CERTIFICATES"))
	if err != nil {
		t.Skip("make certificates runs it: it takes half an hour")
	}
	duration, err := time.ParseDuration(os.Getenv("OCADM_TEST_DURATION"))
	require.NoError(t, err)
	s := &renewing{suite: newSuite(t, machines(t, nodes)), nodes: nodes, ends: map[string]map[string]bool{}}
	s.begin(t)
	ctx := t.Context()
	polls, err := s.Polls(ctx, 1)
	require.NoError(t, err)
	polls = append(slices.DeleteFunc(polls, func(p scenario.Poll) bool { return !strings.HasPrefix(p.Name, "apigateway") }), s.apiPoll(t))
	for i := range polls {
		polls[i].Every = 250 * time.Millisecond
		polls[i].URL = strings.Replace(polls[i].URL, s.Lab.Node(1).Address.String(), s.endpoint(), 1) // the name in the console's certificate
	}
	s.ran = s.containers(t)
	polled, err := s.Poll(ctx, polls, func() error { return s.watch(ctx, duration) })
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	for _, p := range polled {
		t.Logf("%d control-plane nodes, %s: %s", nodes, duration, p)
		for _, f := range p.Failures {
			t.Logf("  %s", f)
		}
		if p.Failed > 0 && nodes > 1 {
			t.Errorf("%s: %d requests failed", p.Name, p.Failed)
		}
	}
	s.judge(t, duration)
}

// begin creates the cluster and a small cloud.
func (s *renewing) begin(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	args := []string{"--certificate-validity-period", shortLived, "--ingress", "none", "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"}
	if s.nodes > 1 {
		args = append(args, "--high-availability-vip", s.VirtualAddress())
	}
	require.NoError(t, s.Init(ctx, args...))
	for node := 2; node <= s.nodes; node++ {
		require.NoError(t, s.joinControlPlane(t, node))
	}
	s.must(t, scenario.Ocadm, "cluster", "create", "--version", version)
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "patch", "oc", "default", "--type=merge", "-p", without(t, smallCloud))
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "wait", "oc/default", "--for=condition=Ready", "--timeout=600s")
}

// apiPoll returns a poll of the API server at the cluster's endpoint that accepts only valid certificates.
func (s *renewing) apiPoll(t *testing.T) scenario.Poll {
	t.Helper()
	to := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, s.Lab.Node(1).CopyOut(t.Context(), "/etc/kubernetes/pki/ca.crt", to))
	raw, err := os.ReadFile(to)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(raw)
	return scenario.Poll{Name: "API server", Method: http.MethodGet, URL: "https://" + s.endpoint() + ":6443/readyz", Pool: pool}
}

// endpoint returns the address of the cluster.
func (s *renewing) endpoint() string {
	if s.nodes > 1 {
		return s.VirtualAddress()
	}
	return s.Lab.Node(1).Address.String()
}

// watch records the expiry times of all certificates until the time is over.
func (s *renewing) watch(ctx context.Context, duration time.Duration) error {
	end := time.NewTimer(duration)
	defer end.Stop()
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		for node := 1; node <= s.nodes; node++ {
			out, _, err := s.Lab.Node(node).Exec(ctx, scenario.Ocadm, "certs", "check", "--days", "0", "-o", "json")
			var list []struct{ Name, NotAfter, State string }
			if json.Unmarshal([]byte(out), &list) != nil {
				return fmt.Errorf("certs check on node %d: %w: %s", node, err, out)
			}
			for _, c := range list {
				if c.State == "expired" {
					return fmt.Errorf("certificate %s of node %d has expired", c.Name, node)
				}
				key := fmt.Sprintf("node%d %s", node, c.Name)
				if s.ends[key] == nil {
					s.ends[key] = map[string]bool{}
				}
				s.ends[key][c.NotAfter] = true
			}
		}
		select {
		case <-end.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// containers returns the start times of the containers of etcd and of the API servers.
func (s *renewing) containers(t *testing.T) string {
	t.Helper()
	return s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-system", "get", "pods", "-l", "component in (etcd, kube-apiserver)", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID}{"\n"}{end}`)
}

// judge checks that everything was renewed as often as its lifetime requires, without a restart of etcd or an API server.
func (s *renewing) judge(t *testing.T, duration time.Duration) {
	t.Helper()
	const everyAtMost = 10 * time.Minute // two thirds of the lifetime, and a little more; kubelets renew theirs later
	want := int(duration / everyAtMost)
	for _, key := range slices.Sorted(maps.Keys(s.ends)) {
		if name := strings.Fields(key)[1]; name == "ca" || name == "etcd-ca" || name == "front-proxy-ca" || name == "depot" || strings.HasPrefix(name, "kubelet-") {
			continue
		}
		t.Logf("%s was renewed %d times", key, len(s.ends[key])-1)
		if got := len(s.ends[key]) - 1; got < want {
			t.Errorf("%s was renewed %d times in %s, not %d", key, got, duration, want)
		}
	}
	if now := s.containers(t); now != s.ran {
		t.Errorf("containers were replaced:\n%s\nbecame\n%s", s.ran, now)
	}
	t.Logf("operations\n%s", s.must(t, scenario.Ocadm, "operation", "list"))
	condition := s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "get", "oc", "default", "-o",
		`jsonpath={.status.conditions[?(@.type=="NodeCertificates")]}`)
	t.Logf("condition %s", condition)
	if !strings.Contains(condition, `"status":"True"`) {
		t.Errorf("condition NodeCertificates: %s", condition)
	}
}

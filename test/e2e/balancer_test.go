// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestLoadBalancer creates a cluster of three control-plane nodes behind the user's own load balancer, and tests days that a virtual address makes
// easier: no node finds the others through the load balancer.
func TestLoadBalancer(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_BALANCER") == "" {
		t.Skip("make balancer runs it: it takes minutes")
	}
	s := newSuite(t, machines(t, 3))
	s.threeControlPlanes(t, "--control-plane-endpoint", balance(t, s.Lab, len(controlPlanes)))
	s.walk(t, nil,
		step{"the first node is damaged, and the others run", s.restoreRefused},
		step{"a reset would end the cluster", s.resetRefused},
		step{"a machine is lost and replaced", s.replacedBehind},
	)
}

// restoreRefused damages the data of the first node, whose manifest names no other member. It must find the others anyway.
func (s *suite) restoreRefused(t *testing.T) {
	s.damage(t, 1)
	s.refused(t, 1, "OCA-4151", "etcd", "restore", "--yes")
	s.refused(t, 1, "OCA-4151", "etcd", "restore", "--alone", "--yes")
	if _, err := s.On(t.Context(), 1, scenario.Ocadm, "etcd", "rejoin", "--yes"); err != nil {
		t.Fatal(err)
	}
	s.whole(t, 1)
}

// resetRefused checks that a node that etcd needs, because another one is off, cannot be reset.
func (s *suite) resetRefused(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, s.Lab.Node(3).Kill(ctx))
	s.refused(t, 2, "OCA-4155", "reset", "--yes")
	if out, err := s.On(ctx, 2, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes", "-o", "name"); err != nil || strings.Count(out, "node/") != 3 {
		t.Errorf("after a reset that was refused: %s, %v", out, err)
	}
}

// replacedBehind replaces the machine that is off.
func (s *suite) replacedBehind(t *testing.T) {
	s.removeNode(t, 1, "node3")
	s.comesBack(t, 3)
}

// balance forwards the ports of the API server and of the depot to the first healthy machine, as a load balancer with health checks does. It returns the endpoint.
func balance(t *testing.T, lab *machine.Lab, nodes int) string {
	t.Helper()
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	host := lab.Host().String()
	for _, port := range []string{"6443", "6444"} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
		require.NoError(t, err)
		context.AfterFunc(ctx, func() { _ = l.Close() })
		open.Go(func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				open.Go(func() { forward(ctx, client, lab, nodes, port) })
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		open.Wait()
	})
	return fmt.Sprintf("%s:6443", host)
}

// ready reports whether an API server reaches its etcd.
func ready(ctx context.Context, at string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a check
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at+"/livez", nil)
	if err != nil {
		return false
	}
	answer, err := c.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func forward(ctx context.Context, client net.Conn, lab *machine.Lab, nodes int, port string) {
	defer client.Close()
	for node := 1; node <= nodes; node++ {
		at := net.JoinHostPort(lab.Node(node).Address.String(), port)
		if port == "6443" && !ready(ctx, at) {
			continue
		}
		server, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at)
		if err != nil {
			continue
		}
		defer server.Close()
		defer context.AfterFunc(ctx, func() { _ = server.Close(); _ = client.Close() })()
		done := make(chan struct{}, 2)
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(way[0], way[1]) // either side may end it
				done <- struct{}{}
			}()
		}
		<-done
		return
	}
}

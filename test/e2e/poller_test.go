// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// earlier is the release from which a cloud is updated to version.
const earlier = "v4.0.3"

// asked lists the components that a client of the poller needs, and those that run virtual machines.
var asked = []string{"etcd", "keystone", "region", "scheduler", "glance", "yunionconf", "apigateway", "climc", "host"}

// TestPoller sends requests to keystone and apigateway twenty times a second while the cloud is updated and rolled back: with one replica of each
// service, and with two on two nodes. With two replicas no request may fail. A virtual machine outlives all of it.
func TestPoller(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_POLLER") == "" {
		t.Skip("make poller runs it: it takes a quarter of an hour")
	}
	s := newPolled(t)
	cloud, err := s.Session(t.Context())
	require.NoError(t, err)
	server := s.start(t, cloud, "survivor")
	half := os.Getenv("OCADM_TEST_POLLER") // "ha" or "small" runs only one half
	if half != "ha" {
		for _, p := range s.thereAndBack(t, "one copy") {
			if p.Failed > 0 {
				t.Logf("with one copy: %s", p)
			}
		}
		s.lives(t, server, "update and rollback")
	}
	if half == "small" {
		return
	}
	s.update(t, "to profile ha", "cluster", "update", "--profile", "ha", "--wait")
	s.placed(t)
	for _, p := range s.thereAndBack(t, "two copies") {
		if p.Failed > 0 {
			t.Errorf("with two copies: %s", p)
		}
	}
	s.lives(t, server, "update and rollback with two copies")
}

// newUpdatable creates machines with a bundle of the earlier release and of version.
func newUpdatable(t *testing.T, o machine.Options) *suite {
	t.Helper()
	o.Logf = logf(t)
	var err error
	o.Ocadm, o.Bundle, err = scenario.BuildFor(t.Context(), repository, assemble.Options{CloudVersion: earlier, More: []string{version}, Logf: o.Logf})
	require.NoError(t, err)
	return newSuite(t, up(t, o))
}

// newPolled creates a cloud of the earlier release on two nodes that both run its services.
func newPolled(t *testing.T) *suite {
	t.Helper()
	ctx := t.Context()
	s := newUpdatable(t, machine.Options{Nodes: 2})
	db, err := mariadb.Start(ctx, t.TempDir(), mariadb.Options{Addr: s.Lab.Host().String() + ":0"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	require.NoError(t, s.Init(ctx, append(s.database(t, 1), "--ingress", "none")...))
	require.NoError(t, s.Join(ctx, 2))
	s.must(t, scenario.Ocadm, "node", "enable-onecloud-controller", "node2")
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "patch", "deployment", "onecloud-operator", "--type=json",
		"-p", `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--settle=5s"}]`)
	s.small(t, earlier, asked...)
	return s
}

// small creates a cloud of a release with few components, and waits for it.
func (s *suite) small(t *testing.T, release string, components ...string) {
	t.Helper()
	s.must(t, scenario.Ocadm, "cluster", "create", "--version", release)
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "patch", "oc", "default", "--type=merge", "-p", without(t, components))
	if _, err := s.Kubectl(t.Context(), "-n", "onecloud", "wait", "oc/default", "--for=condition=Ready", "--timeout=900s"); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
}

// without returns a patch that disables all components except some.
func without(t *testing.T, keep []string) string {
	t.Helper()
	spec, components := map[string]any{}, map[string]any{}
	for _, c := range catalog.All() {
		switch {
		case slices.Contains(keep, c.Name) || strings.Contains(c.SpecKey, "."):
		case c.SpecKey == "":
			components[c.Name] = map[string]any{"disable": true}
		default:
			spec[c.SpecKey] = map[string]any{"disable": true}
		}
	}
	spec["components"] = components
	raw, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(t, err)
	return string(raw)
}

func (s *suite) must(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := s.On(t.Context(), 1, argv...)
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	return out
}

// thereAndBack updates the cloud and rolls it back while clients send requests.
func (s *suite) thereAndBack(t *testing.T, what string) []scenario.Polled {
	t.Helper()
	polled := s.update(t, what+", update", "cluster", "update", "--version", version, "--wait")
	return append(polled, s.update(t, what+", rollback", "cluster", "rollback", "--keep-databases", "--wait")...)
}

// update runs an ocadm command while clients send requests, and prints the results of these.
func (s *suite) update(t *testing.T, what string, argv ...string) []scenario.Polled {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	polls, err := s.Polls(ctx, 1)
	require.NoError(t, err)
	began := time.Now()
	polled, err := s.Poll(ctx, polls, func() error {
		_, err := s.On(ctx, 1, append([]string{scenario.Ocadm}, argv...)...)
		return err
	})
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	for _, p := range polled {
		t.Logf("%s (%.0f s): %s", what, time.Since(began).Seconds(), p)
		for _, f := range p.Failures {
			t.Logf("  %s", f)
		}
	}
	if slices.ContainsFunc(polled, func(p scenario.Polled) bool { return p.Failed > 0 }) {
		s.explain(t)
	}
	return polled
}

// placed checks that both nodes run a replica of each service with two, after the former pods have ended.
func (s *suite) placed(t *testing.T) {
	t.Helper()
	for _, name := range []string{"keystone", "apigateway"} {
		eventually(t, name+" on both nodes", func() error {
			out, err := s.Kubectl(t.Context(), "-n", "onecloud", "get", "pods", "-l", "app.kubernetes.io/component="+name, "-o", `jsonpath={range .items[*]}{.spec.nodeName} {end}`)
			where := strings.Fields(out)
			slices.Sort(where)
			if err == nil && !slices.Equal(where, []string{"node1", "node2"}) {
				err = fmt.Errorf("it runs on %v", where)
			}
			return err
		})
	}
}

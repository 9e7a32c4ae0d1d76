// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// preflight runs the checks of init on a fresh machine, and prints how long they took.
func (s *suite) preflight(t *testing.T) {
	argv := slices.Concat([]string{scenario.Ocadm, "preflight", "init", "--bundle", scenario.Bundle, "-o", "json"}, s.JoinFlags(1), s.database(t, 1))
	began := time.Now()
	out, err := s.On(t.Context(), 1, argv...)
	require.NoError(t, err)
	all := time.Since(began)
	var r struct {
		Passed  bool
		Seconds map[string]float64
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Passed || len(r.Seconds) == 0 {
		t.Fatalf("%v in %s", err, out)
	}
	slowest := slices.SortedFunc(maps.Keys(r.Seconds), func(a, b string) int {
		if r.Seconds[a] > r.Seconds[b] {
			return -1
		}
		return 1
	})
	for _, name := range slowest[:5] {
		t.Logf("check %s took %.2f s", name, r.Seconds[name])
	}
	t.Logf("%d checks took %.2f s in all", len(r.Seconds), all.Seconds())
}

// support checks that ocadm why finds nothing wrong with a real, healthy cloud, except that the new compute node may have no network yet. A support bundle has the journals of both nodes and no secret, and gives the same answer.
func (s *suite) support(t *testing.T) {
	const file = "/root/support.tar.gz"
	bundle := func(ctx context.Context) error {
		return s.Timed("support bundle", func() error {
			_, err := s.On(ctx, 1, "sh", "-c", "rm -f "+file+" && "+scenario.Ocadm+" support --file "+file)
			return err
		})
	}
	s.until(t, "a report that all is well", func(ctx context.Context) (bool, string, error) { // a probe of a busy machine may fail for a moment
		if err := bundle(ctx); err != nil {
			return false, "", err
		}
		for _, argv := range [][]string{{"why"}, {"why", "--from", file}} {
			out, err := s.On(ctx, 1, append(append([]string{scenario.Ocadm}, argv...), "-o", "json")...)
			var r why.Report
			if jerr := json.Unmarshal([]byte(out), &r); err != nil || jerr != nil || !r.Healthy || r.Cause != nil && r.Cause.Code != "OCA-7130" || len(r.Others) > 0 {
				return false, "ocadm " + strings.Join(argv, " ") + ": " + out, errors.Join(err, jerr)
			}
		}
		return true, "", nil
	})
	out, err := s.On(t.Context(), 1, "tar", "-xzOf", file, "snapshot.json")
	var snapshot why.Snapshot
	if jerr := json.Unmarshal([]byte(out), &snapshot); err != nil || jerr != nil {
		t.Fatal(err, jerr)
	}
	if len(snapshot.Missing) > 0 {
		t.Errorf("not read: %q", snapshot.Missing)
	}
	seen := map[string]why.Machine{}
	for _, m := range snapshot.Machines {
		seen[m.Node] = m
	}
	if tunnels := seen["node1"].Tunnels; len(tunnels) == 0 || slices.ContainsFunc(tunnels, func(w why.Tunnel) bool { return w.Problem != "" }) {
		t.Errorf("the tunnels of node1: %+v", tunnels)
	}
	for _, node := range []string{"node1", "node2"} {
		if len(seen[node].Journals["kubelet"]) == 0 || len(seen[node].Journals["containerd"]) == 0 {
			t.Errorf("the bundle has the journals %v of %s", slices.Collect(maps.Keys(seen[node].Journals)), node)
		}
	}
	if out, err = s.On(t.Context(), 1, "tar", "-xzOf", file); err != nil || strings.Contains(out, s.db.RootPassword) {
		t.Errorf("the bundle has the administrator's password of the database (%v)", err)
	}
	if _, err := s.On(t.Context(), 1, "rm", file); err != nil { // reset compares the machine with a fresh one
		t.Error(err)
	}
}

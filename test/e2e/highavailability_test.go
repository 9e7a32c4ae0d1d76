// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/scenario"
)

// TestHighAvailability makes a cluster of three control-plane nodes, ends the machine that holds the virtual address as a power failure does, and
// sees the address answer again. The machine comes back, and another is taken out and joined again.
func TestHighAvailability(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_HA") == "" {
		t.Skip("make ha runs it: it takes minutes")
	}
	l := machines(t, 3)
	s := &suite{Journey: &scenario.Journey{Lab: l, Story: testWriter{t}}}
	ctx := t.Context()
	if err := s.Init(ctx, "--high-availability-vip", s.VirtualAddress(), "--ingress", "none",
		"--skip-phases", "database,operator,cloud-settings,operator-ready,cloud"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []int{2, 3} {
		if err := s.JoinControlPlane(ctx, 1, node); err != nil {
			t.Fatal(err)
		}
	}
	before := s.whole(t, 1)
	s.nodePort(t)
	holder, err := strconv.Atoi(strings.TrimPrefix(before.Holder, "node"))
	if err != nil {
		t.Fatalf("%q holds the virtual address", before.Holder)
	}
	limited, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	outage, err := s.Outage(limited, time.Minute, func() error { return l.Node(holder).Kill(ctx) })
	if err != nil || outage == 0 {
		t.Fatalf("the machine with the address is gone: outage %s, %v", outage, err)
	}
	t.Logf("API outage after the machine with the virtual address was lost: %.1f s", outage.Seconds())
	other := holder%3 + 1
	after, err := s.HAStatus(ctx, other)
	if err != nil || after.Holder == "" || after.Holder == before.Holder || after.Tolerates != 0 {
		t.Errorf("after the loss of %s: %+v, %v", before.Holder, after, err)
	}
	s.nodePort(t)
	if err := l.Node(holder).Start(ctx); err != nil {
		t.Fatal(err)
	}
	s.whole(t, other)
	s.replace(t, other, holder)
}

// replace takes a control-plane node out and joins its machine again.
func (s *suite) replace(t *testing.T, from, node int) {
	t.Helper()
	if _, err := s.On(t.Context(), node, scenario.Ocadm, "reset", "--yes"); err != nil {
		t.Fatal(err)
	}
	got, err := s.HAStatus(t.Context(), from)
	if err != nil || len(got.Nodes) != 2 {
		t.Errorf("after reset: %+v, %v", got, err)
	}
	if err := s.JoinControlPlane(t.Context(), from, node); err != nil {
		t.Fatal(err)
	}
	s.whole(t, from)
}

// nodePort reaches a Service at the virtual address.
func (s *suite) nodePort(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.NodePort(ctx); err != nil {
		t.Error(err)
	}
}

// whole waits until three control-plane nodes work and one of them holds the virtual address.
func (s *suite) whole(t *testing.T, node int) scenario.HAStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		got, err := s.HAStatus(ctx, node)
		if err == nil && len(got.Nodes) == 3 && got.Holder != "" && len(got.Problems) == 0 && got.Tolerates == 1 {
			return got
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the control plane is not whole: %+v, %v", got, err)
		case <-time.After(2 * time.Second):
		}
	}
}

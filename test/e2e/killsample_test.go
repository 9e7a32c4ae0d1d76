// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// A sample of the kill sweep is part of tests that need the machines anyway: init is killed at initKills, a join at joinKills points. Each run
// continues where the previous one was killed.

// joinKills requires twice as many phases in the dry run of the join; a worker that runs virtual machines has about seventeen.
const joinKills = 6

// sampled kills a command at n points, spread over the phases of its dry run, alternately at the start and at the end of a phase.
func (s *suite) sampled(t *testing.T, node, n int, argv ...string) {
	t.Helper()
	var phases []point
	for _, e := range s.events(t, node, append(slices.Clone(argv), "--dry-run")...) {
		if e.Type == workflow.PhasePlanned && e.Phase != "preflight" {
			phases = append(phases, point{event: workflow.PhaseStarted, phase: e.Phase})
		}
	}
	if len(phases) < 2*n {
		t.Fatalf("%s has only the phases %v", argv[1], phases)
	}
	list := spread(phases, n)
	for i := range list {
		if i%2 == 1 && i < n-1 {
			list[i].event = workflow.PhaseDone
		}
	}
	list[n-1].late = true
	s.kills(t, node, list, argv...)
}

// joinKilled kills a join. The join after this step must finish.
func (s *suite) joinKilled(t *testing.T) {
	argv, err := s.JoinCommand(t.Context(), 1)
	require.NoError(t, err)
	s.sampled(t, 2, joinKills, append(append(argv, s.JoinFlags(2)...), s.hostNetworks()...)...)
}

// hostNetworks returns the networks of the host agent on the compute node.
func (s *suite) hostNetworks() []string {
	return []string{"--host-networks", "eth0/br0/" + s.Lab.Node(2).Address.String()}
}

// sameAsUndisturbed compares a node after a killed and repeated join with the same machine after an undisturbed one.
func (s *suite) sameAsUndisturbed(t *testing.T, node int) {
	t.Helper()
	becomes(t, "what the killed join led to", s.joined, func() map[string]string { return s.machineState(t, node) }, always)
}

// TestSample checks the size of the sample, which decision 74 and docs/contributing/developing.md promise.
func TestSample(t *testing.T) {
	if len(initKills) != 4 || joinKills != 6 {
		t.Errorf("init is killed at %d points and a join at %d: correct the pages, too, and keep ten", len(initKills), joinKills)
	}
}

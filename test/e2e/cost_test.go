// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// cost runs work and prints the processor time that each machine used for it, and the durations of the phases on the machines: on a shared host, the
// duration alone means little.
func (s *suite) cost(t *testing.T, name string, nodes []int, work func() error) error {
	t.Helper()
	all := append([]int{1}, nodes...)
	before := s.processor(t, all)
	begun := time.Now()
	if err := s.Timed(name, func() error { return s.withShares(t, nodes, work) }); err != nil {
		return err
	}
	took := time.Since(begun)
	after := s.processor(t, all)
	var sum time.Duration
	var parts []string
	for _, n := range all {
		used := after[n] - before[n]
		sum += used
		parts = append(parts, fmt.Sprintf("node %d %.1f s", n, used.Seconds()))
	}
	t.Logf("%s: %.1f s; processor time %.1f s (%s)", name, took.Seconds(), sum.Seconds(), strings.Join(parts, ", "))
	for _, n := range nodes {
		s.phases(t, n)
	}
	return nil
}

// ownShare is the part of a processor that each machine gets, so that the test measures whether machines wait for each other, and not that the host
// has only two processors: one join alone uses 70 % of both.
const ownShare = 0.3

// withShares runs work while each machine has a share of the host's processors.
func (s *suite) withShares(t *testing.T, nodes []int, work func() error) error {
	t.Helper()
	for _, n := range nodes {
		require.NoError(t, s.Lab.Node(n).Share(ownShare))
	}
	err := work()
	for _, n := range nodes {
		err = errors.Join(err, s.Lab.Node(n).Share(0))
	}
	return err
}

func (s *suite) processor(t *testing.T, nodes []int) map[int]time.Duration {
	t.Helper()
	out := map[int]time.Duration{}
	for _, n := range nodes {
		used, err := s.Lab.Node(n).Processor()
		require.NoError(t, err)
		out[n] = used
	}
	return out
}

// phases prints the durations of the phases in the last run of ocadm on a machine.
func (s *suite) phases(t *testing.T, node int) {
	t.Helper()
	text, _, err := s.Lab.Node(node).Exec(t.Context(), "cat", "/var/lib/ocadm/journal.jsonl")
	if err != nil {
		t.Error(err)
		return
	}
	var run string
	var parts []string
	for line := range strings.Lines(text) {
		var e workflow.Entry
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		if e.Run != run {
			run, parts = e.Run, nil
		}
		if e.Phase != "" && e.Duration >= 0.1 {
			parts = append(parts, fmt.Sprintf("%s %.1f", e.Phase, e.Duration))
		}
	}
	t.Logf("node %d, seconds: %s", node, strings.Join(parts, ", "))
}

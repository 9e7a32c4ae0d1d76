// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestReplica adds a replica of the embedded database on a second machine, promotes it, and kills its machine, as in a power failure, while clients
// add projects. It prints the time until that works again. No acknowledged project may be missing, and the lost machine must return as the replica.
// Then the cloud is updated, backed up and restored. With OCADM_TEST_REPLICA=3 the lost machine is one of three control-plane nodes.
func TestReplica(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_REPLICA") == "" {
		t.Skip("make replica runs it: it takes minutes")
	}
	three := os.Getenv("OCADM_TEST_REPLICA") == "3"
	s := newUpdatable(t, machine.Options{Nodes: map[bool]int{true: 3, false: 2}[three]})
	ctx := t.Context()
	args := []string{"--onecloud-version", earlier}
	if three {
		args = append(args, "--high-availability-vip", s.VirtualAddress())
	}
	require.NoError(t, s.Init(ctx, args...))
	if d := s.databaseStatus(t); d.Redundant || len(d.Servers) != 1 {
		t.Errorf("one copy: %+v", d)
	}
	s.redundant(t, "False")
	s.refused(t, 1, "OCA-7435", "cluster", "database", "add-replica")
	s.refused(t, 1, "OCA-7431", "cluster", "database", "promote", "--yes")
	s.controllers(t, three)
	session, err := s.Session(ctx)
	require.NoError(t, err)
	w := s.write(session)
	s.timed(t, "add the replica", "cluster", "database", "add-replica", "--timeout", "15m")
	if d := s.databaseStatus(t); !d.Redundant {
		t.Errorf("after add-replica: %+v", d)
	}
	s.redundant(t, "True")
	t.Logf("add-replica: %s", w.outage())
	snapshot := ""
	if !three {
		snapshot = s.etcdSnapshot(t)
	}
	w.mark()
	s.timed(t, "promote the replica", "cluster", "database", "promote", "--yes")
	w.untilWorks(t)
	t.Logf("promote: %s", w.outage())
	primary := s.primary(s.databaseStatus(t))
	s.inSync(t, primary)
	if !three {
		s.etcdGoesBack(t, snapshot, primary, w)
	}
	w.mark()
	node, err := strconv.Atoi(strings.TrimPrefix(primary, "node"))
	if err != nil || node == 1 {
		t.Fatalf("%q has the primary: the first server was on node1", primary)
	}
	require.NoError(t, s.Lab.Node(node).Kill(ctx))
	w.untilWorks(t)
	t.Logf("the machine of the primary was lost: %s", w.outage())
	if d := s.databaseStatus(t); d.Redundant || s.primary(d) != "node1" {
		t.Errorf("after the loss: %+v", d)
	}
	s.redundant(t, "False")
	require.NoError(t, s.Lab.Node(node).Start(ctx))
	began := time.Now()
	s.inSync(t, "node1")
	t.Logf("in sync again %.0f s after the machine was started", time.Since(began).Seconds())
	s.redundant(t, "True")
	acked := w.end()
	have, err := session.Projects(ctx)
	require.NoError(t, err)
	lost := 0
	for _, p := range acked {
		if !have[p] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d projects are lost", lost, len(acked))
	}
	t.Logf("%d projects acknowledged, %d lost", len(acked), lost)
	s.updatedAndRestored(t, session)
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// controllers joins the machines that may run the replica: one worker, or two more control-plane nodes.
func (s *suite) controllers(t *testing.T, three bool) {
	t.Helper()
	if !three {
		require.NoError(t, s.Join(t.Context(), 2, "--as-onecloud-controller"))
		return
	}
	for _, node := range []int{2, 3} {
		require.NoError(t, s.JoinControlPlane(t.Context(), 1, node))
	}
}

// databaseState is the output of "ocadm cluster database status -o json".
type databaseState struct {
	Redundant bool
	Message   string
	Servers   []struct {
		Node, Role string
		Ready      bool
	}
}

func (s *suite) databaseStatus(t *testing.T) (d databaseState) {
	t.Helper()
	out, err := s.On(t.Context(), 1, scenario.Ocadm, "cluster", "database", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &d)
	}
	require.NoError(t, err)
	return d
}

func (s *suite) primary(d databaseState) string {
	for _, m := range d.Servers {
		if m.Role == "primary" {
			return m.Node
		}
	}
	return ""
}

// inSync waits until the server on a node is the primary and has a replica in sync.
func (s *suite) inSync(t *testing.T, primary string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		d := s.databaseStatus(t)
		if d.Redundant && s.primary(d) == primary {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not in sync: %+v", d)
		case <-time.After(2 * time.Second):
		}
	}
}

func (s *suite) timed(t *testing.T, name string, args ...string) {
	t.Helper()
	err := s.Timed(name, func() error {
		_, err := s.On(t.Context(), 1, append([]string{scenario.Ocadm}, args...)...)
		return err
	})
	require.NoError(t, err)
}

// projectWriter adds projects with four concurrent clients, and records the acknowledged ones.
type projectWriter struct {
	mu      sync.Mutex
	acked   []string
	failed  int
	since   time.Time // the time of the mark
	last    time.Time // the time of the last success
	longest time.Duration
	stop    context.CancelFunc
	wait    sync.WaitGroup
}

func (s *suite) write(session *scenario.Session) *projectWriter {
	ctx, cancel := context.WithCancel(context.Background())
	w := &projectWriter{stop: cancel, since: time.Now(), last: time.Now()}
	for k := range 4 {
		w.wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("p-%d-%d", k, i)
				limited, end := context.WithTimeout(ctx, 5*time.Second)
				err := session.AddProject(limited, name)
				end()
				w.count(name, err)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	return w
}

func (w *projectWriter) count(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed++
		return
	}
	w.acked = append(w.acked, name)
	w.longest, w.last = max(w.longest, time.Since(w.last)), time.Now()
}

// mark starts a measurement.
func (w *projectWriter) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.last, w.longest, w.failed = time.Now(), time.Now(), 0, 0
}

// outage returns the longest time without a new project since the mark.
func (w *projectWriter) outage() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%.1f s without a write, %d failed, %d acknowledged so far", max(w.longest, time.Since(w.last)).Seconds(), w.failed, len(w.acked))
}

// untilWorks waits until writes have failed or stalled since the mark, and twenty have succeeded since then.
func (w *projectWriter) untilWorks(t *testing.T) {
	t.Helper()
	limit := time.Now().Add(10 * time.Minute)
	failed, before := 0, -1
	for time.Now().Before(limit) {
		w.mu.Lock()
		n, gap, f := len(w.acked), max(w.longest, time.Since(w.last)), w.failed
		w.mu.Unlock()
		switch {
		case f > failed || before < 0 && gap > 2*time.Second:
			failed, before = f, n
		case before >= 0 && n > before+20:
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("writes do not work again: %s", w.outage())
}

func (w *projectWriter) end() []string {
	w.stop()
	w.wait.Wait()
	return w.acked
}

// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
)

// After Stop, waiting machines are skipped, however many there are, while those in progress finish.
func TestWalkStops(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	f := &Fleet{Options: Options{Spec: &Spec{}, Stop: stop}, journal: workflow.NewJournal(filepath.Join(t.TempDir(), "journal.jsonl"))}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.nodes = append(f.nodes, &node{Fleet: f, m: &Machine{Name: name}, role: roleWorker})
	}
	slow := func(*node) []step {
		return []step{{Name: "work", Short: "Work on the machine", Run: func(context.Context, *node, workflow.Reporter) error {
			cancel()
			time.Sleep(50 * time.Millisecond)
			return nil
		}}}
	}
	done := make(chan struct{})
	go func() {
		f.walk(t.Context(), planApply, 2, false, f.nodes, slow)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the run hangs")
	}
	for _, n := range f.nodes[2:] {
		if n.held == "" {
			t.Errorf("machine %s was not passed over: %v", n.m.Name, n.err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// forgotten is how long a removed root is remembered. A control-plane node that was off for longer brings its roots back.
const forgotten = 30 * 24 * time.Hour

// drop removes the roots that are not in keep, and returns the blobs that the others need.
func (s *Store) drop(ctx context.Context, keep []string) (used map[string]bool, err error) {
	roots, err := s.allRoots()
	if err != nil {
		return nil, err
	}
	used = map[string]bool{}
	for _, r := range roots {
		switch {
		case slices.Contains(keep, r.Name):
			for h := range s.reach(ctx, r) {
				used[h.Hex] = true
			}
		case !r.removed():
			err = s.SetRoot(ctx, Root{Name: r.Name})
		case s.storedBefore(r.Name, time.Now().Add(-forgotten)):
			err = os.Remove(s.rootFile(r.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("removing the root %s: %w", r.Name, err)
		}
	}
	return used, nil
}

// storedBefore uses only this node's clock: Since may come from another node's.
func (s *Store) storedBefore(name string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots[name].modified.Before(at)
}

// Prune removes what the cluster does not use, see Unused. It waits while something is being stored, and after that returns a finding with CodeBusy.
func (s *Store) Prune(ctx context.Context, c Cluster, grace time.Duration) (removed, kept []string, freed int64, err error) {
	err = s.alone(ctx, func() error { // anything stored from now on is not in kept
		if removed, kept, err = s.Unused(ctx, c); err == nil {
			freed, err = s.collect(ctx, kept, grace)
		}
		return err
	})
	return removed, kept, freed, err
}

// collect removes the roots that are not in keep, and then all blobs and temporary files that no root needs and that are older than grace, which
// spares what an interrupted fill has stored so far. It returns the number of bytes freed.
func (s *Store) collect(ctx context.Context, keep []string, grace time.Duration) (freed int64, err error) {
	used, err := s.drop(ctx, keep)
	if err != nil {
		return 0, err
	}
	before := time.Now().Add(-grace)
	for _, dir := range []string{s.blobDir(), s.tempDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return freed, fmt.Errorf("cleaning the depot: %w", err)
		}
		for _, e := range entries {
			st, err := e.Info()
			if ctx.Err() != nil {
				return freed, context.Cause(ctx)
			}
			if err != nil || used[e.Name()] && dir == s.blobDir() || st.ModTime().After(before) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return freed, fmt.Errorf("cleaning the depot: %w", err)
			}
			freed += st.Size()
		}
	}
	return freed, nil
}

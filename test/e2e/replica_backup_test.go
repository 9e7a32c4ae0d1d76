// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// redundant waits until the condition DatabaseRedundant of the cloud is "True" or "False".
func (s *suite) redundant(t *testing.T, is string) {
	t.Helper()
	if _, err := s.Kubectl(t.Context(), "-n", "onecloud", "wait", "oc/default", "--for=condition=DatabaseRedundant="+is, "--timeout=180s"); err != nil {
		t.Error(err)
	}
}

// updatedAndRestored updates the cloud of a pair, backs it up, changes it and restores it. Both servers must then have the same rows: each is the primary in turn.
func (s *suite) updatedAndRestored(t *testing.T, session *scenario.Session) {
	t.Helper()
	ctx := t.Context()
	local, key := agekey.Write(t, t.TempDir())
	dir := t.TempDir()
	require.NoError(t, s.Lab.Node(1).CopyIn(ctx, local, "/root/key.txt"))
	eventually(t, "the other pods of the lost machine", func() error { return s.AllAvailable(ctx) })
	s.timed(t, "update with a replica", "cluster", "update", "--version", version, "--wait")
	primary := s.primary(s.databaseStatus(t))
	s.inSync(t, primary)
	file := s.saved(t, key.Recipient().String(), dir)
	require.NoError(t, session.AddProject(ctx, "after-the-backup"))
	before, err := session.Projects(ctx)
	if err != nil || !before["after-the-backup"] {
		t.Fatalf("%v, %v", before, err)
	}
	s.timed(t, "restore with a replica", "cluster", "backup", "restore", "/root/"+file, "--identity", "/root/key.txt", "--wait", "--yes")
	if err := s.AllAvailable(ctx); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	s.inSync(t, primary)
	for _, server := range []string{"the primary", "the replica, promoted"} {
		var have map[string]bool
		for range 60 { // services reconnect after a promotion
			if have, err = session.Projects(ctx); err == nil {
				break
			}
			time.Sleep(2 * time.Second)
		}
		require.NoError(t, err)
		delete(before, "after-the-backup")
		if have["after-the-backup"] || len(have) != len(before) {
			t.Errorf("%s has %d projects, want %d without the one that was made after the backup", server, len(have), len(before))
		}
		if server == "the primary" {
			s.timed(t, "promote the replica after the restore", "cluster", "database", "promote", "--yes")
		}
	}
	s.inSync(t, s.primary(s.databaseStatus(t)))
}

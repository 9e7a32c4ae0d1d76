// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/snapshotfile"
)

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return id
}

// withSnapshots returns a finished backup, on a node with snapshots of these ages.
func withSnapshots(t *testing.T, to []age.Recipient, ages ...time.Duration) *making {
	t.Helper()
	dir := t.TempDir()
	for i, a := range ages { // the later ones are newer
		snapshotfile.Write(t, dir, time.Now().Add(-a), int64(i+1))
	}
	m := &making{Backup: Backup{Snapshots: Snapshots{Dir: dir, Node: "node1"}}, plan: &backup.Plan{Store: backup.Dir(t.TempDir()), Recipients: to}}
	m.info.Name = "default-5f2c81d0-20261123T020000Z" + backup.Suffix
	return m
}

// spoil damages the newest snapshot.
func (m *making) spoil(t *testing.T) {
	t.Helper()
	list, err := snapshot.List(m.Snapshots.Dir)
	if err == nil {
		err = os.Truncate(list[0].File, list[0].Size-1)
	}
	require.NoError(t, err)
}

// TestSnapshotBesideBackup checks that the newest whole snapshot is stored if it is current. Having none is recorded; having only unfit ones is a
// warning.
func TestSnapshotBesideBackup(t *testing.T) {
	id := newKey(t)
	to := []age.Recipient{id.Recipient()}
	gone := withSnapshots(t, to)
	gone.Snapshots.Dir += "/missing"
	spoilt := withSnapshots(t, to, 2*time.Hour, time.Hour)
	spoilt.spoil(t)
	bad := withSnapshots(t, to, time.Hour)
	bad.spoil(t)
	for name, c := range map[string]struct {
		m              *making
		revision       int64
		problem        string
		warned, remedy string
	}{
		"current":       {withSnapshots(t, to, 2*time.Hour, time.Hour), 2, "", "", ""},
		"newest broken": {spoilt, 1, "", "", ""},
		"none":          {withSnapshots(t, to), 0, "node node1 has no snapshot of etcd", "", ""},
		"no directory":  {gone, 0, "node node1 has no snapshot of etcd", "", ""},
		"all broken":    {bad, 0, "its end is missing", "OCA-7427", "on node1, as root: ocadm why; then ocadm etcd snapshot"},
		"old":           {withSnapshots(t, to, 4*time.Hour), 0, "node node1: none of its snapshots of etcd is both complete and current: the newest complete one is from ", "OCA-7427", "ocadm why"},
		"future":        {withSnapshots(t, to, -time.Hour), 0, "which is in the future", "OCA-7427", "ocadm why"},
		"unencrypted":   {withSnapshots(t, nil, time.Hour), 0, "no recipient", "OCA-7427", "ocadm cluster backup schedule --recipient age1…"},
	} {
		if err := c.m.etcd(t.Context(), workflow.Discard{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		e, code, remedy := c.m.info.Etcd, "", ""
		if len(c.m.warnings) > 0 {
			code, remedy = c.m.warnings[0].Code, c.m.warnings[0].Remedy
		}
		if e == nil || e.Revision != c.revision || (e.Name != "") != (c.revision > 0) || !strings.Contains(e.Problem, c.problem) || (e.Problem == "") != (c.problem == "") {
			t.Errorf("%s: %+v", name, e)
		}
		if code != c.warned || !strings.Contains(remedy, c.remedy) || len(c.m.warnings.Errors()) > 0 {
			t.Errorf("%s: %+v", name, c.m.warnings)
		}
		if names, err := c.m.plan.Store.Names(t.Context()); err != nil || (len(names) > 0) != (c.revision > 0) {
			t.Errorf("%s: the store has %v, %v", name, names, err)
		}
	}
}

// TestWithoutEtcd checks that the reason for a missing snapshot includes a remedy.
func TestWithoutEtcd(t *testing.T) {
	for want, err := range map[string]error{
		"free space":        fmt.Errorf("writing: %w", unix.ENOSPC),
		"mount it read-":    &os.PathError{Op: "open", Path: "/backup/x", Err: unix.EROFS},
		"correct the cause": errors.New("something else"),
	} {
		if f := withoutEtcd("node1", err); f.Severity != finding.Warning || !strings.Contains(f.Remedy, want) || !strings.HasPrefix(f.Cause, "node node1: ") {
			t.Errorf("%+v", f)
		}
	}
}

// TestSnapshotOfACancelledBackup checks that a cancelled backup ends without a warning about the missing snapshot.
func TestSnapshotOfACancelledBackup(t *testing.T) {
	m := withSnapshots(t, []age.Recipient{newKey(t).Recipient()}, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.etcd(ctx, workflow.Discard{}); !errors.Is(err, context.Canceled) || len(m.warnings) > 0 {
		t.Errorf("%v, %v", err, m.warnings)
	}
}

// TestUnpackEtcd checks that a stored snapshot becomes a valid private file, and that nothing of it remains, even with a wrong key or file.
func TestUnpackEtcd(t *testing.T) {
	id := newKey(t)
	m := withSnapshots(t, []age.Recipient{id.Recipient()}, time.Hour)
	if err := m.etcd(t.Context(), workflow.Discard{}); err != nil || m.info.Etcd.Name == "" {
		t.Fatalf("%+v, %v", m.info.Etcd, err)
	}
	store := m.plan.Store
	place := string(store.(backup.Dir))
	dir := filepath.Join(t.TempDir(), "etcd")
	old := filepath.Join(dir, ".restore-old")
	require.NoError(t, errors.Join(os.MkdirAll(old, 0o700), os.Chtimes(old, time.Time{}, time.Now().AddDate(0, 0, -2))))
	file, remove, err := UnpackEtcd(t.Context(), workflow.Discard{}, store, m.info.Etcd.Name, dir, id)
	require.NoError(t, err)
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if got, err := snapshot.Verify(file); err != nil || got.Revision != 1 || !got.Time.Equal(m.info.Etcd.Time) {
		t.Errorf("%+v, %v", got, err)
	}
	remove()

	var cloud bytes.Buffer
	w, err := backup.NewWriter(&cloud, backup.Header{}, id.Recipient())
	require.NoError(t, errors.Join(err, w.Close(backup.Manifest{}), os.WriteFile(filepath.Join(place, "cloud"), cloud.Bytes(), 0o600)))
	require.NoError(t, os.WriteFile(filepath.Join(place, "cut"), cloud.Bytes()[:cloud.Len()-1], 0o600))
	for name, c := range map[string]struct {
		file         string
		ids          []age.Identity
		code, remedy string
	}{
		"no key":        {m.info.Etcd.Name, nil, "OCA-7404", "ocadm etcd restore FILE --identity key.txt"},
		"another key":   {m.info.Etcd.Name, []age.Identity{newKey(t)}, "OCA-7404", "ocadm etcd restore FILE --identity key.txt"},
		"a backup":      {"cloud", []age.Identity{id}, "OCA-7428", "ocadm cluster backup restore FILE --identity"},
		"a damaged one": {"cut", []age.Identity{id}, "OCA-7405", "ocadm etcd restore"},
	} {
		_, _, err := UnpackEtcd(t.Context(), workflow.Discard{}, store, c.file, dir, c.ids...)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code || !strings.Contains(l[0].Remedy, c.remedy) {
			t.Errorf("%s: %v, %+v", name, err, l)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
	r := Restore{Store: store, Name: m.info.Etcd.Name, IDs: []age.Identity{id}, Watch: workflow.Discard{}}
	if _, err := r.Read(t.Context()); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-7428" || !strings.Contains(finding.Of(err)[0].Remedy, "ocadm etcd restore") {
		t.Errorf("as a backup of a cloud: %v", err)
	}
}

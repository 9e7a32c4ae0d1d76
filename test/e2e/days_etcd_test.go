// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// etcdStatus is the output of "ocadm etcd status -o json".
type etcdStatus struct {
	Member  string
	Members []struct {
		Name            string
		Answers, Leader bool
		SizeBytes       int64
		Revision        int64
	}
	Snapshots struct{ Count int }
	Problems  []string
}

func (s *suite) etcdStatus(t *testing.T, node int) (e etcdStatus) {
	t.Helper()
	out, err := s.On(t.Context(), node, scenario.Ocadm, "etcd", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &e)
	}
	require.NoError(t, err)
	return e
}

// refused runs a command that must end with a finding.
func (s *suite) refused(t *testing.T, node int, code string, argv ...string) {
	t.Helper()
	if out, err := s.On(t.Context(), node, append([]string{scenario.Ocadm}, argv...)...); err == nil || !strings.Contains(err.Error(), code) {
		t.Errorf("ocadm %s: %s, %v; want %s", strings.Join(argv, " "), out, err, code)
	}
}

// mark creates a ConfigMap as soon as the API server accepts it.
func (s *suite) mark(t *testing.T, name string) {
	t.Helper()
	err := wait.Until(t.Context(), "the API server", time.Second, func(context.Context) (bool, string, error) {
		_, err := s.Kubectl(t.Context(), "create", "configmap", name)
		return err == nil, "", err
	}, func(string) {})
	require.NoError(t, err)
}

// marks returns the ConfigMaps that mark created.
func (s *suite) marks(t *testing.T) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}")
	require.NoError(t, err)
	return strings.TrimSpace(strings.ReplaceAll(out, "kube-root-ca.crt", ""))
}

// snapshot saves a snapshot and returns its file.
func (s *suite) snapshot(t *testing.T, node int) string {
	t.Helper()
	out, err := s.On(t.Context(), node, scenario.Ocadm, "etcd", "snapshot", "-o", "json")
	var info struct{ File string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &info)
	}
	require.NoError(t, err)
	return info.File
}

// restoreSnapshot takes a snapshot, makes a change, and restores the snapshot. The restore is killed halfway and continues.
func (s *suite) restoreSnapshot(t *testing.T) {
	for _, node := range controlPlanes {
		if e := s.etcdStatus(t, node); len(e.Members) != 3 || e.Snapshots.Count < 1 || len(e.Problems) > 0 {
			t.Errorf("etcd status on node %d: %+v", node, e)
		}
	}
	s.mark(t, "before")
	file := s.snapshot(t, 1)
	s.mark(t, "after")
	s.refused(t, 1, "OCA-4151", "etcd", "restore", file, "--yes")
	s.restoredOn1(t, file, func() {
		if out, err := s.On(t.Context(), 1, "timeout", "-s", "KILL", "8", scenario.Ocadm, "etcd", "restore", file, "--yes"); err == nil {
			t.Errorf("the restore ended before it was killed: %s", out)
		}
	})
	if got := s.marks(t); got != "before" {
		t.Errorf("after the restore there are %q", got)
	}
	s.mark(t, "again")
}

// restoredOn1 restores a snapshot on node 1, whose content all three control-plane nodes then have. It calls first after the others have stopped.
func (s *suite) restoredOn1(t *testing.T, file string, first func()) {
	t.Helper()
	ctx := t.Context()
	begun := time.Now()
	own := s.Lab.Node(1).Address.String()
	var others sync.WaitGroup
	errs := make(chan error, len(controlPlanes))
	for _, node := range controlPlanes[1:] {
		others.Go(func() {
			_, err := s.On(ctx, node, scenario.Ocadm, "etcd", "rejoin", "--after-restore", own, "--yes")
			errs <- err
		})
	}
	err := wait.Until(ctx, "the others to stop", 2*time.Second, func(context.Context) (bool, string, error) {
		_, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "restore", file, "--dry-run")
		return err == nil, "", err
	}, func(string) {})
	require.NoError(t, err)
	first()
	require.NoError(t, s.Timed("etcd restore on node 1", func() error {
		_, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "restore", file, "--yes", "-o", "json")
		return err
	}))
	require.NoError(t, s.Timed("etcd rejoin on the others", func() error { others.Wait(); close(errs); return nil }))
	for err := range errs {
		require.NoError(t, err)
	}
	s.whole(t, 1)
	t.Logf("from a snapshot to three control planes with its content in %.1f s", time.Since(begun).Seconds())
}

// restoreOlder restores the snapshot from when node 3 was removed and the worker had not joined. Node 3 returns to the control plane without help,
// the worker with its join command.
func (s *suite) restoreOlder(t *testing.T) {
	ctx := t.Context()
	s.joinSleeper(t)
	s.restoredOn1(t, s.older, func() {})
	if got := s.marks(t); got != "" {
		t.Errorf("after the restore there are %q", got)
	}
	if out, err := s.Kubectl(ctx, "get", "nodes", "-l", "node-role.kubernetes.io/control-plane", "-o", "name"); err != nil || strings.Count(out, "node/") != 3 {
		t.Errorf("the nodes of the control plane: %s, %v", out, err)
	}
	if out, err := s.On(ctx, 1, scenario.Ocadm, "ha", "status"); err != nil || strings.Count(out, s.Lab.Node(3).Address.String()) == 0 {
		t.Errorf("ha status: %s, %v", out, err)
	}
	s.joinSleeper(t)
}

// damage damages the data of a member, and waits until that is detected.
func (s *suite) damage(t *testing.T, node int) {
	t.Helper()
	ctx := t.Context()
	// With the kubelet stopped, nothing restarts etcd before its data is damaged.
	if _, err := s.On(ctx, node, "sh", "-c", `systemctl stop kubelet && pkill -9 -x etcd && sleep 1 &&
		dd if=/dev/urandom of=/var/lib/etcd/member/snap/db bs=4096 count=64 conv=notrunc && systemctl start kubelet`); err != nil {
		t.Fatal(err)
	}
	err := wait.Until(ctx, "the damage to be seen", 2*time.Second, func(context.Context) (bool, string, error) {
		_, err := s.On(ctx, node, scenario.Ocadm, "etcd", "status")
		return err != nil && strings.Contains(err.Error(), "OCA-4014"), "", nil
	}, func(string) {})
	require.NoError(t, err)
}

// rejoinDamaged damages the data of a member, which it gets again from the others.
func (s *suite) rejoinDamaged(t *testing.T) {
	ctx := t.Context()
	const node = 3
	s.damage(t, node)
	require.NoError(t, s.Timed("etcd rejoin of a damaged member", func() error {
		_, err := s.On(ctx, node, scenario.Ocadm, "etcd", "rejoin", "--yes", "-o", "json")
		return err
	}))
	s.whole(t, 1)
	if _, err := s.On(ctx, node, scenario.Ocadm, "etcd", "rejoin", "--yes"); err != nil {
		t.Errorf("again: %v", err)
	}
}

// majorityLost ends two of three machines. The third one continues with its own data.
func (s *suite) majorityLost(t *testing.T) {
	ctx := t.Context()
	s.mark(t, "last")
	for _, node := range controlPlanes[1:] {
		require.NoError(t, s.Lab.Node(node).Kill(ctx))
	}
	err := wait.Until(ctx, "the loss of the majority", 2*time.Second, func(context.Context) (bool, string, error) {
		_, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "status")
		return err != nil && strings.Contains(err.Error(), "OCA-4147"), "", nil
	}, func(string) {})
	require.NoError(t, err)
	require.NoError(t, s.Timed("etcd restore --from-data of the last survivor", func() error {
		_, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "restore", "--from-data", "--yes", "-o", "json")
		return err
	}))
	s.mark(t, "survived")
	if got := s.marks(t); !strings.Contains(got, "last") {
		t.Errorf("after the loss of the majority there are %q", got)
	}
	for _, name := range []string{"node2", "node3"} {
		if r := s.removeNode(t, 1, name); r.Had.Etcd != "none" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if got, err := s.HAStatus(ctx, 1); err != nil || len(got.Nodes) != 1 {
		t.Errorf("the survivor: %+v, %v", got, err)
	}
}

// onlyMemberDamaged damages the data of the only member. The last good snapshot is offered, with what would be lost, and one command restores it.
func (s *suite) onlyMemberDamaged(t *testing.T) {
	ctx := t.Context()
	file := s.snapshot(t, 1)
	s.mark(t, "lost")
	s.damage(t, 1)
	if _, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "status"); err == nil || !strings.Contains(err.Error(), "ocadm etcd restore "+file+", which loses every change since") {
		t.Errorf("etcd status: %v; want the snapshot %s", err, file)
	}
	why, _ := s.On(ctx, 1, scenario.Ocadm, "why", "-o", "json") // it fails, because something is wrong
	var said struct {
		Cause struct{ ID, Remedy string }
	}
	if err := json.Unmarshal([]byte(why), &said); err != nil || said.Cause.ID != "etcd-damaged" || !strings.Contains(said.Cause.Remedy, "etcd restore") {
		t.Errorf("why: %s, %v", why, err)
	}
	s.refused(t, 1, "OCA-4152", "etcd", "rejoin", "--yes") // only this machine has the data
	if dry, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "restore", "--dry-run", "-o", "json"); err != nil || !strings.Contains(dry, file) {
		t.Errorf("etcd restore --dry-run: %s, %v; want %s", dry, err, file)
	}
	require.NoError(t, s.Timed("etcd restore of the only member", func() error {
		_, err := s.On(ctx, 1, scenario.Ocadm, "etcd", "restore", "--yes", "-o", "json")
		return err
	}))
	s.mark(t, "back")
	if got := s.marks(t); strings.Contains(got, "lost") {
		t.Errorf("after the restore there are %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/phases/config"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/snapshotfile"
)

// lonely returns the only control-plane node of a cluster.
func lonely(t *testing.T) *host.Host {
	t.Helper()
	c := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	manifest := h.Files.Path("/etc/kubernetes/manifests/etcd.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(manifest), 0o700))
	err = os.WriteFile(manifest, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: etcd}, spec: {containers: [{name: etcd, command: [etcd, --name=node1,
 --advertise-client-urls=https://10.0.0.1:2379, --data-dir=/var/lib/etcd, --initial-advertise-peer-urls=https://10.0.0.1:2380,
 "--initial-cluster=node1=https://10.0.0.1:2380"]}]}}`), 0o600)
	require.NoError(t, err)
	return h
}

// A restore accepts a snapshot written by etcd, or one stored with the backups, which is decrypted for the duration of the restore.
func TestEtcdSource(t *testing.T) {
	h, dir := lonely(t), t.TempDir()
	plain := snapshotfile.Write(t, dir, time.Now().Add(-time.Hour), 7)
	key, id := agekey.Write(t, t.TempDir())
	p := &backup.Plan{Store: backup.Dir(dir), Recipients: []age.Recipient{id.Recipient()}}
	stored, err := p.StoreEtcd(t.Context(), workflow.Discard{}, "default-5f2c81d0-20261123T020000Z"+backup.Suffix, plain)
	require.NoError(t, err)
	sealed := filepath.Join(dir, stored.Name)
	for _, c := range []struct {
		file, key, shown, code string
	}{
		{plain, "", plain, ""},
		{plain, key, plain, ""},
		{sealed, key, sealed, ""},
		{sealed, "", "", "OCA-7404"},
		{sealed, key + ".gone", "", "OCA-0401"},
		{filepath.Join(dir, "missing"+backup.EtcdSuffix), key, "", "OCA-4150"},
		{key, "", "", "OCA-4150"},
	} {
		from := etcdSource{file: c.file, alone: true}
		if c.key != "" {
			from.keys.identityFiles = []string{c.key}
		}
		r, remove, err := from.plan(t.Context(), h, workflow.Discard{})
		if c.code != "" {
			if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code {
				t.Errorf("%s with key %q: %v, want %s", c.file, c.key, err, c.code)
			}
		} else if err != nil || r.Named() != c.shown || r.Info.Revision != 7 {
			t.Errorf("%s with key %q: %+v, %v", c.file, c.key, r, err)
		} else {
			remove()
			if c.file == sealed && (!strings.HasPrefix(r.File, h.Files.Path(etcdphase.Dir)) || filepath.Base(r.File) != filepath.Base(plain)) {
				t.Errorf("it was decrypted to %s", r.File)
			}
		}
	}
	if left, err := os.ReadDir(h.Files.Path(etcdphase.Dir)); err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

// The backup pod mounts the directory in which control-plane nodes keep snapshots.
func TestBackupReadsSnapshotsOfEtcd(t *testing.T) {
	if catalog.EtcdSnapshots != etcdphase.Dir {
		t.Errorf("%s, not %s", catalog.EtcdSnapshots, etcdphase.Dir)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

// Snapshots locates the etcd snapshots of a node. A backup pod mounts the directory; it is empty on a node without etcd.
type Snapshots struct{ Dir, Node string }

// etcd stores the node's newest good etcd snapshot with the backup. The backup is good without it.
func (m *making) etcd(ctx context.Context, r workflow.Reporter) error {
	good, damaged, err := snapshot.LastGood(m.Snapshots.Dir)
	for _, d := range damaged {
		r.Info("%s", d)
	}
	if err == nil && good == nil && len(damaged) == 0 {
		m.info.Etcd = &backup.Etcd{Problem: fmt.Sprintf("node %s has no snapshot of etcd", m.Snapshots.Node)}
		r.Info("%s in %s: none is stored", m.info.Etcd.Problem, m.Snapshots.Dir)
		return nil
	}
	if err == nil {
		err = current(good, damaged, time.Now())
	}
	var stored backup.Etcd
	if err == nil {
		stored, err = m.plan.StoreEtcd(ctx, r, m.info.Name, good.File)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		f := withoutEtcd(m.Snapshots.Node, err)
		m.info.Etcd = &backup.Etcd{Problem: f.Cause}
		m.warn(r, f)
		return nil
	}
	stored.Time, stored.Revision = good.Time, good.Revision
	m.info.Etcd = &stored
	r.Changed("%s: the snapshot of etcd of %s, revision %d, %d bytes", stored.Name, stored.Time.Format(time.RFC3339), stored.Revision, stored.Size)
	return nil
}

// errSnapshots is returned if no snapshot on the node is fit for a backup.
var errSnapshots = errors.New("none of its snapshots of etcd is both complete and current")

// current returns an error if the newest whole snapshot is not recent.
func current(good *snapshot.Info, damaged []string, now time.Time) error {
	switch {
	case good == nil:
		return fmt.Errorf("%w: %s", errSnapshots, damaged[0])
	case snapshot.Future(good.Time, now):
		return fmt.Errorf("%w: the newest complete one is from %s, which is in the future", errSnapshots, good.Time.Format(time.RFC3339))
	case now.Sub(good.Time) > why.StaleSnapshot:
		return fmt.Errorf("%w: the newest complete one is from %s", errSnapshots, good.Time.Format(time.RFC3339))
	}
	return nil
}

// withoutEtcd returns the warning for a backup without an etcd snapshot although its node has some.
func withoutEtcd(node string, err error) finding.Finding {
	remedy := "correct the cause; the next backup tries again"
	switch f := finding.Of(storeFinding(err)); {
	case errors.Is(err, errSnapshots):
		remedy = "on " + node + ", as root: ocadm why; then ocadm etcd snapshot"
	case errors.Is(err, backup.ErrUnencrypted):
		remedy = "ocadm cluster backup schedule --recipient age1…"
	case len(f) > 0:
		remedy = f[0].Remedy
	}
	return finding.Warn("OCA-7427", "No snapshot of etcd is stored with the backup", fmt.Sprintf("node %s: %v", node, err), remedy)
}

// unpacked is the pattern for directories of decrypted snapshots.
const unpacked = ".restore-*"

// removeOld removes what killed restores left. A directory in use may be hours old, as a restore waits for an answer.
func removeOld(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, unpacked)) // the pattern is valid
	for _, d := range left {
		if st, err := os.Stat(d); err == nil && time.Since(st.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(d) // only root can read it, and the next run tries again
		}
	}
}

// UnpackEtcd unpacks an etcd snapshot that was stored with backups into a new directory below dir. remove deletes that directory.
func UnpackEtcd(ctx context.Context, w backup.Watcher, s backup.Store, name, dir string, ids ...age.Identity) (file string, remove func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("creating a directory for the snapshot: %w", err)
	}
	removeOld(dir)
	temp, err := os.MkdirTemp(dir, unpacked)
	if err != nil {
		return "", nil, fmt.Errorf("creating a directory for the snapshot: %w", err)
	}
	remove = func() { _ = os.RemoveAll(temp) } // only root can read what remains
	var out *os.File
	err = backup.ReadEtcd(ctx, w, s, name, func(name string, size int64) (io.Writer, error) {
		lacking, err := snapshot.Lacking(dir, size)
		if lacking != "" {
			err = finding.New("OCA-4148", "There is no space for the snapshot of etcd", lacking, "free space there; then run the same command again")
		}
		if err == nil {
			out, err = os.OpenFile(filepath.Join(temp, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		}
		return out, err
	}, ids...)
	if out != nil {
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		remove()
		return "", nil, etcdFinding(err)
	}
	return out.Name(), remove, nil
}

// etcdFinding returns the finding for a snapshot that cannot be read.
func etcdFinding(err error) error {
	switch {
	case len(finding.Of(err)) > 0:
		return err
	case errors.Is(err, backup.ErrCloud):
		return finding.Errorf("OCA-7428", "The file is of the wrong kind", "ocadm cluster backup restore FILE --identity key.txt", "%w", err)
	case errors.Is(err, backup.ErrEncrypted):
		return finding.Errorf("OCA-7404", "The snapshot of etcd cannot be decrypted", "give the secret key of one of the recipients of the backups: "+
			"ocadm etcd restore FILE --identity key.txt", "%w", err)
	case errors.Is(err, backup.ErrDamaged):
		return finding.Errorf("OCA-7405", "The snapshot of etcd is damaged", "use another one; to use one of this machine: ocadm etcd restore, without FILE", "%w", err)
	}
	return cmp.Or(storeFinding(err), err)
}

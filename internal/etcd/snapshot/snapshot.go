// SPDX-License-Identifier: Apache-2.0

// Package snapshot saves, verifies and restores etcd snapshots, and manages a directory of them.
package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	clientsnapshot "go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/flock"
)

// Info describes a snapshot.
type Info struct {
	File     string    `json:"file"`
	Time     time.Time `json:"time"`
	Revision int64     `json:"revision"`
	Size     int64     `json:"sizeBytes"`
	// Keys and Digest are set for a verified snapshot.
	Keys   int    `json:"keys,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// name matches the file name of a snapshot in a directory: its time and revision.
var name = regexp.MustCompile(`^etcd-([0-9]{8}T[0-9]{6}Z)-r([0-9]+)\.db$`)

const nameTime = "20060102T150405Z"

// partial is the suffix of the file that an interrupted save leaves.
const partial = ".part"

// Reserve is the space that must stay free on the disk.
const Reserve = 512 << 20

// ErrNoSpace is returned if the disk is too small for a snapshot.
var ErrNoSpace = errors.New("not enough space on the disk")

// patience is how long a save may take, plus a second for each MiB: the disk may be a slow one. The client itself would retry forever.
var patience = 10 * time.Minute

// dialTimeout limits connecting to the member.
const dialTimeout = 5 * time.Second

// Save takes a snapshot from the member at endpoint, verifies it, and only then gives it its final name in dir. config may be nil, and size is the
// expected size.
func Save(ctx context.Context, endpoint string, config *tls.Config, dir string, size int64, now time.Time) (Info, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Info{}, fmt.Errorf("creating the directory of snapshots: %w", err)
	}
	lacking, err := Lacking(dir, size)
	if err != nil {
		return Info{}, err
	}
	if lacking != "" {
		return Info{}, fmt.Errorf("saving a snapshot of %d MiB: %s: %w", size>>20, lacking, ErrNoSpace)
	}
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(size>>20)*time.Second)
	defer cancel()
	unlock, err := lock(ctx, dir)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	temp := filepath.Join(dir, ".etcd.db"+partial)
	if err := disk.Remove(temp); err != nil {
		return Info{}, fmt.Errorf("removing an unfinished snapshot: %w", err)
	}
	c := clientv3.Config{Endpoints: []string{endpoint}, TLS: config, DialTimeout: dialTimeout, Logger: zap.NewNop()}
	if _, err := clientsnapshot.SaveWithVersion(ctx, c.Logger, c, temp); err != nil {
		return Info{}, errors.Join(fmt.Errorf("saving a snapshot: %w", err), removePartial(temp))
	}
	info, err := Verify(temp)
	if err != nil {
		return Info{}, errors.Join(err, removePartial(temp))
	}
	info.Time = now.UTC().Truncate(time.Second)
	info.File = filepath.Join(dir, fmt.Sprintf("etcd-%s-r%d.db", info.Time.Format(nameTime), info.Revision))
	if err := os.Rename(temp, info.File); err != nil {
		return Info{}, fmt.Errorf("naming a snapshot: %w", err)
	}
	return info, nil
}

// lock blocks other saves to a directory, including those of the hourly static pod: all use one temporary name, so that leftovers of an interrupted
// save get removed.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("locking the directory of snapshots: %w", err)
	}
	if err := flock.Take(ctx, d, unix.LOCK_EX, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the directory of snapshots: %w", err), d.Close())
	}
	return func() { _ = d.Close() }, nil
}

// removePartial removes what a failed save left behind: the client's own partial file has the suffix twice.
func removePartial(temp string) error {
	return errors.Join(disk.Remove(temp), disk.Remove(temp+partial))
}

// Lacking returns the reason why the disk of a directory is too small for size bytes, "" if it is not.
func Lacking(dir string, size int64) (why string, err error) {
	free, err := disk.Free(dir)
	if need := size + Reserve; err == nil && free < need {
		why = fmt.Sprintf("the disk of %s has %d MiB left, and %d MiB are needed, of which %d MiB stay free", dir, free>>20, need>>20, Reserve>>20)
	}
	return why, err
}

// Verify reads a whole snapshot and checks its digest, every page and every key.
func Verify(file string) (info Info, err error) {
	info, err = digest(file)
	if err != nil {
		return info, err
	}
	err = guarded("verifying snapshot "+file, func() error {
		s, err := snapshot.NewV3(zap.NewNop()).Status(file)
		info.Revision, info.Keys = s.Revision, s.TotalKey
		return err
	})
	return info, err
}

// guarded runs look, which reads a database. A damaged one makes its reader panic, or read beyond the end of its file.
func guarded(what string, look func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: it is damaged: %v", what, p)
		}
	}()
	if err := look(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// digest compares a snapshot with the SHA-256 that etcd appended to it.
func digest(file string) (Info, error) {
	info := Info{File: file}
	f, err := os.Open(file)
	if err != nil {
		return info, fmt.Errorf("opening a snapshot: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	st, err := f.Stat()
	if err != nil {
		return info, fmt.Errorf("opening a snapshot: %w", err)
	}
	info.Size, info.Time = st.Size(), st.ModTime().UTC().Truncate(time.Second)
	if m := name.FindStringSubmatch(filepath.Base(file)); m != nil {
		info.Time, _ = time.Parse(nameTime, m[1]) // the expression is just as strict
	}
	if st.Size()%512 != sha256.Size {
		return info, fmt.Errorf("verifying snapshot %s: its end is missing, or it is not a snapshot", file)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, st.Size()-sha256.Size)); err != nil {
		return info, fmt.Errorf("reading a snapshot: %w", err)
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return info, fmt.Errorf("reading a snapshot: %w", err)
	}
	if !slices.Equal(want, sum.Sum(nil)) {
		return info, fmt.Errorf("verifying snapshot %s: its content does not match its checksum", file)
	}
	info.Digest = fmt.Sprintf("sha256:%x", want)
	return info, nil
}

// List returns the snapshots in a directory, the newest first, without reading them. There are none if the directory does not exist. The order is by
// revision, which only grows, also by a restore: the clock may have been wrong when a snapshot was taken.
func List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var out []Info
	for _, e := range entries {
		m := name.FindStringSubmatch(e.Name())
		st, err := e.Info()
		if m == nil || err != nil {
			continue
		}
		at, terr := time.Parse(nameTime, m[1])
		revision, rerr := strconv.ParseInt(m[2], 10, 64)
		if terr == nil && rerr == nil {
			out = append(out, Info{File: filepath.Join(dir, e.Name()), Time: at, Revision: revision, Size: st.Size()})
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Or(cmp.Compare(b.Revision, a.Revision), b.Time.Compare(a.Time)) })
	return out, nil
}

// clockSkew is how far in the future the time of a snapshot may be: clock adjustments are smaller.
const clockSkew = time.Minute

// Future reports whether the clock was wrong when a snapshot was taken, or is wrong now.
func Future(taken, now time.Time) bool { return taken.Sub(now) > clockSkew }

// LastGood returns the newest intact snapshot of a directory. damaged lists newer ones that are not intact.
func LastGood(dir string) (good *Info, damaged []string, err error) {
	list, err := List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range list {
		info, err := Verify(s.File)
		if err == nil {
			return &info, damaged, nil
		}
		damaged = append(damaged, err.Error())
	}
	return nil, damaged, nil
}

// Keep is a retention policy for a directory of snapshots.
type Keep struct {
	// Last is the number of newest ones to keep; Days is the number of days to keep the last one of.
	Last, Days int
}

// Excess returns the snapshots that need not be kept, from a list with the newest first.
func (k Keep) Excess(list []Info) []Info {
	var out []Info
	days := map[string]bool{}
	for i, s := range list {
		day := s.Time.Format(time.DateOnly)
		daily := !days[day] && len(days) < k.Days
		if daily {
			days[day] = true
		}
		if i >= k.Last && !daily {
			out = append(out, s)
		}
	}
	return out
}

// Prune removes the snapshots that need not be kept, and returns them.
func (k Keep) Prune(dir string) ([]Info, error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	excess := k.Excess(list)
	for _, s := range excess {
		if err := os.Remove(s.File); err != nil {
			return nil, fmt.Errorf("removing an old snapshot: %w", err)
		}
	}
	return excess, nil
}

// Target is a member that starts alone with the contents of a snapshot.
type Target struct {
	Name, PeerURL string
	// Dir is its data directory, which must not exist. It lies in that of the former member, if there is one.
	Dir string
}

// RevisionBump is added to the revisions of a restored etcd. Otherwise clients that have seen revisions later than the snapshot would miss changes. A
// cluster makes fewer changes than this in its life.
const RevisionBump = 1_000_000_000

// Restore creates the data of a new etcd from a snapshot, or from the database of a member that does not run (raw), which has no digest.
func Restore(file string, raw bool, t Target) error {
	return guarded("restoring "+file, func() error {
		bump, err := bumpOf(file, t)
		if err != nil {
			return err
		}
		return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, SkipHashCheck: raw, Name: t.Name, PeerURLs: []string{t.PeerURL}, OutputDataDir: t.Dir,
			InitialCluster: t.Name + "=" + t.PeerURL, InitialClusterToken: "etcd-cluster", RevisionBump: bump, MarkCompacted: true,
		})
	})
}

// bumpOf returns how much a restore raises the revisions. It counts from the highest known revision: if the same snapshot is restored twice, the
// revisions after the first restore have been seen, too.
func bumpOf(file string, t Target) (uint64, error) {
	own, err := LastRevision(file)
	if err != nil {
		return 0, err
	}
	seen := own
	if former, err := LastRevision(Database(filepath.Dir(t.Dir))); err == nil { // otherwise there is none, or it is damaged: the reason for the restore
		seen = max(seen, former)
	}
	for _, dir := range []string{filepath.Dir(file), filepath.Dir(filepath.Dir(file))} { // a snapshot from before an upgrade lies in a directory below the others
		list, err := List(dir)
		if err != nil {
			return 0, err
		}
		if len(list) > 0 {
			seen = max(seen, list[0].Revision)
		}
	}
	return uint64(seen - own + RevisionBump), nil //nolint:gosec // seen is not less than own
}

// lockTimeout limits the wait for a database that a running etcd has locked.
const lockTimeout = 500 * time.Millisecond

// Database returns the database file of a data directory.
func Database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// LastRevision returns the last revision in the database of a member that does not run.
func LastRevision(file string) (revision int64, err error) {
	err = bucket(file, "key", func(b *bolt.Bucket) error {
		if last, _ := b.Cursor().Last(); len(last) >= 8 {
			revision = int64(binary.BigEndian.Uint64(last)) //nolint:gosec // as etcd writes it
		}
		return nil
	})
	return revision, err
}

// Peers returns the peer URLs of the members of a cluster, from the database of a member that does not run.
func Peers(file string) (urls []string, err error) {
	err = bucket(file, "members", func(b *bolt.Bucket) error {
		return b.ForEach(func(_, value []byte) error {
			var m struct {
				PeerURLs []string `json:"peerURLs"`
			}
			if err := json.Unmarshal(value, &m); err != nil {
				return err
			}
			urls = append(urls, m.PeerURLs...)
			return nil
		})
	})
	return urls, err
}

// bucket is Read for one bucket of the database.
func bucket(file, name string, look func(*bolt.Bucket) error) error {
	return Read(file, func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte(name)); b != nil {
			return look(b)
		}
		return fmt.Errorf("it has no bucket %q", name)
	})
}

// Read opens a bbolt database that no program has open, and calls look.
func Read(file string, look func(*bolt.Tx) error) error {
	return guarded("reading "+file, func() error {
		db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }() // nothing was written
		return db.View(look)
	})
}

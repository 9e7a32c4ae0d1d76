// SPDX-License-Identifier: Apache-2.0

// Package depot keeps the images and files that a cluster's nodes need, and serves them. A control-plane node has a Store on its disk, which holds
// all content once, by SHA-256. Roots give the content names: images have full names, files have paths such as "linux/amd64/usr/local/bin/kubelet".
// Handler serves a store read-only, images through the OCI distribution protocol; Client downloads from it.
package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/flock"
)

// CodeNoSpace is the finding code of a disk that is too full.
const CodeNoSpace = "OCA-2311"

// DefaultDir is the depot's directory on a control-plane node.
const DefaultDir = "/var/lib/ocadm/depot"

// ErrAbsent is the error of a blob or name that the store does not have.
var ErrAbsent = errors.New("the depot does not have it")

// Store is a depot on disk. Several processes may use its directory concurrently.
type Store struct {
	// InUse, which may be nil, returns the images of the pods on this node. Joining nodes need it because the store may hold several releases.
	InUse func(context.Context) ([]string, error)
	// Upstream, which may be nil, copies images that nodes ask for and the store lacks; NewUpstream sets it.
	Upstream *Upstream

	dir     string
	reserve int64
	reading singleflight.Group

	mu sync.Mutex
	// sound holds the blobs that this process has verified, with their state at that time.
	sound map[v1.Hash]stamp
	roots map[string]loaded
	last  joined
	// patience is how long alone waits for writers.
	patience time.Duration
}

// stamp identifies the state of a file that was read: a different stamp means that the file has changed.
type stamp struct {
	size     int64
	modified time.Time
}

// Open opens a depot in a directory, which it creates if necessary, and removes leftovers of killed processes. reserve is how many bytes of its disk
// to leave free.
func Open(dir string, reserve int64) (*Store, error) {
	s := &Store{dir: dir, reserve: reserve, sound: map[v1.Hash]stamp{}, roots: map[string]loaded{}, patience: prunePatience}
	for _, d := range []string{s.blobDir(), s.rootDir(), s.tempDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("opening the depot: %w", err)
		}
	}
	return s, s.sweep()
}

// temp creates a temporary file. Its lock, which ends with the process, protects it from sweep until it is closed.
func (s *Store) temp() (*os.File, error) {
	for {
		f, err := os.CreateTemp(s.tempDir(), "new-*")
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			if _, err = os.Lstat(f.Name()); err == nil {
				return f, nil
			}
		}
		if err = errors.Join(err, f.Close()); !errors.Is(err, fs.ErrNotExist) { // otherwise it was swept before it was locked
			return nil, err
		}
	}
}

// sweep removes temporary files that no process has locked.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.tempDir())
	for _, e := range entries {
		f, oerr := os.Open(filepath.Join(s.tempDir(), e.Name()))
		if oerr != nil { // gone in the meantime
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if rerr := os.Remove(f.Name()); !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("opening the depot: %w", err)
	}
	return nil
}

func (s *Store) blobDir() string { return filepath.Join(s.dir, "blobs", "sha256") }
func (s *Store) rootDir() string { return filepath.Join(s.dir, "roots") }
func (s *Store) tempDir() string { return filepath.Join(s.dir, "tmp") }

// blobFile returns the file of a blob. It checks the digest, which becomes part of a path.
func (s *Store) blobFile(h v1.Hash) (string, error) {
	if raw, err := hex.DecodeString(h.Hex); err != nil || len(raw) != sha256.Size || h.Algorithm != "sha256" || hex.EncodeToString(raw) != h.Hex {
		return "", fmt.Errorf("using the digest %s: want sha256 and 64 hexadecimal digits", h)
	}
	return filepath.Join(s.blobDir(), h.Hex), nil
}

// Put stores a blob of size bytes. The blob appears only once it is complete, has this digest and is on disk. A blob that already exists is not read.
// A full disk is a finding with CodeNoSpace.
func (s *Store) Put(ctx context.Context, h v1.Hash, size int64, in io.Reader) error {
	file, err := s.blobFile(h)
	if err != nil {
		return err
	}
	if st, err := os.Stat(file); err == nil && st.Size() == size {
		return s.renew(h, file) // collect spares new blobs
	}
	if err := s.room(size); err != nil {
		return err
	}
	return s.stored(h, s.place(file, func(out io.Writer) error {
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(out, sum), fetch.Reader(ctx, io.LimitReader(in, size+1), nil))
		if got := hex.EncodeToString(sum.Sum(nil)); err == nil && (n != size || got != h.Hex) {
			err = fmt.Errorf("got %d bytes or more with the digest sha256:%s, want %d", n, got, size)
		}
		return err
	}))
}

// place replaces the content of a file atomically. Incomplete files are in tempDir, see sweep.
func (s *Store) place(file string, write func(io.Writer) error) error {
	temp, err := s.temp()
	if err != nil {
		return err
	}
	if err = write(temp); err == nil {
		err = temp.Sync()
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()), temp.Close())
	}
	return errors.Join(temp.Close(), disk.Sync(filepath.Dir(file)))
}

// placeJSON is like place, for a JSON document.
func (s *Store) placeJSON(file string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.place(file, func(out io.Writer) error {
		_, err := out.Write(raw)
		return err
	})
}

// renew marks a blob as new, and keeps its verified state.
func (s *Store) renew(h v1.Hash, file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := os.Stat(file)
	if err != nil {
		return s.stored(h, err)
	}
	now := time.Now()
	if err := os.Chtimes(file, now, now); err != nil {
		return s.stored(h, err)
	}
	if after, err := os.Stat(file); err == nil && s.sound[h] == (stamp{before.Size(), before.ModTime()}) {
		s.sound[h] = stamp{after.Size(), after.ModTime()}
	}
	return nil
}

// stored explains why a blob was not stored; it returns nil for nil.
func (s *Store) stored(h v1.Hash, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return s.noSpace("%w", err)
	}
	return fmt.Errorf("storing the blob %s: %w", h, err)
}

func (s *Store) noSpace(format string, args ...any) error {
	return finding.Errorf(CodeNoSpace, "The disk of "+s.dir+" is too full for the depot", "free space there: df -h "+s.dir+"; then run the command again", format, args...)
}

// Free returns how many bytes of the disk are available to this user.
func (s *Store) Free() (int64, error) { return disk.Free(s.dir) }

func (s *Store) has(h v1.Hash) bool {
	file, err := s.blobFile(h)
	if err == nil {
		_, err = os.Stat(file)
	}
	return err == nil
}

// room returns an error if size more bytes would leave less free than the reserve.
func (s *Store) room(size int64) error {
	free, err := s.Free()
	if err == nil && free-size < s.reserve {
		return s.noSpace("%d MiB are free, %d MiB are to be stored, and %d MiB must stay free", free>>20, size>>20, s.reserve>>20)
	}
	return err
}

// Blob opens a blob for reading at any offset. If this process has not read the blob yet, or it has changed since, its digest is verified first. A
// damaged blob is removed and reported as absent, so that the client gets it elsewhere. The caller closes the file.
func (s *Store) Blob(ctx context.Context, h v1.Hash) (*os.File, error) {
	name, err := s.blobFile(h)
	if err != nil {
		return nil, errors.Join(ErrAbsent, err)
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrAbsent
	} else if err != nil {
		return nil, fmt.Errorf("opening the blob %s: %w", h, err)
	}
	if err := s.verify(ctx, h, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Store) verify(ctx context.Context, h v1.Hash, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the blob %s: %w", h, err)
	}
	now := stamp{st.Size(), st.ModTime()}
	s.mu.Lock()
	known := s.sound[h] == now
	s.mu.Unlock()
	if known {
		return nil
	}
	// Nodes that join together ask for the same blobs: each is read once, even if the client that asked first is gone.
	read := s.reading.DoChan(h.Hex, func() (any, error) { return nil, s.check(h, f.Name(), now) })
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case r := <-read:
		return r.Err
	}
}

// check verifies a blob's digest, and records it as sound.
func (s *Store) check(h v1.Hash, file string, now stamp) error {
	switch got, err := fetch.Digest(file); {
	case errors.Is(err, fs.ErrNotExist):
		return ErrAbsent
	case err != nil:
		return fmt.Errorf("reading the blob %s: %w", h, err)
	case got != h.Hex:
		return errors.Join(ErrAbsent, fmt.Errorf("the blob %s was damaged on the disk", h), os.Remove(file))
	}
	s.mu.Lock()
	s.sound[h] = now
	s.mu.Unlock()
	return nil
}

// CodeBusy is the finding code for a depot that cannot be pruned because something is being stored.
const CodeBusy = "OCA-2331"

// prunePatience is how long a prune waits for writers.
const prunePatience = 30 * time.Second

// Storing calls do, which stores blobs and then the root that needs them. No process removes garbage meanwhile. Several writers may run concurrently.
func (s *Store) Storing(ctx context.Context, do func() error) error {
	return s.locked(ctx, unix.LOCK_SH, do)
}

// alone calls do while nothing is being stored.
func (s *Store) alone(ctx context.Context, do func() error) error {
	ran := false
	waiting, cancel := context.WithTimeoutCause(ctx, s.patience, errStored)
	defer cancel()
	err := s.locked(waiting, unix.LOCK_EX, func() error {
		ran = true
		return do()
	})
	if !ran && errors.Is(err, errStored) {
		return finding.Errorf(CodeBusy, "The depot in "+s.dir+" is being filled", "wait until it is filled (see ocadm depot status); then run the command again", "%w", err)
	}
	return err
}

var errStored = errors.New("ocadm init, an update or the depot itself is storing something there")

func (s *Store) locked(ctx context.Context, how int, do func() error) error {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the depot: %w", err)
	}
	defer func() { _ = f.Close() }() // this releases the lock
	if err := flock.Take(ctx, f, how, nil); err != nil {
		return fmt.Errorf("locking the depot: %w", err)
	}
	return do()
}

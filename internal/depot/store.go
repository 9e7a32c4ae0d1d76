// SPDX-License-Identifier: Apache-2.0

// Package depot keeps what the nodes of a cluster need, images and files, and serves it to them. A control-plane node has a Store on its
// disk, in which every content lies once, under its SHA-256. Roots name what the contents are: images by their full names, files by paths
// such as "linux/amd64/usr/local/bin/kubelet". Handler serves a store read-only, images through the OCI distribution protocol; Client
// downloads from it.
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
)

// CodeNoSpace is the finding of a disk that cannot hold what is to be stored.
const CodeNoSpace = "OCA-2311"

// DefaultDir is where a control-plane node keeps its depot.
const DefaultDir = "/var/lib/ocadm/depot"

// ErrAbsent is the error of a blob or name that the store does not have.
var ErrAbsent = errors.New("the depot does not have it")

// Store is a depot on disk. Several processes may use one directory at the same time.
type Store struct {
	// InUse, which may be nil, are the images of the pods on this node, for those that join: several releases may be in the store.
	InUse func(context.Context) ([]string, error)
	// Upstream, which may be nil, copies what nodes ask for and the store lacks; NewUpstream sets it.
	Upstream *Upstream

	dir     string
	reserve int64
	reading singleflight.Group

	mu sync.Mutex
	// sound are the blobs that this process has read whole, as they were then.
	sound map[v1.Hash]stamp
	roots map[string]loaded
	last  joined
	// patience is how long alone waits.
	patience time.Duration
}

// stamp identifies the state in which a file was read: another one means that it was changed since.
type stamp struct {
	size     int64
	modified time.Time
}

// Open uses a directory, which it creates, and removes what killed processes have left in it. reserve is how many bytes of its disk are left free.
func Open(dir string, reserve int64) (*Store, error) {
	s := &Store{dir: dir, reserve: reserve, sound: map[v1.Hash]stamp{}, roots: map[string]loaded{}, patience: prunePatience}
	for _, d := range []string{s.blobDir(), s.rootDir(), s.tempDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("opening the depot: %w", err)
		}
	}
	return s, s.sweep()
}

// temp makes a temporary file. Its lock, which ends with the process, keeps sweep from it until the file is closed.
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
		if err = errors.Join(err, f.Close()); !errors.Is(err, fs.ErrNotExist) { // else it was swept before it was locked
			return nil, err
		}
	}
}

// sweep removes the temporary files that no process has locked.
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

// blobFile is where a blob lies. The digest is checked: it becomes part of a path.
func (s *Store) blobFile(h v1.Hash) (string, error) {
	if raw, err := hex.DecodeString(h.Hex); err != nil || len(raw) != sha256.Size || h.Algorithm != "sha256" || hex.EncodeToString(raw) != h.Hex {
		return "", fmt.Errorf("using the digest %s: want sha256 and 64 hexadecimal digits", h)
	}
	return filepath.Join(s.blobDir(), h.Hex), nil
}

// Put stores a blob of size bytes. It takes its place only when it is complete, has this digest and is on the disk. A blob that is there
// already is not read. A full disk is a finding with CodeNoSpace.
func (s *Store) Put(ctx context.Context, h v1.Hash, size int64, in io.Reader) error {
	file, err := s.blobFile(h)
	if err != nil {
		return err
	}
	if st, err := os.Stat(file); err == nil && st.Size() == size {
		return s.renew(h, file) // Collect leaves what is new
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

// place gives a file of the depot another content at once. What was begun of one lies in tempDir, see sweep.
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

// placeJSON is place for a document.
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

// renew makes a blob new, and keeps what is known of it.
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

// stored explains why a blob was not stored; nil stays nil.
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

// Free is how many bytes the disk has left for this user.
func (s *Store) Free() (int64, error) { return disk.Free(s.dir) }

func (s *Store) has(h v1.Hash) bool {
	file, err := s.blobFile(h)
	if err == nil {
		_, err = os.Stat(file)
	}
	return err == nil
}

// room fails if size more bytes would leave less free than the reserve.
func (s *Store) room(size int64) error {
	free, err := s.Free()
	if err == nil && free-size < s.reserve {
		return s.noSpace("%d MiB are free, %d MiB are to be stored, and %d MiB must stay free", free>>20, size>>20, s.reserve>>20)
	}
	return err
}

// Blob opens a blob for reading at any place. A blob that this process has not read yet, or that has changed since, is read and compared
// with its digest first. A damaged one is removed, and absent from then on: whoever asks gets it elsewhere. The caller closes the file.
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
	// Nodes that join together ask for the same blobs: each is read once, even if the first that asked has gone.
	read := s.reading.DoChan(h.Hex, func() (any, error) { return nil, s.check(h, f.Name(), now) })
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case r := <-read:
		return r.Err
	}
}

// check compares a blob with its digest, and notes that it is sound.
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

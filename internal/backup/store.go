// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/lists"
)

// Store is a place for backups: a directory or a bucket. Names have no slash.
type Store interface {
	// Create starts a file that is not visible before Commit.
	Create(ctx context.Context, name string) (File, error)
	// Open opens a file for reading. It returns fs.ErrNotExist if the file is missing.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Names returns the names of the complete files, sorted.
	Names(ctx context.Context) ([]string, error)
	Remove(ctx context.Context, name string) error
	// Clean removes unfinished files of interrupted runs whose names begin with prefix. Other files may be in the middle of being written.
	Clean(ctx context.Context, prefix string) error
	// Free returns the free space in bytes, -1 if the store has no such limit.
	Free(ctx context.Context) (int64, error)
	String() string
}

// File is a file being written. It must end with Commit or Abort; Abort after Commit does nothing.
type File interface {
	io.Writer
	Commit() error
	Abort()
}

// Info is what can be read about a stored backup without its key. It lies beside the file, in NAME.json.
type Info struct {
	Name string `json:"name"`
	Header
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
	Encrypted bool   `json:"encrypted"`
	Tables    int    `json:"tables"`
	Rows      int64  `json:"rows"`
	// Seconds is how long writing took.
	Seconds float64 `json:"seconds"`
	// Loose lists tables, as DATABASE.TABLE, whose engine has no snapshots.
	Loose []string `json:"loose,omitempty"`
	// Proven is the time when the file was read back, restored into scratch databases and compared; Problem is the reason why it could not be.
	Proven  *time.Time `json:"proven,omitempty"`
	Problem string     `json:"problem,omitempty"`
	// Etcd is the snapshot of etcd beside the file; nil if none was requested.
	Etcd *Etcd `json:"etcd,omitempty"`
	// Unknown is true for a file without a NAME.json beside it.
	Unknown bool `json:"unknown,omitempty"`
}

// List returns the backups in a store, the latest first.
func List(ctx context.Context, s Store) ([]Info, error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, err
	}
	out := []Info{}
	for _, n := range names {
		if !strings.HasSuffix(n, Suffix) {
			continue
		}
		info, err := ReadInfo(ctx, s, n)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	slices.SortStableFunc(out, func(a, b Info) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.Name, a.Name)) })
	return out, nil
}

// ReadInfo reads the NAME.json beside a file.
func ReadInfo(ctx context.Context, s Store, name string) (Info, error) {
	r, err := s.Open(ctx, name+".json")
	if errors.Is(err, fs.ErrNotExist) {
		return Info{Name: name, Unknown: true}, nil
	}
	if err != nil {
		return Info{}, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Info{}, fmt.Errorf("reading %s.json in %s: %w", name, s, err)
	}
	info := Info{}
	if err := json.Unmarshal(text, &info); err != nil {
		return Info{Name: name, Unknown: true}, nil // treat a damaged one as missing
	}
	info.Name = name
	return info, nil
}

// WriteInfo writes the NAME.json beside a file.
func WriteInfo(ctx context.Context, s Store, info Info) error {
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	f, err := s.Create(ctx, info.Name+".json")
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := io.Copy(f, bytes.NewReader(append(text, '\n'))); err != nil {
		return fmt.Errorf("writing %s.json: %w", info.Name, err)
	}
	return f.Commit()
}

// remove deletes the snapshot of etcd beside a backup first, then the backup: whatever List shows can be removed again. NAME.json goes last, so that
// an interrupted removal is visible.
func remove(ctx context.Context, s Store, name string) error {
	for _, n := range []string{etcdName(name), name, name + ".json"} {
		if err := s.Remove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// Dir is a store in a directory, which must exist.
type Dir string

const partSuffix = ".part"

func (d Dir) String() string { return string(d) }

func (d Dir) Create(_ context.Context, name string) (File, error) {
	part := filepath.Join(string(d), "."+name+partSuffix)
	_ = os.Remove(part) // that of a killed run, or of another user, who could read what is written to it
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a backup: %w", err)
	}
	return &dirFile{File: f, final: filepath.Join(string(d), name)}, nil
}

type dirFile struct {
	*os.File
	final string
	done  bool
}

// Commit renames the file once its contents are on the disk.
func (f *dirFile) Commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.final)
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", filepath.Base(f.final), err)
	}
	f.done = true
	return disk.Sync(filepath.Dir(f.final))
}

func (f *dirFile) Abort() {
	if !f.done {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}

func (d Dir) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), name))
}

func (d Dir) Names(context.Context) ([]string, error) {
	all, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("listing backups: %w", err)
	}
	return lists.Pick(all, func(e fs.DirEntry) (string, bool) {
		return e.Name(), !e.IsDir() && !strings.HasSuffix(e.Name(), partSuffix)
	}), nil
}

func (d Dir) Remove(_ context.Context, name string) error {
	if err := disk.Remove(filepath.Join(string(d), name)); err != nil {
		return fmt.Errorf("removing a backup: %w", err)
	}
	return nil
}

func (d Dir) Clean(_ context.Context, prefix string) error {
	all, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("cleaning up %s: %w", d, err)
	}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), "."+prefix) && strings.HasSuffix(e.Name(), partSuffix) {
			if err := os.Remove(filepath.Join(string(d), e.Name())); err != nil {
				return fmt.Errorf("cleaning up %s: %w", d, err)
			}
		}
	}
	return nil
}

func (d Dir) Free(context.Context) (int64, error) { return disk.Free(string(d)) }

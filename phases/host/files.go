// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/fetch"
)

// Files accesses the files of the machine. It records in the ledger what it is about to make or change, so that reset can undo it. All names are
// absolute paths on the machine.
type Files struct {
	// Root is the root of the machine's file system; empty means "/". Tests use a directory.
	Root string
	// DryRun makes every change to the machine fail with ErrDryRun.
	DryRun bool
	// Ledger records the changes; nil records nothing.
	Ledger *Ledger

	synced func(name string) // called for every file and directory that is synced; for tests
}

// ErrDryRun is returned for any attempt to change something in a dry run.
var ErrDryRun = errors.New("a dry run changes nothing")

// Path returns the path at which this process finds the machine's file name.
func (f Files) Path(name string) string { return filepath.Join("/", f.Root, name) }

func (f Files) wet(op, name string) error {
	if f.DryRun {
		return &fs.PathError{Op: op, Path: name, Err: ErrDryRun}
	}
	return nil
}

// ReadFile reads a file.
func (f Files) ReadFile(name string) ([]byte, error) { return os.ReadFile(f.Path(name)) }

// Text returns the content of a file, or "" if it cannot be read.
func (f Files) Text(name string) string {
	raw, err := f.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(raw)
}

// ReadDir lists a directory, sorted by name.
func (f Files) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(f.Path(name)) }

// Stat describes a file, following symbolic links.
func (f Files) Stat(name string) (fs.FileInfo, error) { return os.Stat(f.Path(name)) }

// Exists reports whether a file of that name exists, without following symbolic links.
func (f Files) Exists(name string) bool {
	_, err := os.Lstat(f.Path(name))
	return err == nil
}

// Glob returns the names that match each of the patterns, sorted. A malformed pattern matches nothing.
func (f Files) Glob(patterns ...string) (out []string) {
	root := f.Path("/")
	for _, p := range patterns {
		found, _ := filepath.Glob(f.Path(p))
		for _, n := range found {
			out = append(out, "/"+strings.TrimPrefix(strings.TrimPrefix(n, root), "/"))
		}
	}
	return out
}

// Any reports whether any file matches one of the patterns.
func (f Files) Any(patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return len(f.Glob(p)) > 0 })
}

// Digest returns the SHA-256 of a file, "sha256:…".
func (f Files) Digest(name string) (string, error) {
	sum, err := fetch.Digest(f.Path(name))
	if err != nil {
		return "", err
	}
	return "sha256:" + sum, nil
}

// Write gives a file this content and mode, atomically and safe from a power cut, and reports whether anything changed. It creates missing parents. If
// it replaces a file that ocadm did not make, that file is kept for reset. If it replaces ocadm's own file, that is kept too, as NAME.replaced among
// the backups, because a person may have edited it.
func (f Files) Write(name string, data []byte, mode fs.FileMode) (changed bool, err error) {
	old, err := os.ReadFile(f.Path(name))
	if err == nil && bytes.Equal(old, data) {
		st, err := os.Stat(f.Path(name))
		if err == nil && st.Mode().Perm() == mode.Perm() {
			return false, nil
		}
	}
	if err == nil && f.Ledger != nil && f.Ledger.Has(KindFile, name) && !f.DryRun {
		// The ledger has the file as it was before ocadm, but a person may have edited it since.
		if _, err := f.Ledger.keep(name+".replaced", old); err != nil {
			return false, err
		}
	}
	return true, f.WriteFrom(name, bytes.NewReader(data), mode)
}

// WriteFile is Write for callers that do not need to know whether anything changed.
func (f Files) WriteFile(name string, data []byte, mode fs.FileMode) error {
	_, err := f.Write(name, data, mode)
	return err
}

// WriteFrom is Write for large content: the file appears only after r was read to its end without error and synced to disk.
func (f Files) WriteFrom(name string, r io.Reader, mode fs.FileMode) (err error) {
	if err := f.wet("write", name); err != nil {
		return err
	}
	path := f.Path(name)
	if err := f.Mkdir(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	// Recorded first, so that a half-written file of a killed process can be found by its name.
	if err := f.noteFile(name); err != nil {
		return err
	}
	if err := disk.Remove(Unfinished(path)); err != nil {
		return err
	}
	temp, err := os.OpenFile(Unfinished(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, disk.Remove(temp.Name()))
		}
	}()
	_, err = io.Copy(temp, r)
	if err == nil {
		err = temp.Chmod(mode.Perm())
	}
	if err == nil {
		err = f.sync(temp)
	}
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(f.sync(dir), dir.Close())
}

// Replace is Write without a ledger entry and without a copy of the previous file, which may hold a key. It syncs the new file before renaming it into
// place: after a power cut, the kubelet would not start with an empty certificate, nor etcd with an empty manifest.
func (f Files) Replace(name string, data []byte, mode fs.FileMode) error {
	f.Ledger = nil
	if err := f.WriteFrom(name, bytes.NewReader(data), mode); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// ReplaceJSON is Replace with a value encoded as JSON, readable only by root.
func (f Files) ReplaceJSON(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return f.Replace(name, raw, 0o600)
}

// ReadJSON decodes a JSON file into v, and reports whether the file exists.
func (f Files) ReadJSON(name string, v any) (there bool, err error) {
	raw, err := f.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	return err == nil, err
}

// Copy atomically replaces a file with a copy of another, including its mode: a watcher of the directory sees either the old or the new file. The
// kubelet ignores names that begin with a dot.
func (f Files) Copy(from, to string) error {
	in, err := os.Open(f.Path(from))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	st, err := in.Stat()
	if err != nil {
		return err
	}
	f.Ledger = nil
	return f.WriteFrom(to, in, st.Mode())
}

// sync waits until a file or directory is on disk.
func (f Files) sync(file *os.File) error {
	if f.synced != nil {
		f.synced(file.Name())
	}
	return file.Sync()
}

// Unfinished returns the name of the temporary file that holds a file's new content until it is complete.
func Unfinished(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".ocadm")
}

// noteFile records that a file is about to be created or changed. It first backs up a file that ocadm did not write.
func (f Files) noteFile(name string) error {
	if f.Ledger == nil {
		return nil
	}
	if e, ok := f.Ledger.Get(KindFile, name); ok && e.Op != Found {
		return nil
	}
	if to, err := os.Readlink(f.Path(name)); err == nil {
		return f.Ledger.Record(Entry{Kind: KindFile, Name: name, Op: Changed, Link: to})
	}
	old, err := os.ReadFile(f.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return f.Ledger.Record(Entry{Kind: KindFile, Name: name, Op: Created})
	}
	if err != nil {
		return err
	}
	st, err := os.Stat(f.Path(name))
	if err != nil {
		return err
	}
	backup, err := f.Ledger.keep(name, old)
	if err != nil {
		return err
	}
	return f.Ledger.Record(Entry{Kind: KindFile, Name: name, Op: Changed, Previous: backup, Mode: st.Mode().Perm()})
}

// Mkdir creates a directory and its missing parents.
func (f Files) Mkdir(name string, mode fs.FileMode) error {
	if st, err := os.Stat(f.Path(name)); err == nil && st.IsDir() {
		return nil
	}
	if err := f.wet("mkdir", name); err != nil {
		return err
	}
	if f.Exists(name) { // a file, or a link to a disk that is not mounted; or another phase has just made the directory
		if st, err := os.Stat(f.Path(name)); err == nil && st.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	if parent := filepath.Dir(name); parent != name {
		if err := f.Mkdir(parent, 0o755); err != nil {
			return err
		}
	}
	if f.Ledger != nil {
		if err := f.Ledger.Record(Entry{Kind: KindDir, Name: name, Op: Created}); err != nil {
			return err
		}
	}
	if err := os.Mkdir(f.Path(name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Remove removes a file or an empty directory. A missing one is not an error.
func (f Files) Remove(name string) error {
	if err := f.wet("remove", name); err != nil {
		return err
	}
	// A process killed while writing the file leaves this behind.
	if err := disk.Remove(Unfinished(f.Path(name))); err != nil {
		return err
	}
	return disk.Remove(f.Path(name))
}

// RemoveAll removes a file or a tree. A missing one is not an error.
func (f Files) RemoveAll(name string) error {
	if err := f.wet("remove", name); err != nil {
		return err
	}
	if filepath.Clean(name) == "/" {
		return errors.New("refusing to remove /")
	}
	return os.RemoveAll(f.Path(name))
}

// Undo reverts what a ledger entry says was done to a file or directory, and deletes the entry. It leaves a directory that is still in use.
func (f Files) Undo(e Entry) error {
	if err := f.wet("undo", e.Name); err != nil {
		return err
	}
	if !slices.Contains([]Kind{KindFile, KindDir}, e.Kind) || e.Op == Found {
		return fmt.Errorf("reverting %s %s: it is not a created file", e.Kind, e.Name)
	}
	if e.Kind == KindFile {
		if err := disk.Remove(Unfinished(f.Path(e.Name))); err != nil {
			return fmt.Errorf("removing the unfinished parts of %s: %w", e.Name, err)
		}
	}
	if e.Op == Changed {
		if err := f.restore(e); err != nil {
			return fmt.Errorf("restoring %s: %w", e.Name, err)
		}
	} else if err := os.Remove(f.Path(e.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) && (e.Kind != KindDir || f.removable(e.Name, err)) {
		return fmt.Errorf("removing %s: %w", e.Name, err)
	}
	if f.Ledger == nil {
		return nil
	}
	return f.Ledger.Forget(e.Kind, e.Name)
}

// restore writes a changed file back as it was before. If the copy is gone and so is the file, because its owner moved it away, nothing is lost.
func (f Files) restore(e Entry) error {
	if e.Link != "" {
		return errors.Join(os.MkdirAll(filepath.Dir(f.Path(e.Name)), 0o755), disk.Symlink(e.Link, f.Path(e.Name)))
	}
	old, err := os.ReadFile(f.Path(e.Previous))
	if errors.Is(err, fs.ErrNotExist) {
		if !f.Exists(e.Name) {
			return nil
		}
		return fmt.Errorf("its copy is gone; move the file away, then run the same command again: %w", err)
	}
	if err != nil {
		return err
	}
	return (Files{Root: f.Root}).WriteFile(e.Name, old, e.Mode)
}

// removable reports whether a directory should have been removed: it is empty and not a mount point.
func (f Files) removable(dir string, err error) bool {
	l, lerr := os.ReadDir(f.Path(dir))
	return lerr == nil && len(l) == 0 && !errors.Is(err, syscall.EBUSY)
}

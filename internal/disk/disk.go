// SPDX-License-Identifier: Apache-2.0

// Package disk writes files that survive a power cut intact, and reports free disk space.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace atomically replaces a file, of mode 0600: the new content is on disk before it takes the place of the old one. The temporary file FILE.new
// has a fixed name, so that one which a power cut left is replaced.
func Replace(file string, data []byte) error {
	_ = os.Remove(file + ".new") // another user may have made it, to read what is written to it
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return Sync(filepath.Dir(file))
}

// Symlink atomically replaces a file or a link with a symbolic link. Like Replace, it uses a temporary name that is FILE.new.
func Symlink(to, file string) error {
	if err := errors.Join(Remove(file+".new"), os.Symlink(to, file+".new")); err != nil {
		return err
	}
	return errors.Join(os.Rename(file+".new", file), Sync(filepath.Dir(file)))
}

// Remove removes a file or an empty directory. A missing one is not an error.
func Remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sync makes new names in a directory survive a power cut.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Free returns how many bytes of a directory's disk are available to this user.
func Free(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("looking at the disk of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil //nolint:gosec // no disk has 2^63 blocks
}

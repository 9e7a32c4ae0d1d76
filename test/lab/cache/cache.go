// SPDX-License-Identifier: Apache-2.0

// Package cache keeps the results of slow builds, by kind and key, for all runs and checkouts of this user. Each entry is built once, in its own
// directory, and appears atomically. Entries must not change later.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/flock"
)

// Logf reports progress to the user.
type Logf func(format string, args ...any)

// keyLength is the number of hex digits of a key, enough for the few entries of one kind.
const keyLength = 16

// Dir returns the directory of the cache: $XDG_CACHE_HOME/ocadm, or ~/.cache/ocadm.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	return filepath.Join(base, "ocadm"), nil
}

// Key returns a hash of everything that an entry depends on.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(fmt.Appendf(nil, "%d:%s", len(p), p))
	}
	return hex.EncodeToString(h.Sum(nil))[:keyLength]
}

// Entry returns the directory of an entry. If it does not exist, build fills an empty directory for it. Another process that wants the same entry
// waits.
func Entry(ctx context.Context, what, key string, logf Logf, build func(ctx context.Context, dir string) error) (string, error) {
	root, err := Dir()
	if err != nil {
		return "", err
	}
	kind := filepath.Join(root, what)
	dir := filepath.Join(kind, key)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(kind, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	lock, err := Lock(ctx, filepath.Join(kind, "."+key+".lock"), func() {
		logf("waiting for another run that builds the same %s", what)
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if exists(dir) {
		return dir, nil
	}
	tmp := filepath.Join(kind, "."+key+".building")
	if err := os.RemoveAll(tmp); err != nil {
		return "", fmt.Errorf("removing what an earlier run left: %w", err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache entry: %w", err)
	}
	if err := build(ctx, tmp); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("finishing the cache entry: %w", err)
	}
	return dir, nil
}

// Prune removes the entries of one kind whose names start with prefix and that are older than age. It is for entries that change with every build;
// entries that depend on pinned versions stay.
func Prune(what, prefix string, age time.Duration) error {
	root, err := Dir()
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(root, what, prefix+"*"))
	if err != nil {
		return fmt.Errorf("listing the cache: %w", err)
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing an old entry of the cache: %w", err)
		}
		if err := disk.Remove(filepath.Join(root, what, "."+filepath.Base(dir)+".lock")); err != nil {
			return fmt.Errorf("removing an old entry of the cache: %w", err)
		}
	}
	return nil
}

// Lock takes an exclusive lock on a file. It calls waiting once if another process holds the lock. The lock is released when the file is closed, here
// and in every child that inherited it, or when these processes end.
func Lock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := flock.Take(ctx, f, unix.LOCK_EX, waiting); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

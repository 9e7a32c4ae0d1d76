// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/wait"
)

// readMounts returns this process's mounts in the order of their creation.
func readMounts() ([]disk.Mount, error) {
	b, err := os.ReadFile(disk.MountTable)
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	return disk.Mounts(string(b)), nil
}

// cgroupDirs returns the lab's cgroups in every hierarchy where they exist.
func cgroupDirs(path string) ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, m := range mounts {
		if m.Kind != "cgroup" && m.Kind != "cgroup2" {
			continue
		}
		dir := filepath.Join(m.At, path)
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// processesIn returns the processes of the cgroups and their descendants.
func processesIn(dirs []string) []int {
	var pids []int
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // a cgroup that has just disappeared has no processes
			}
			f, err := os.Open(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				return nil
			}
			defer func() { _ = f.Close() }()
			for sc := bufio.NewScanner(f); sc.Scan(); {
				if pid, err := strconv.Atoi(sc.Text()); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// thaw unfreezes cgroups of cgroup v1, so that their processes receive signals. runc freezes a container while it changes it, and may be killed meanwhile.
func thaw(dirs []string) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			if filepath.Base(path) == "freezer.state" {
				_ = os.WriteFile(path, []byte("THAWED"), 0o644) //nolint:gosec // a file of the kernel, which keeps its mode
			}
			return nil
		})
	}
}

const (
	killTimeout  = 30 * time.Second
	killInterval = 50 * time.Millisecond
)

// emptyCgroups kills every process in the lab's cgroups and removes the cgroups.
func emptyCgroups(ctx context.Context, path string) error {
	dirs, err := cgroupDirs(path)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(killTimeout)
	for {
		pids := processesIn(dirs)
		if len(pids) == 0 {
			break
		}
		thaw(dirs)
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("killing process %d of the lab: %w", pid, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ending the processes %v of the lab: they do not end", pids)
		}
		if err := wait.Sleep(ctx, killInterval); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := removeCgroup(ctx, dir, deadline); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes a cgroup and its descendants, the deepest first. A cgroup stays busy for a moment after its last process has ended.
func removeCgroup(ctx context.Context, dir string, deadline time.Time) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the control group %s: %w", dir, err)
	}
	slices.Reverse(groups)
	for _, g := range groups {
		for {
			err := unix.Rmdir(g)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("removing the control group %s: %w", g, err)
			}
			if err := wait.Sleep(ctx, killInterval); err != nil {
				return err
			}
		}
	}
	return nil
}

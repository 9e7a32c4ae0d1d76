// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/lab/cache"
)

// Tree describes the contents of a file system. Equal values give the same cache entry.
type Tree struct {
	// Name is used in messages and in the cache.
	Name string
	// Release is one of Releases; empty means the constant Release.
	Release string `json:",omitempty"`
	// Variant is mmdebstrap's: "minbase" for a system that boots, "extract" for files only, with no maintainer script run.
	Variant  string
	Packages []string
	// Files maps paths without a leading slash to contents to write.
	Files map[string]string
	// Links maps paths of symbolic links to their targets. They replace existing files.
	Links map[string]string
	// Remove holds shell patterns, below the root, of files to remove.
	Remove []string
}

// docs are files that no program needs.
var docs = []string{"usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/lintian", "usr/share/bug"}

// Build returns the directory of the file system, from the cache or newly made.
func Build(ctx context.Context, t Tree, logf cache.Logf) (string, error) {
	recipe, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("describing %s: %w", t.Name, err)
	}
	key := t.Name + "-" + cache.Key(cmp.Or(t.Release, Release), runtime.GOARCH, string(recipe))
	dir, err := cache.Entry(ctx, "debian", key, logf, func(ctx context.Context, dir string) error {
		if os.Geteuid() != 0 {
			return fmt.Errorf("making %s from Debian packages needs root", t.Name)
		}
		if err := Prepare(ctx, logf); err != nil {
			return err
		}
		start := time.Now()
		logf("making the file system %q from %d Debian packages and what they need (one to three minutes)", t.Name, len(t.Packages))
		if err := bootstrap(ctx, t, filepath.Join(dir, "root")); err != nil {
			return fmt.Errorf("making the file system %q: %w", t.Name, err)
		}
		logf("made the file system %q in %s", t.Name, time.Since(start).Round(time.Second))
		return nil
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "root"), nil
}

func bootstrap(ctx context.Context, t Tree, root string) error {
	machine := exec.Machine{}
	release := cmp.Or(t.Release, Release)
	from, err := sources(ctx, machine, release)
	if err != nil {
		return err
	}
	options, err := optionsFile(ctx, machine)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(options) }()
	args := []string{
		"--mode=root", "--format=directory", "--variant=" + t.Variant, "--aptopt=" + options,
		"--include=" + strings.Join(t.Packages, ","),
	}
	if t.Variant != "extract" {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
			"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/info/*")
	}
	args = append(append(args, release, root), from...)
	if _, err := machine.Run(ctx, exec.Command{Path: "mmdebstrap", Args: args}); err != nil {
		return err
	}
	return finish(t, root)
}

// finish removes unwanted files and writes the additional ones.
func finish(t Tree, root string) error {
	patterns := append([]string{
		"etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list", "etc/resolv.conf", "etc/hostname", "etc/machine-id",
		"var/log/*", "var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/ldconfig", "var/cache/debconf/*",
	}, t.Remove...)
	patterns = append(patterns, docs...)
	for _, p := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, p))
		if err != nil {
			return fmt.Errorf("matching %q: %w", p, err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("removing %s: %w", p, err)
			}
		}
	}
	for path, content := range t.Files {
		if err := writeFile(filepath.Join(root, path), content); err != nil {
			return err
		}
	}
	for path, target := range t.Links {
		if err := link(filepath.Join(root, path), target); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		return fmt.Errorf("writing a file of the tree: %w", err)
	}
	return nil
}

func link(path, target string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if err := disk.Remove(path); err != nil {
		return fmt.Errorf("replacing a file by a link: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("linking: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the upstream programs for the lab's nodes, images and tests, from Go modules whose versions and checksums are committed. It
// keeps them in the cache. It builds no part of ocadm.
package binaries

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/lab/cache"
)

//go:embed pause.c.txt
var pauseSource string

const pauseName = "pause"

// root is this repository's Go module.
const root = "yunion.io/x/ocadm"

// Built is one program in the cache.
type Built struct{ Path, Version string }

// Path returns the absolute path of a program. If the program is not in the cache, Path builds it, with all others of its module.
func Path(ctx context.Context, name string) (string, error) {
	b, err := Get(ctx, name, logToStderr)
	return b.Path, err
}

func logToStderr(format string, args ...any) { fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...) }

// Get is like Path but also returns the program's version.
func Get(ctx context.Context, name string, logf cache.Logf) (Built, error) {
	return GetFor(ctx, name, version.Kubernetes, logf)
}

// GetFor is like Get, with programs of Kubernetes in the given version: either the version in go.mod or the lab's version of the previous minor
// release.
func GetFor(ctx context.Context, name, kubernetes string, logf cache.Logf) (Built, error) {
	if name == pauseName {
		return pause(ctx, logf)
	}
	for _, m := range modules(kubernetes) {
		for _, p := range m.Programs {
			if p.Name == name {
				dir, built, err := buildModule(ctx, m, logf)
				return Built{filepath.Join(dir, name), built}, err
			}
		}
	}
	return Built{}, fmt.Errorf("finding the program %q: the lab has %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all programs.
func Names() []string {
	return append(slices.Concat(lists.Map(modules(version.Kubernetes), programNames)...), pauseName)
}

// Checkout returns the root of this repository, found from the working directory.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(b) == root {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the checkout: not inside the repository of ocadm")
		}
		dir = parent
	}
}

// buildModule returns the directory with a module's programs, and their version.
func buildModule(ctx context.Context, m module, logf cache.Logf) (dir, has string, err error) {
	checkout, err := Checkout()
	if err != nil {
		return "", "", err
	}
	source := filepath.Join(checkout, "test", "lab", "modules", m.Dir)
	has, err = upstreamVersion(source, m.Upstream)
	if err != nil {
		return "", "", err
	}
	if m.Version != "" && m.Version != has {
		return "", "", fmt.Errorf("building %s %s: the lab has %s; test/lab/modules/%s/go.mod pins it", m.Upstream, m.Version, has, m.Dir)
	}
	sum, err := hashTree(source)
	if err != nil {
		return "", "", err
	}
	args := buildArgs(m, has)
	key := m.Dir + "-" + has + "-" + cache.Key(sum, strings.Join(args, " "), fmt.Sprint(m.Cgo), runtime.Version(), runtime.GOARCH)
	dir, err = cache.Entry(ctx, "binaries", key, logf, func(ctx context.Context, dir string) error {
		return compile(ctx, m, has, source, dir, args, logf)
	})
	return dir, has, err
}

// buildArgs returns the command line of "go build", without output and packages.
func buildArgs(m module, version string) []string {
	major, minor := "", ""
	if semver.IsValid(version) {
		major, minor, _ = strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	}
	ldflags := "-s -w " + strings.NewReplacer("{version}", version, "{major}", major, "{minor}", minor).Replace(m.LDFlags)
	if m.Cgo {
		ldflags += " -extldflags -static"
	}
	args := []string{"-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace(ldflags)}
	if m.Tags != "" {
		args = append(args, "-tags", m.Tags)
	}
	return args
}

// reportInterval is the interval of progress reports during a long build.
const reportInterval = 20 * time.Second

func compile(ctx context.Context, m module, version, source, dir string, args []string, logf cache.Logf) error {
	start := time.Now()
	logf("building %s %s from its Go module: %s", m.Dir, version, strings.Join(programNames(m), ", "))
	var packages atomic.Int64
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for wait.Sleep(ctx, reportInterval) == nil {
			logf("still building %s: %d packages compiled in %s", m.Dir, packages.Load(), time.Since(start).Round(time.Second))
		}
	}()
	cgo := "CGO_ENABLED=0"
	if m.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	for _, p := range m.Programs {
		_, err := (exec.Machine{}).Run(ctx, exec.Command{
			Path: "go", Dir: source,
			Args: slices.Concat([]string{"build", "-v"}, args, []string{"-o", filepath.Join(dir, p.Name), p.Package}),
			Env:  append([]string{cgo, "GOFLAGS=", "GOWORK=off", "GOOS=linux"}, m.Env...),
			OnLine: func(line string) {
				if !strings.HasPrefix(line, "go: ") {
					packages.Add(1)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("building %s: %w", m.Dir, err)
		}
	}
	logf("built %s %s in %s", m.Dir, version, time.Since(start).Round(time.Second))
	return nil
}

func programNames(m module) []string {
	return lists.Map(m.Programs, func(p program) string { return p.Name })
}

func upstreamVersion(source, upstream string) (string, error) {
	file := filepath.Join(source, "go.mod")
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the versions of the lab's programs: %w", err)
	}
	f, err := modfile.Parse(file, b, nil)
	if err != nil {
		return "", fmt.Errorf("reading the versions of the lab's programs: %w", err)
	}
	for _, r := range f.Require {
		if r.Mod.Path == upstream {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("reading %s: it does not require %s", file, upstream)
}

// hashTree returns a hash of the names and contents of all files below a directory.
func hashTree(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		_, _ = h.Write(fmt.Appendf(nil, "%s %d\n", rel, len(b)))
		_, _ = h.Write(b)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", dir, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// pause builds the program that holds a pod's namespaces.
func pause(ctx context.Context, logf cache.Logf) (Built, error) {
	const version = "3.10.2"
	dir, err := cache.Entry(ctx, "binaries", "pause-"+version+"-"+cache.Key(pauseSource, runtime.GOARCH), logf,
		func(ctx context.Context, dir string) error {
			_, err := (exec.Machine{}).Run(ctx, exec.Command{
				Path: "gcc", Args: []string{"-static", "-Os", "-s", "-x", "c", "-o", filepath.Join(dir, pauseName), "-"},
				Stdin: strings.NewReader(pauseSource),
			})
			if err != nil {
				return fmt.Errorf("building pause: %w", err)
			}
			return nil
		})
	return Built{filepath.Join(dir, pauseName), version}, err
}

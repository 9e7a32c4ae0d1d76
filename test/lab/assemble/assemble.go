// SPDX-License-Identifier: Apache-2.0

// Package assemble collects the contents of the lab's bundle, the programs of a node and every image, and passes them to internal/bundle. It decides
// what is in the bundle, not the bundle's format.
package assemble

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/lab/images"
)

// Options are the options of the lab's images. Images fills in missing ones.
type Options = images.Options

// Bundle writes the bundle to a file, unless an existing one was made from the same inputs.
func Bundle(ctx context.Context, out string, o Options) error {
	start := time.Now()
	list, err := Images(ctx, &o)
	if err != nil {
		return err
	}
	files, err := nodeFiles(ctx, o.KubernetesVersion, o.Logf)
	if err != nil {
		return err
	}
	info, err := bundleInfo(ctx, o)
	if err != nil {
		return err
	}
	key, err := inputs(info, files, list)
	if err != nil {
		return err
	}
	if upToDate(out, key) {
		o.Logf("the bundle %s is up to date (checked in %s)", out, time.Since(start).Round(time.Millisecond))
		return nil
	}
	o.Logf("writing the bundle %s: %d files and %d images", out, len(files), len(list))
	if err := write(ctx, out, key, info, files, list); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	stat, err := os.Stat(out)
	if err != nil {
		return fmt.Errorf("looking at the bundle: %w", err)
	}
	o.Logf("wrote the bundle, %d MiB, in %s", stat.Size()>>20, time.Since(start).Round(time.Second))
	return cache.Prune("layers", "fakecloud-", 24*time.Hour) // they change with every build
}

// Images makes the bundle's images. It fills in missing Options.
func Images(ctx context.Context, o *Options) ([]images.Named, error) {
	o.KubernetesVersion = cmp.Or(o.KubernetesVersion, version.Kubernetes)
	if o.Fakecloud == "" {
		var err error
		if o.Fakecloud, err = fakecloud(ctx, o.Logf); err != nil {
			return nil, err
		}
	}
	return images.All(ctx, *o)
}

// file is a program of a node and its source on this host.
type file struct{ Path, Source string }

// nodeFiles returns the programs that a fresh node lacks.
func nodeFiles(ctx context.Context, kubernetes string, logf cache.Logf) ([]file, error) {
	programs := map[string]string{
		"containerd":              "usr/local/bin/containerd",
		"containerd-shim-runc-v2": "usr/local/bin/containerd-shim-runc-v2",
		"ctr":                     "usr/local/bin/ctr",
		"kubelet":                 "usr/local/bin/kubelet",
		"kubectl":                 "usr/local/bin/kubectl",
		"runc":                    "usr/local/bin/runc",
		"flannel":                 "opt/cni/bin/flannel",
	}
	for _, plugin := range binaries.CNIPlugins() {
		programs[plugin] = "opt/cni/bin/" + plugin
	}
	var files []file
	for name, path := range programs {
		b, err := binaries.GetFor(ctx, name, kubernetes, logf)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path, b.Path})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

func bundleInfo(ctx context.Context, o Options) (bundle.Info, error) {
	versions := map[string]string{"cloud": o.CloudVersion}
	for _, name := range []string{"containerd", "etcd", "coredns", "flanneld", "local-path-provisioner"} {
		b, err := binaries.Get(ctx, name, o.Logf)
		if err != nil {
			return bundle.Info{}, err
		}
		versions[name] = b.Version
	}
	return bundle.Info{OS: "linux", Arch: runtime.GOARCH, KubernetesVersion: o.KubernetesVersion, Versions: versions}, nil
}

// inputs returns a hash of everything that the bundle is made of.
func inputs(info bundle.Info, files []file, list []images.Named) (string, error) {
	described, err := json.Marshal(info)
	if err != nil {
		return "", fmt.Errorf("describing the bundle: %w", err)
	}
	parts := []string{string(described)}
	for _, f := range files {
		stat, err := os.Stat(f.Source)
		if err != nil {
			return "", fmt.Errorf("reading a file of the bundle: %w", err)
		}
		// The path identifies the contents: the cache names its directories after them.
		parts = append(parts, f.Path, f.Source, fmt.Sprint(stat.Size(), stat.ModTime().UnixNano()))
	}
	for _, i := range list {
		digest, err := i.Image.Digest()
		if err != nil {
			return "", fmt.Errorf("reading the image %s: %w", i.Name, err)
		}
		parts = append(parts, i.Name, digest.String())
	}
	return cache.Key(parts...), nil
}

// keyFile returns the path of the file, beside the bundle, with the hash of its inputs.
func keyFile(out string) string { return out + ".inputs" }

func upToDate(out, key string) bool {
	stat, err := os.Stat(out)
	if err != nil {
		return false
	}
	b, err := os.ReadFile(keyFile(out))
	return err == nil && string(b) == fmt.Sprintf("%s %d\n", key, stat.Size())
}

// write first creates the bundle under another name, because a machine may be reading the existing one.
func write(ctx context.Context, out, key string, info bundle.Info, files []file, list []images.Named) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	fileSources := lists.Map(files, func(f file) bundle.FileSource {
		return bundle.FileSource{Path: f.Path, Mode: 0o755, Open: func() (io.ReadCloser, error) { return os.Open(f.Source) }}
	})
	imageSources := lists.Map(list, func(i images.Named) bundle.ImageSource { return bundle.ImageSource{Name: i.Name, Image: i.Image} })
	tmp := out + ".new"
	if err := bundle.Create(ctx, tmp, info, fileSources, imageSources); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	stat, err := os.Stat(tmp)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, out); err != nil {
		return err
	}
	return os.WriteFile(keyFile(out), fmt.Appendf(nil, "%s %d\n", key, stat.Size()), 0o644) //nolint:gosec // no secret
}

// fakecloud builds the stand-in of this repository into the cache. It always calls the Go tool, which has its own cache.
func fakecloud(ctx context.Context, logf cache.Logf) (string, error) {
	checkout, err := binaries.Checkout()
	if err != nil {
		return "", err
	}
	base, err := cache.Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	path := filepath.Join(dir, "fakecloud-"+cache.Key(checkout))
	logf("building fakecloud")
	_, err = (exec.Machine{}).Run(ctx, exec.Command{
		Path: "go", Dir: checkout,
		Args: []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "./test/fakecloud"},
		Env:  []string{"CGO_ENABLED=0", "GOFLAGS="},
	})
	if err != nil {
		return "", fmt.Errorf("building fakecloud: %w", err)
	}
	return path, nil
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/ownimage"
	built "yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/require"
)

// TestARM64 runs the release for arm64 on this machine in QEMU. It reports its version, checks the machine, and reads a bundle for arm64. Each
// program refuses the bundle of the other architecture.
func TestARM64(t *testing.T) {
	if os.Getenv("OCADM_TEST_ARM64") == "" {
		t.Skip("make arm64 runs it: it compiles everything for another architecture")
	}
	if runtime.GOARCH == "arm64" {
		t.Skip("this machine is one")
	}
	unpacked, err := debian.Unpack(t.Context(), logf(t), "qemu-user-static")
	require.NoError(t, err)
	dir := t.TempDir()
	run(t, "make", "--no-print-directory", "-C", repository, "release", "VERSION="+releases[0], "ARCHS=arm64", "RELEASE_DIR="+dir)
	run(t, "tar", "--extract", "--strip-components=1", "--directory", dir, "--file", one(t, dir, "*.tar.gz"))
	arm64 := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(unpacked, "usr/bin/qemu-aarch64-static"),
			append([]string{filepath.Join(dir, "ocadm")}, args...)...).CombinedOutput()
		return string(out), err
	}

	var is struct{ Version, Platform string }
	out, err := arm64("version", "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &is) != nil || is.Platform != "linux/arm64" || is.Version != releases[0] {
		t.Fatalf("version: %v\n%s", err, out)
	}
	ours, other := nodeBundle(t, filepath.Join(dir, "ocadm"), "arm64"), nodeBundle(t, "", "amd64")
	if out, err := arm64("bundle", "verify", ours); err != nil {
		t.Errorf("bundle verify: %v\n%s", err, out)
	}
	for file, wrong := range map[string]bool{ours: false, other: true} {
		out, err := arm64("preflight", "init", "--bundle", file, "--ingress", "none", "--node-ip", "192.0.2.99")
		if err == nil || !strings.Contains(out, "OCA-2002") || strings.Contains(out, "OCA-1003") || strings.Contains(out, "OCA-2305") != wrong {
			t.Errorf("preflight with %s: %v\n%s", filepath.Base(file), err, out)
		}
	}
}

// nodeBundle returns a bundle with a word and, if a program is given, its image.
func nodeBundle(t *testing.T, program, arch string) string {
	t.Helper()
	var images []bundle.ImageSource
	if program != "" {
		img, err := ownimage.Pack(program)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		if err != nil || config.Architecture != arch {
			t.Fatalf("the image is for %s (error %v)", config.Architecture, err)
		}
		images = []bundle.ImageSource{{Name: "registry.example.org/ocadm:" + built.Version, Image: img}}
	}
	word := bundle.FileSource{Path: "usr/local/share/word", Mode: 0o644, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("word"))), nil }}
	file := filepath.Join(t.TempDir(), arch+".bundle")
	info := bundle.Info{OS: "linux", Arch: arch, KubernetesVersion: built.Kubernetes}
	require.NoError(t, bundle.Create(t.Context(), file, info, []bundle.FileSource{word}, images))
	return file
}

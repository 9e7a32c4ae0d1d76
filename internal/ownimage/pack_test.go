// SPDX-License-Identifier: Apache-2.0

package ownimage_test

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/ownimage/programtest"
	"yunion.io/x/ocadm/test/require"
)

func pack(t *testing.T, file string) v1.Image {
	t.Helper()
	img, err := ownimage.Pack(file)
	require.NoError(t, err)
	return img
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	require.NoError(t, err)
	return h.String()
}

func TestPack(t *testing.T) {
	file := programtest.Program(t, elf.EM_AARCH64, false, strings.Repeat("text", 1000))
	img := pack(t, file)
	cfg, err := img.ConfigFile()
	require.NoError(t, err)
	want := v1.Config{Entrypoint: []string{"/ocadm"}, User: "65534:65534"}
	if d := cmp.Diff(want, cfg.Config); d != "" || cfg.OS+"/"+cfg.Architecture != "linux/arm64" {
		t.Errorf("for %s/%s; config (-want +got):\n%s", cfg.OS, cfg.Architecture, d)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	in, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer in.Close()
	plain, err := io.ReadAll(in)
	require.NoError(t, err)
	if got, _, _ := v1.SHA256(bytes.NewReader(plain)); len(cfg.RootFS.DiffIDs) != 1 || got != cfg.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, the config lists %s", got, cfg.RootFS.DiffIDs)
	}
	files := map[string][]byte{}
	modes := map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
	if d := cmp.Diff(map[string]int64{"ocadm": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644}, modes); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	whole, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(whole, files["ocadm"]) {
		t.Errorf("the program in the image has %d bytes, %v; want %d", len(files["ocadm"]), err, len(whole))
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) {
		t.Error("the file of certificate authorities holds none")
	}
}

// The digest depends only on the program: not on its path, its time or the number of processors.
func TestSameProgramSameDigest(t *testing.T) {
	text := strings.Repeat("some text of a program. ", 1<<18) // several compressor blocks
	first := digest(t, pack(t, programtest.Program(t, elf.EM_X86_64, false, text)))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if again := digest(t, pack(t, programtest.Program(t, elf.EM_X86_64, false, text))); again != first {
		t.Errorf("%s became %s", first, again)
	}
	if other := digest(t, pack(t, programtest.Program(t, elf.EM_X86_64, false, text+"!"))); other == first {
		t.Error("another program has the same digest")
	}
}

func TestPackRefuses(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	for _, c := range []struct{ name, file, want string }{
		{"nothing there", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"a script", script, "not a Linux program"},
		{"a dynamic program", programtest.Program(t, elf.EM_X86_64, true, ""), "linked dynamically"},
		{"another machine", programtest.Program(t, elf.EM_RISCV, false, ""), "EM_RISCV"},
	} {
		_, err := ownimage.Pack(c.file)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != ownimage.CodePack || !strings.Contains(l[0].Cause, c.want) || l[0].Remedy == "" {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// A program of another architecture cannot be run, so its text is searched for the version that the linker has set. The names of other versions in it,
// and versions that begin like it, do not count.
func TestInspect(t *testing.T) {
	file := programtest.Program(t, elf.EM_AARCH64, false, "text v1.2.4 v1.2.3")
	arch, got, err := ownimage.Inspect(file, "v1.2.3")
	if err != nil || arch != "arm64" || !strings.HasPrefix(got, "sha256:") {
		t.Errorf("%s, %s, %v", arch, got, err)
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("v1.2.3"), 0o600))
	for name, c := range map[string]struct{ file, version string }{
		"another version": {file, "v1.2.4"}, "a candidate": {linked(t, "v1.2.4-rc.1"), "v1.2.4"}, "no program": {text, "v1.2.3"}, "no file": {text + "x", "v1.2.3"},
		"another architecture": {programtest.Program(t, elf.EM_RISCV, false, "v1.2.3"), "v1.2.3"},
	} {
		if _, _, err := ownimage.Inspect(c.file, c.version); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// linked returns a program with a version that the linker has set, which names v1.2.4 like the reference of ocadm.
func linked(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/x\n\ngo 1.24\n",
		"main.go": "package main\n\nvar version = \"\"\n\nfunc main() { print(version, \"v1.2.4\") }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w -X main.version="+version, "-o", "ocadm", ".")
	c.Dir, c.Env = dir, append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "ocadm")
	if arch, _, err := ownimage.Inspect(file, version); err != nil || arch != "arm64" {
		t.Errorf("%s: %q, %v", version, arch, err)
	}
	return file
}

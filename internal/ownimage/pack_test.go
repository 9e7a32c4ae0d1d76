// SPDX-License-Identifier: Apache-2.0

package ownimage_test

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ownimage"
)

// program is an ELF file for a machine, followed by text; with interpreter it asks for a dynamic linker.
func program(t *testing.T, machine elf.Machine, interpreter bool, text string) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	parts := []any{&h}
	if interpreter {
		h.Phoff, h.Phentsize, h.Phnum = 64, 56, 1
		parts = append(parts, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120})
	}
	var b bytes.Buffer
	for _, p := range parts {
		if err := binary.Write(&b, binary.LittleEndian, p); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(text)
	file := filepath.Join(t.TempDir(), "ocadm")
	if err := os.WriteFile(file, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func pack(t *testing.T, file string) v1.Image {
	t.Helper()
	img, err := ownimage.Pack(file)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

func TestPack(t *testing.T) {
	file := program(t, elf.EM_AARCH64, false, strings.Repeat("text", 1000))
	img := pack(t, file)
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: []string{"/ocadm"}, User: "65534:65534"}
	if d := cmp.Diff(want, cfg.Config); d != "" || cfg.OS+"/"+cfg.Architecture != "linux/arm64" {
		t.Errorf("for %s/%s; config (-want +got):\n%s", cfg.OS, cfg.Architecture, d)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	plain, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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

// The digest depends on the program alone: not on its path, its time or the number of processors.
func TestSameProgramSameDigest(t *testing.T) {
	text := strings.Repeat("some text of a program. ", 1<<18) // several blocks of the compressor
	first := digest(t, pack(t, program(t, elf.EM_X86_64, false, text)))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if again := digest(t, pack(t, program(t, elf.EM_X86_64, false, text))); again != first {
		t.Errorf("%s became %s", first, again)
	}
	if other := digest(t, pack(t, program(t, elf.EM_X86_64, false, text+"!"))); other == first {
		t.Error("another program has the same digest")
	}
}

func TestPackRefuses(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, file, want string }{
		{"nothing there", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"a script", script, "no Linux program"},
		{"a dynamic program", program(t, elf.EM_X86_64, true, ""), "linked dynamically"},
		{"another machine", program(t, elf.EM_RISCV, false, ""), "EM_RISCV"},
	} {
		_, err := ownimage.Pack(c.file)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != ownimage.CodePack || !strings.Contains(l[0].Cause, c.want) || l[0].Remedy == "" {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

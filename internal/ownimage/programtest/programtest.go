// SPDX-License-Identifier: Apache-2.0

// Package programtest makes programs of any architecture for tests.
package programtest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// Program returns an ELF file for a machine, followed by text and a zero byte, as the linker ends it; with interpreter it requires a dynamic linker.
func Program(t testing.TB, machine elf.Machine, interpreter bool, text string) string {
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
	b.WriteString(text + "\x00")
	file := filepath.Join(t.TempDir(), "ocadm")
	if err := os.WriteFile(file, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

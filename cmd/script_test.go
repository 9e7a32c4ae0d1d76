// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cmd"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ocadm": func() {
			argv, err := cmd.HideSecrets(os.Args)
			if err != nil {
				os.Exit(cmd.Fail(os.Stderr, err))
			}
			os.Exit(cmd.Execute(context.Background(), cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, argv[1:]))
		},
		"twophases": twoPhases,
	})
}

// The scripts in testdata/script define the behaviour of the command line. "status N ocadm ..." runs it and compares the exit status.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			e.Setenv("TERM", "dumb")
			return os.MkdirAll(filepath.Join(e.WorkDir, "machine", "etc"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "tree": tree, "secretless": secretless, "elf": smallProgram},
	})
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// tree compares the files below a directory with the other arguments.
func tree(ts *testscript.TestScript, neg bool, args []string) {
	var got []string
	root := ts.MkAbs(args[0])
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	if same := strings.Join(got, " ") == strings.Join(args[1:], " "); same == neg {
		ts.Fatalf("the files are %v", got)
	}
}

// secretless fails if a word is in any file below a directory.
func secretless(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(raw), args[1]) {
			err = fmt.Errorf("%s holds the secret", path)
		}
		return err
	}))
}

// smallProgram writes a static program for Linux on amd64 that does nothing: an ELF header.
func smallProgram(ts *testscript.TestScript, _ bool, args []string) {
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var b bytes.Buffer
	ts.Check(binary.Write(&b, binary.LittleEndian, &h))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o755))
}

// Every command has a description and two examples, and leaves no errors to cobra.
func TestEveryCommandIsDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		if c.Short == "" || c.Long == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short %q, Long %q", c.CommandPath(), c.Short, c.Long)
		}
		if n := strings.Count(c.Example, "ocadm "); n < 2 {
			t.Errorf("%s: %d examples", c.CommandPath(), n)
		}
		if !c.Runnable() {
			t.Errorf("%s accepts anything", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cmd.New(cmd.Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}))
}

// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

func itoa(n int) string { return strconv.Itoa(n) }

// The protocol, sentence by sentence.

func TestExecCommandOnlyRegisters(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	marker := filepath.Join(t.TempDir(), "marker")
	sn := register(t, e, "touch", marker)
	capture(t, e, spec("true"))
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("it ran before Start")
	}
	start(t, e, &apis.StartInput{Sn: sn.GetSn()})
	if _, err := e.Wait(t.Context(), sn); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Fatal("it did not run after Start")
	}
}

func TestNumbersAreNotInUse(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	seen := map[uint32]bool{}
	for range 200 {
		sn := register(t, e, "true").GetSn()
		if sn == 0 || seen[sn] {
			t.Fatalf("number %d again", sn)
		}
		seen[sn] = true
	}
}

func TestNumbersWrapAround(t *testing.T) {
	s := newServer(Options{}.withDefaults())
	s.last = ^uint32(0) - 1
	var got []uint32
	for range 2 {
		sn, err := s.ExecCommand(t.Context(), spec("true"))
		require.NoError(t, err)
		got = append(got, sn.GetSn())
	}
	s.last = ^uint32(0) - 1
	sn, err := s.ExecCommand(t.Context(), spec("true"))
	if err != nil || got[0] != ^uint32(0) || got[1] != 1 || sn.GetSn() != 2 {
		t.Errorf("numbers %v, then %v %v", got, sn, err)
	}
}

func TestArgumentsAreWithoutTheName(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	if got := capture(t, e, spec("cat", "/proc/self/cmdline")); got != "cat\x00/proc/self/cmdline\x00" {
		t.Errorf("argv %q", got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("EXECUTOR_TEST", "mine")
	t.Setenv("OCADM_MYSQL_PASSWORD", "secret")
	e := connect(t, serve(t, Options{}))
	if got := capture(t, e, spec("env")); !strings.Contains(got, "EXECUTOR_TEST=mine\n") || strings.Contains(got, "OCADM_") {
		t.Errorf("an empty environment is not the server's own: %s", got)
	}
	given := spec("/usr/bin/env")
	given.Env = byteSlices([]string{"A=1", "B=two words"})
	if got := capture(t, e, given); got != "A=1\nB=two words\n" {
		t.Errorf("environment %q", got)
	}
}

func TestDirectory(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	c := spec("pwd")
	c.Dir = []byte("/usr")
	if got := capture(t, e, c); got != "/usr\n" {
		t.Errorf("directory %q", got)
	}
	own, err := os.Getwd()
	require.NoError(t, err)
	if got := capture(t, e, spec("pwd")); got != own+"\n" {
		t.Errorf("directory %q, not the server's own", got)
	}
}

func TestOwnSession(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	stat := capture(t, e, spec("cat", "/proc/self/stat"))
	pid, _, _ := strings.Cut(stat, " ")
	_, after, _ := strings.Cut(stat, ") ")
	if f := strings.Fields(after); f[3] != pid {
		t.Errorf("session %s of process %s", f[3], pid)
	}
}

func TestOnlyRequestedPipesAreCreated(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	const show = `for n in 0 1 2; do readlink /proc/$$/fd/$n; done | sed 's/:.*//' >"$1"`
	for _, c := range []struct {
		in   *apis.StartInput
		want string
	}{
		{&apis.StartInput{}, "/dev/null\n/dev/null\n/dev/null\n"},
		{&apis.StartInput{HasStdout: true}, "/dev/null\npipe\n/dev/null\n"},
		{&apis.StartInput{HasStdin: true, HasStderr: true}, "pipe\n/dev/null\npipe\n"},
	} {
		file := filepath.Join(t.TempDir(), "fds")
		sn := register(t, e, "sh", "-c", show, "sh", file)
		c.in.Sn = sn.GetSn()
		start(t, e, c.in)
		if c.in.HasStdout {
			stdout(t, e, sn)
		}
		if c.in.HasStderr {
			if s, err := e.FetchStderr(t.Context(), sn); err != nil || receive(s, nil, func(p *apis.Stderr) ([]byte, bool, []byte) { return nil, p.GetClosed(), nil }, new(strings.Builder)) != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Wait(t.Context(), sn); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != c.want {
			t.Errorf("pipes %q, want %q (%v)", got, c.want, err)
		}
	}
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	for _, c := range []struct {
		command *apis.Command
		want    string
	}{
		{spec("no-such-program"), `exec: "no-such-program": executable file not found in $PATH`},
		{spec(""), `exec: "": executable file not found in $PATH`},
		{spec("/no/such/program"), "fork/exec /no/such/program: no such file or directory"},
		{spec("/etc"), "fork/exec /etc: permission denied"},
		{spec("true", "a\x00b"), "invalid argument"},
		{&apis.Command{Path: []byte("true"), Env: [][]byte{[]byte("A=\x00")}}, "exec: environment variable contains NUL"},
		{&apis.Command{Path: []byte("true"), Dir: []byte("/no/such/directory")}, "no such file or directory"},
	} {
		sn, err := e.ExecCommand(t.Context(), c.command)
		require.NoError(t, err)
		res, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.GetSn(), HasStdin: true, HasStdout: true, HasStderr: true})
		if err != nil || res.GetSuccess() || !strings.Contains(string(res.GetError()), c.want) {
			t.Errorf("%q: %v %v", c.want, res, err)
		}
		// NotFound is not an exit status.
		w, err := e.Wait(t.Context(), sn)
		if err != nil || w.GetExitStatus() != 0 || string(w.GetErrContent()) != string(res.GetError()) {
			t.Errorf("%q: wait: %v %v", c.want, w, err)
		}
	}
}

func TestUnknownNumberIsAnError(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := &apis.Sn{Sn: 4711}
	input, err := e.SendInput(t.Context())
	require.NoError(t, err)
	require.NoError(t, input.Send(&apis.Input{Sn: sn.Sn}))
	fetch := func(s interface{ RecvMsg(any) error }, err error) error {
		if err != nil {
			return err
		}
		return s.RecvMsg(&apis.Stdout{})
	}
	calls := map[string]func() error{
		"Start":       func() error { _, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.Sn}); return err },
		"Wait":        func() error { _, err := e.Wait(t.Context(), sn); return err },
		"Kill":        func() error { _, err := e.Kill(t.Context(), sn); return err },
		"SendInput":   func() error { _, err := input.CloseAndRecv(); return err },
		"FetchStdout": func() error { s, err := e.FetchStdout(t.Context(), sn); return fetch(s, err) },
		"FetchStderr": func() error { s, err := e.FetchStderr(t.Context(), sn); return fetch(s, err) },
	}
	for name, call := range calls {
		if err := call(); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "unknown sn 4711") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOutputComesInPieces(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "head", "-c", "100000", "/dev/zero")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdout: true})
	total := 0
	for _, m := range messages(t, e, sn) {
		if len(m.GetStdout()) > 4096 {
			t.Errorf("a piece of %d bytes", len(m.GetStdout()))
		}
		total += len(m.GetStdout())
	}
	if total != 100000 {
		t.Errorf("%d bytes", total)
	}
}

func TestEndOfStreamClosesInput(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	for name, pieces := range map[string][]string{"pieces": {"one ", "", "two"}, "no piece": nil} {
		t.Run(name, func(t *testing.T) {
			sn := register(t, e, "cat")
			start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true, HasStdout: true})
			s, err := e.SendInput(t.Context())
			require.NoError(t, err)
			for _, p := range pieces {
				require.NoError(t, s.Send(&apis.Input{Sn: sn.GetSn(), Input: []byte(p)}))
			}
			if res, err := s.CloseAndRecv(); err != nil || len(res.GetError()) > 0 {
				t.Fatal(res, err)
			}
			if got := stdout(t, e, sn); got != strings.Join(pieces, "") {
				t.Errorf("cat wrote %q", got)
			}
			if res, err := e.Wait(t.Context(), sn); err != nil || res.GetExitStatus() != 0 {
				t.Error(res, err)
			}
		})
	}
}

// A program need not read all of its input. Only its exit status counts.
func TestProgramThatReadsNoInput(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "true")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true})
	s, err := e.SendInput(t.Context())
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, s.Send(&apis.Input{Sn: sn.GetSn(), Input: make([]byte, 4096)}))
	}
	if res, err := s.CloseAndRecv(); err != nil || len(res.GetError()) > 0 {
		t.Error(res, err)
	}
	if res, err := e.Wait(t.Context(), sn); err != nil || res.GetExitStatus() != 0 {
		t.Error(res, err)
	}
}

// The services' client sends input concurrently with Wait. A program that exits immediately may be forgotten before its input arrives.
func TestInputAfterWait(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "true")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true})
	if _, err := e.Wait(t.Context(), sn); err != nil {
		t.Fatal(err)
	}
	s, err := e.SendInput(t.Context())
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, s.Send(&apis.Input{Sn: sn.GetSn(), Input: make([]byte, 4096)}))
	}
	if res, err := s.CloseAndRecv(); err != nil || len(res.GetError()) > 0 {
		t.Error(res, err)
	}
}

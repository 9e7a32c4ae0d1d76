// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

func TestWaitReturnsTheRawStatus(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	for script, want := range map[string]uint32{"exit 0": 0, "exit 3": 3 << 8, "exit 255": 255 << 8, "kill -9 $$": 9, "kill -15 $$": 15} {
		sn := register(t, e, "sh", "-c", script)
		start(t, e, &apis.StartInput{Sn: sn.GetSn()})
		if res, err := e.Wait(t.Context(), sn); err != nil || res.GetExitStatus() != want || len(res.GetErrContent()) > 0 {
			t.Errorf("%s: %v %v, want %d", script, res, err, want)
		}
	}
}

func TestWaitAnswersAfterTheOutputWasRead(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	marker := filepath.Join(t.TempDir(), "marker")
	sn := register(t, e, "sh", "-c", `echo hello; touch "$1"`, "sh", marker)
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdout: true})
	ended := make(chan error, 1)
	go func() { _, err := e.Wait(t.Context(), sn); ended <- err }()
	eventually(t, "the output", func() bool { _, err := os.Stat(marker); return err == nil })
	eventually(t, "the program's end", func() bool {
		res, err := e.Kill(t.Context(), sn)
		return err == nil && string(res.GetError()) == os.ErrProcessDone.Error()
	})
	select {
	case err := <-ended:
		t.Fatalf("Wait answered before the output was read: %v", err)
	default:
	}
	if got := stdout(t, e, sn); got != "hello\n" {
		t.Errorf("output %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWaitWithoutStart(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "true")
	if res, err := e.Kill(t.Context(), sn); err != nil || string(res.GetError()) != "exec: not started" {
		t.Errorf("kill: %v %v", res, err)
	}
	if res, err := e.Wait(t.Context(), sn); err != nil || string(res.GetErrContent()) != "exec: not started" {
		t.Errorf("wait: %v %v", res, err)
	}
}

func TestWaitForgetsTheNumber(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "true")
	start(t, e, &apis.StartInput{Sn: sn.GetSn()})
	if res, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.GetSn()}); err != nil || string(res.GetError()) != "exec: already started" {
		t.Errorf("start again: %v %v", res, err)
	}
	if _, err := e.Wait(t.Context(), sn); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(t.Context(), sn); status.Code(err) != codes.NotFound {
		t.Errorf("wait again: %v", err)
	}
}

func TestSecondWait(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "cat")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true})
	answers := make(chan *apis.WaitResponse, 2)
	for range 2 {
		go func() {
			res, err := e.Wait(t.Context(), sn)
			if err != nil {
				t.Error(err)
			}
			answers <- res
		}()
	}
	if res := <-answers; string(res.GetErrContent()) != "exec: Wait was already called" {
		t.Errorf("the second Wait: %v", res)
	}
	if _, err := e.Kill(t.Context(), sn); err != nil {
		t.Error(err)
	}
	if res := <-answers; res.GetExitStatus() != uint32(syscall.SIGKILL) {
		t.Errorf("the first Wait: %v", res)
	}
}

// A client whose Wait was canceled may wait again.
func TestWaitAgainAfterACanceledOne(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "cat")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Wait(ctx, sn); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	if _, err := e.Kill(t.Context(), sn); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the exit status", func() bool {
		res, err := e.Wait(t.Context(), sn)
		return err == nil && res.GetExitStatus() == uint32(syscall.SIGKILL)
	})
}

func TestKillEndsTheProcessOnly(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	file := filepath.Join(t.TempDir(), "pid")
	sn := register(t, e, "sh", "-c", `sleep 1000 & echo $! >"$1.new" && mv "$1.new" "$1"; wait`, "sh", file)
	start(t, e, &apis.StartInput{Sn: sn.GetSn()})
	child := pidIn(t, file)
	if res, err := e.Kill(t.Context(), sn); err != nil || len(res.GetError()) > 0 {
		t.Fatal(res, err)
	}
	if res, err := e.Wait(t.Context(), sn); err != nil || res.GetExitStatus() != uint32(syscall.SIGKILL) {
		t.Error(res, err)
	}
	if !alive(child) {
		t.Error("the child was killed, too")
	}
}

// pidIn waits for a file with a process ID, and kills that process when the test ends.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	eventually(t, file, func() bool {
		raw, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	})
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

func TestSearchPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "only-here"), []byte("#!/bin/sh\necho \"$PATH\"\n"), 0o755))
	t.Setenv("PATH", dir)
	e := connect(t, serve(t, Options{}))
	const want = "/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin"
	if got := capture(t, e, spec("only-here")); got != want+":"+dir+"\n" {
		t.Errorf("PATH is %q", got)
	}
	if got := searchPath(""); got != want {
		t.Errorf("PATH without one of the server is %q", got)
	}
}

func TestOneStreamPerPipe(t *testing.T) {
	e := connect(t, serve(t, Options{}))
	sn := register(t, e, "cat")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true, HasStdout: true})
	first, err := e.FetchStdout(t.Context(), sn)
	require.NoError(t, err)
	if m, err := first.Recv(); err != nil || !m.GetStart() {
		t.Fatal(m, err)
	}
	second, err := e.FetchStdout(t.Context(), sn)
	require.NoError(t, err)
	if _, err := second.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second stream of standard output: %v", err)
	}
	none, err := e.FetchStderr(t.Context(), sn)
	require.NoError(t, err)
	if _, err := none.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a stream of a pipe that was not asked for: %v", err)
	}
	if _, err := e.Kill(t.Context(), sn); err != nil {
		t.Error(err)
	}
}

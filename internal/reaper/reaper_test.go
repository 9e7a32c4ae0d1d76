// SPDX-License-Identifier: Apache-2.0

package reaper_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/reaper"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
)

// role makes the test binary the first process of a container.
const role = "OCADM_TEST_REAPER"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	status, err := reaper.Run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 99
	}
	os.Exit(status)
}

// first starts a shell script under a reaper.
func first(t *testing.T, script string) (c *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c = exec.CommandContext(t.Context(), self, "/bin/sh", "-c", script)
	c.Env = append(os.Environ(), role+"=1")
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	return c, bufio.NewReader(pipe)
}

func TestStatus(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9} {
		c, out := first(t, script)
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait()
		if got := c.ProcessState.ExitCode(); got != want {
			t.Errorf("%q ended with %d, want %d", script, got, want)
		}
	}
	if _, err := reaper.Run([]string{filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a program that is not there was run")
	}
}

// Signals reach the program, which handles them.
func TestSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		name := strings.TrimPrefix(map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGHUP: "HUP", syscall.SIGUSR1: "USR1"}[s], "SIG")
		c, out := first(t, "trap 'echo got; exit 5' "+name+"; echo ready; while :; do sleep 0.05; done")
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		require.NoError(t, c.Process.Signal(s))
		rest, _ := io.ReadAll(out)
		_ = c.Wait()
		if string(rest) != "got\n" || c.ProcessState.ExitCode() != 5 {
			t.Errorf("%v: printed %q, ended with %d", s, rest, c.ProcessState.ExitCode())
		}
	}
}

// Orphans are adopted by the reaper, and none remains a zombie.
func TestOrphans(t *testing.T) {
	// Each subshell leaves behind a child that ends after its parent.
	c, out := first(t, "for n in 1 2 3 4 5 6 7 8; do (sh -c 'sleep 0.2; exec true' & echo $!); done; (sleep 60 >/dev/null & echo last $!); echo ready; while :; do sleep 0.05; done")
	var orphans []int
	for {
		line, err := out.ReadString('\n')
		require.NoError(t, err)
		if line == "ready\n" {
			break
		}
		pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "last ")))
		require.NoError(t, err)
		orphans = append(orphans, pid)
	}
	_ = c
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := orphans[len(orphans)-1]
	err := wait.Until(ctx, "orphans", 10*time.Millisecond, func(context.Context) (bool, string, error) {
		for _, pid := range orphans[:len(orphans)-1] {
			if state := stateOf(pid); state != "" {
				return false, fmt.Sprintf("process %d is %s", pid, state), nil
			}
		}
		return true, "", nil
	}, func(string) {})
	require.NoError(t, err)
	if parent := parentOf(last); parent != c.Process.Pid {
		t.Errorf("the orphan's parent is %d, the reaper is %d", parent, c.Process.Pid)
	}
	_ = syscall.Kill(last, syscall.SIGKILL)
	_ = c.Process.Signal(syscall.SIGKILL)
	_ = c.Wait()
}

// stateOf returns the letter of a process's state, "" if there is no such process.
func stateOf(pid int) string { return field(pid, "State:") }

func parentOf(pid int) int {
	n, _ := strconv.Atoi(field(pid, "PPid:"))
	return n
}

func field(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.Fields(rest)[0]
		}
	}
	return ""
}

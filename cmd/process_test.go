// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunion.io/x/ocadm/cmd"
	runner "yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// twoPhases is a separate program for signal tests: its first phase runs a shell script, its second creates a file.
func twoPhases() {
	dir := os.Args[1]
	ctx, release := cmd.Signals(context.Background(), os.Exit)
	defer release()
	type phase = workflow.Phase[string]
	r := workflow.Runner[string]{Plan: "test", Sink: said{}, Phases: []phase{
		{Name: "first", Short: "Run a script", Run: func(ctx context.Context, dir string, _ workflow.Reporter) error {
			_, err := runner.Machine{}.Run(ctx, runner.Command{Path: "sh", Dir: dir, Args: []string{"-c",
				"trap 'echo killed >killed; exit 1' TERM; trap 'echo interrupted >interrupted' INT; echo >pipe & cat <held & wait $!; echo ended >ended"}})
			return err
		}},
		{Name: "second", Short: "Make a file", Run: func(_ context.Context, dir string, _ workflow.Reporter) error {
			return os.WriteFile(filepath.Join(dir, "second"), nil, 0o600)
		}},
	}}
	_, err := r.Run(cmd.Killed(ctx), dir, workflow.Options{Stop: ctx})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(finding.ExitStatus(err))
}

type said struct{}

func (said) Event(e workflow.Event) {
	if e.Message != "" {
		fmt.Println(e.Message)
	}
}

// interruptible starts twoPhases like a shell in a terminal, in its own process group, and waits until the script runs.
func interruptible(t *testing.T) (dir string, c *exec.Cmd, out *lines) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"pipe", "held"} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	program, err := exec.LookPath("twophases")
	require.NoError(t, err)
	out = &lines{seen: make(chan string, 100)}
	c = exec.CommandContext(t.Context(), program, dir)
	c.Stdout, c.Stderr = out, t.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	if _, err := os.ReadFile(filepath.Join(dir, "pipe")); err != nil { // opens once the script does
		t.Fatal(err)
	}
	return dir, c, out
}

// lines is a writer that passes on each line as it comes.
type lines struct {
	seen chan string
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.seen <- string(line)
		l.rest = rest
	}
}

func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line := <-l.seen:
			if strings.Contains(line, part) {
				return
			}
		case <-late:
			t.Fatalf("no line with %q within a minute", part)
		}
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Ctrl-C reaches every process in the terminal's foreground. The running phase still finishes, and no more phases begin.
func TestFirstInterruptLetsThePhaseFinish(t *testing.T) {
	dir, c, out := interruptible(t)
	require.NoError(t, syscall.Kill(-c.Process.Pid, syscall.SIGINT))
	out.await(t, "waiting until these phases end, and starting no more: first;")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "held"), []byte("go on\n"), 0o600))
	if got := exitStatus(c.Wait()); got != finding.ExitInterrupted {
		t.Errorf("exit status %d", got)
	}
	if !exists(dir, "ended") || exists(dir, "killed") || exists(dir, "interrupted") || exists(dir, "second") {
		t.Errorf("ended %t, killed %t, interrupted %t, second phase %t", exists(dir, "ended"), exists(dir, "killed"), exists(dir, "interrupted"), exists(dir, "second"))
	}
}

// A terminal that closes, perhaps with several signals, does not end a phase in the middle.
func TestClosedTerminalLetsThePhaseFinish(t *testing.T) {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // the program would inherit that it is ignored, if the tests run under nohup
	defer signal.Stop(hangUps)
	dir, c, out := interruptible(t)
	require.NoError(t, syscall.Kill(c.Process.Pid, syscall.SIGHUP))
	out.await(t, "waiting until these phases end")
	require.NoError(t, syscall.Kill(c.Process.Pid, syscall.SIGHUP))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "held"), []byte("go on\n"), 0o600))
	if got := exitStatus(c.Wait()); got != finding.ExitInterrupted {
		t.Errorf("exit status %d", got)
	}
	if !exists(dir, "ended") || exists(dir, "killed") || exists(dir, "second") {
		t.Errorf("ended %t, killed %t, second phase %t", exists(dir, "ended"), exists(dir, "killed"), exists(dir, "second"))
	}
}

func TestSecondInterruptEndsThePhaseAndItsPrograms(t *testing.T) {
	dir, c, out := interruptible(t)
	require.NoError(t, syscall.Kill(-c.Process.Pid, syscall.SIGINT))
	out.await(t, "waiting until these phases end")
	require.NoError(t, syscall.Kill(-c.Process.Pid, syscall.SIGINT))
	if got := exitStatus(c.Wait()); got != finding.ExitInterrupted {
		t.Errorf("exit status %d", got)
	}
	if !exists(dir, "killed") || exists(dir, "ended") || exists(dir, "second") {
		t.Errorf("killed %t, ended %t, second phase %t", exists(dir, "killed"), exists(dir, "ended"), exists(dir, "second"))
	}
}

// While a command runs, its arguments contain no secrets, although it still has them.
func TestSecretsLeaveTheArguments(t *testing.T) {
	program, err := exec.LookPath("ocadm")
	require.NoError(t, err)
	for name, args := range map[string][]string{
		"a token and a password": {"init", "--token", "abcdef.0123456789abcdef", "--mysql-password=canary-4711"},
		"a joining node's token": {"join", "192.0.2.1:6443", "--token=abcdef.0123456789abcdef"},
		"an old flag":            {"join", "192.0.2.1:6443", "--discovery-token", "abcdef.0123456789abcdef"},
	} {
		t.Run(name, func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "config")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			c := exec.CommandContext(t.Context(), program, append(args, "--dry-run", "--rootfs", t.TempDir(), "--config", pipe)...)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			require.NoError(t, c.Start())
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // opens when the command reads its configuration
			require.NoError(t, err)
			shown, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.Pid))
			if err != nil || strings.Contains(string(shown), "0123456789abcdef") || strings.Contains(string(shown), "canary") || !strings.Contains(string(shown), args[0]) {
				t.Errorf("the arguments are %q, %v", shown, err)
			}
			if _, err := f.WriteString("nonsense: true\n"); err != nil {
				t.Error(err)
			}
			_ = f.Close()
			_ = c.Wait() // the configuration is refused
			if !strings.Contains(out.String(), "nonsense") || strings.Contains(out.String(), "arguments-fd") {
				t.Errorf("printed %s", out.String())
			}
		})
	}
}

// Nothing is read from the machine before the lock is held: otherwise another run's files would count as preexisting.
func TestTheLockComesFirst(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "var/lib/ocadm/ledger.jsonl")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(ledger), 0o700), os.WriteFile(ledger, []byte("half a line of another run\n{}\n"), 0o600)))
	unlock, err := workflow.Lock(filepath.Join(root, "run/ocadm.lock"))
	require.NoError(t, err)
	defer unlock()
	var out bytes.Buffer
	cmd.Execute(t.Context(), cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, []string{"reset", "--rootfs", root, "--node-name", "n1"})
	if !strings.Contains(out.String(), "OCA-1050") {
		t.Errorf("printed %s", out.String())
	}
	// A program that follows the run, such as "fleet apply", learns from the event that it can wait.
	out.Reset()
	cmd.Execute(t.Context(), cmd.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}, []string{"reset", "--rootfs", root, "--node-name", "n1", "-o", "jsonl"})
	var e workflow.Event
	if err := json.Unmarshal(out.Bytes(), &e); err != nil || e.Type != workflow.RunFailed || e.Plan != "reset" {
		t.Errorf("%v: printed %s", err, out.String())
	} else if cause, busy := workflow.Busy(e.Findings); !busy || cause == "" {
		t.Errorf("%+v", e)
	}
}

// A run does not end in the middle of a phase because nothing reads its output any more.
func TestRunOutlivesItsReader(t *testing.T) {
	program, err := exec.LookPath("ocadm")
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	_ = r.Close()
	root := t.TempDir()
	c := exec.CommandContext(t.Context(), program, "init", "phase", "kubeadm-config", "--rootfs", root, "--node-name", "n1", "--node-ip", "192.0.2.1")
	c.Stdout, c.Stderr = w, w
	if err := c.Run(); err != nil || !exists(root, "etc/ocadm/kubeadm.yaml") {
		t.Errorf("%v, wrote its file: %t", err, exists(root, "etc/ocadm/kubeadm.yaml"))
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package exec runs other programs, without a shell. It captures output, honours contexts, and can be faked in tests.
package exec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// Command is one program to run. Secrets go through Stdin, a file or Env, never through Args.
type Command struct {
	Path string
	Args []string
	// Env is added to this process's environment, from which ocadm's own settings are removed.
	Env   []string
	Dir   string
	Stdin io.Reader
	// Stdout, when set, receives standard output instead of Result.Stdout.
	Stdout io.Writer
	// Bound programs are killed when this process dies for any reason. Use it for programs that would collide with a repeated run, but not for those
	// that must not be interrupted, such as a package manager.
	Bound bool
	// OnLine, when set, is called with each line of standard output and standard error as it arrives.
	OnLine func(line string)
}

// Result is the outcome of a program.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Runner runs programs. Machine is the real one.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Error is the error of a failed program: its argv, exit status and the end of its output.
type Error struct {
	Argv     []string
	ExitCode int
	Output   string
	Err      error
}

func (e *Error) Error() string {
	last := lastLine(e.Output)
	if last != "" {
		last = ": " + last
	}
	return fmt.Sprintf("running %s: %v%s", strings.Join(e.Argv, " "), e.Err, last)
}

func (e *Error) Unwrap() error { return e.Err }

// Machine runs programs on this machine.
type Machine struct{}

// killDelay is how long a program may take to exit after SIGTERM, once the context is done.
const killDelay = 5 * time.Second

// A program that this process has just written may be busy (ETXTBSY) for a moment: a concurrently forked child holds the file open until it calls
// exec.
const (
	busyTries = 50
	busyDelay = 20 * time.Millisecond
)

// Run starts the program, in a process group of its own, and waits for it. When ctx ends, the group is sent SIGTERM and, killDelay later,
// SIGKILL.
func (m Machine) Run(ctx context.Context, c Command) (Result, error) {
	for try := 1; ; try++ {
		r, err := m.run(ctx, c)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return r, err
		}
		if wait.Sleep(ctx, busyDelay) != nil {
			return r, err
		}
	}
}

func (Machine) run(ctx context.Context, c Command) (Result, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) //nolint:gosec // this package runs what the caller names
	cmd.Env = append(environment(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdin = c.Stdin
	// A separate process group: Ctrl-C in a terminal goes to the whole foreground group, but this process decides what ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.Bound {
		// The kernel sends the signal when the thread that started the program dies, so that thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	var lines, errLines LineWriter
	if c.OnLine != nil {
		lines.Emit, errLines.Emit = c.OnLine, c.OnLine
		cmd.Stdout, cmd.Stderr = io.MultiWriter(cmd.Stdout, &lines), io.MultiWriter(cmd.Stderr, &errLines)
	}
	err := cmd.Run()
	lines.flush()
	errLines.flush()
	r := Result{Stdout: out.String(), Stderr: errOut.String()}
	if cmd.ProcessState != nil {
		r.ExitCode = cmd.ProcessState.ExitCode()
	}
	if err == nil {
		return r, nil
	}
	if ctxErr := context.Cause(ctx); ctxErr != nil {
		err = ctxErr
		if cmd.Process != nil {
			_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL) // children that it left running
		}
	}
	return r, &Error{Argv: append([]string{c.Path}, c.Args...), ExitCode: r.ExitCode, Output: tail(out.String()) + errOut.String(), Err: err}
}

// signalGroup sends a signal to a program and its children.
func signalGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// ownVariables is the prefix of ocadm's own settings, including passwords, which other programs must not see.
const ownVariables = "OCADM_"

// environment also makes programs print English, which callers read: ufw and ping translate what they print, and Python programs ask LANGUAGE first.
func environment() []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, ownVariables) })
	return append(own, "LC_ALL=C.UTF-8", "LANGUAGE=C")
}

// LineWriter calls Emit with each complete line that is written to it, without the newline.
type LineWriter struct {
	Emit func(string)
	rest []byte
}

func (l *LineWriter) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		l.Emit(string(bytes.TrimRight(l.rest[:i], "\r")))
		l.rest = l.rest[i+1:]
	}
}

func (l *LineWriter) flush() {
	if len(l.rest) > 0 {
		l.Emit(string(l.rest))
		l.rest = nil
	}
}

const tailBytes = 4096

func tail(s string) string {
	if len(s) > tailBytes {
		return s[len(s)-tailBytes:]
	}
	return s
}

func lastLine(s string) string {
	var last string
	sc := bufio.NewScanner(strings.NewReader(s))
	for sc.Scan() {
		if t := strings.TrimSpace(sc.Text()); t != "" {
			last = t
		}
	}
	return last
}

// Output returns the output of the failed program in err, if there is one.
func Output(err error) (string, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Output, true
	}
	return "", false
}

// SPDX-License-Identifier: Apache-2.0

// Package exec runs other programs: captured, cancellable, replaceable by a fake in tests. It is no shell.
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
)

// Command is one program to run. Secrets go through Stdin, a file or Env, never through Args.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment of this process, of which the settings of this program are left out.
	Env   []string
	Dir   string
	Stdin io.Reader
	// Stdout, when set, receives standard output instead of Result.Stdout.
	Stdout io.Writer
	// Bound programs are killed when this process dies, however it dies. It is for those that a repeated run would collide with. Programs that must not
	// be torn from their work, such as a package manager, go on.
	Bound bool
	// OnLine, when set, is called for each line of standard output and standard error as it comes.
	OnLine func(line string)
}

// Result is what a program left behind.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Runner runs programs. Machine is the real one.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Error is a program that ended badly: its argv, exit status and the end of what it printed.
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

// killDelay is how long a program may take to end after it was asked to, once the context is done.
const killDelay = 5 * time.Second

// A program that this process has just written may be busy for a moment: a child that is being started beside holds the file open
// until it has become its own program.
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
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(busyDelay):
		}
	}
}

func (Machine) run(ctx context.Context, c Command) (Result, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) //nolint:gosec // running what the caller names is this package's purpose
	cmd.Env = append(environment(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdin = c.Stdin
	// A process group of its own: Ctrl-C in a terminal goes to the whole group, and it is this process that decides what ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.Bound {
		// The kernel sends the signal when the thread dies that started the program, so that one has to stay.
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
			_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL) // what it started and did not end
		}
	}
	return r, &Error{Argv: append([]string{c.Path}, c.Args...), ExitCode: r.ExitCode, Output: tail(out.String()) + errOut.String(), Err: err}
}

// signalGroup sends a signal to a program and to what it started.
func signalGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// ownVariables begins the names of the variables that hold settings of this program, passwords among them: no other program's business.
const ownVariables = "OCADM_"

func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, ownVariables) })
}

// LineWriter calls Emit with each whole line that is written to it, without its end.
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

// Output returns what err's program printed, and whether err holds one.
func Output(err error) (string, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Output, true
	}
	return "", false
}

// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mount binds a directory or a file into a root.
type mount struct {
	source, target string
	readOnly       bool
}

// sandbox is what a process sees: a root, a host name, and mounts that nobody else sees.
type sandbox struct {
	root, hostname string
	mounts         []mount
}

// process is a program in a sandbox.
type process struct {
	cmd    *exec.Cmd
	out    *output
	exited chan struct{}
}

// permitted tries whether this user may make a mount namespace.
func permitted() error {
	result := make(chan error, 1)
	onThread(func() { result <- unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS) })
	if err := <-result; err != nil {
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	return nil
}

// onThread runs a function on a thread of its own, which ends with it, and with it the namespaces that the function entered. The
// main thread would not end: if the scheduler hands it out, it waits aside.
func onThread(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do()
			return // locked: the runtime ends the thread
		}
		taken := make(chan struct{})
		onThread(func() { close(taken); do() })
		<-taken
		runtime.UnlockOSThread()
	}()
}

// start starts a program in a sandbox, in namespaces of its own. It dies with this program.
func start(s sandbox, argv, env []string, log, prefix string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	p := &process{cmd: &exec.Cmd{Path: argv[0], Args: argv, Env: env, Dir: "/"}, out: &output{to: file, prefix: prefix}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	onThread(func() {
		defer file.Close()
		defer close(p.exited)
		err := s.enter()
		if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the exit code tells
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return p, nil
}

// enter gives the calling thread namespaces of its own and the mounts in them.
func (s sandbox) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Sethostname([]byte(s.hostname)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	// A directory before what lies in it; mount points are made before anything becomes read-only.
	mounts := slices.Clone(s.mounts)
	slices.SortStableFunc(mounts, func(a, b mount) int { return strings.Compare(a.target, b.target) })
	for _, m := range mounts {
		if err := bind(m.source, filepath.Join(s.root, m.target)); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		if !m.readOnly {
			continue
		}
		if err := unix.Mount("", filepath.Join(s.root, m.target), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", m.target, err)
		}
	}
	return nil
}

func bind(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755) //nolint:gosec // as a container runtime does
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil { //nolint:gosec // as above
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("making mount point %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// wait waits for the end and returns the exit code. When ctx ends the program is asked to end, and after the grace period made to.
func (p *process) wait(ctx context.Context, grace time.Duration) int {
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(grace):
			p.kill()
			<-p.exited
		}
	}
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// kill ends the program at once; one that has ended already is no matter.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) lastLines() string { return p.out.last() }

// output writes lines to the log, each with its container, and remembers the last.
type output struct {
	to     io.Writer
	prefix string

	mu    sync.Mutex
	rest  string
	lines []string
}

const tail = 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest += string(b)
	for {
		line, rest, whole := strings.Cut(o.rest, "\n")
		if !whole {
			return len(b), nil
		}
		o.rest = rest
		o.lines = append(o.lines, line)
		o.lines = o.lines[max(0, len(o.lines)-tail):]
		if _, err := fmt.Fprintf(o.to, "%s %s\n", o.prefix, line); err != nil {
			return len(b), err
		}
	}
}

func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

// SPDX-License-Identifier: Apache-2.0

// Package child runs the programs that tests need. They end with this process, even if it is killed. Their output goes to a file.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is a started program.
type Process struct {
	Cmd *exec.Cmd
	// Exited is closed when the program has ended.
	Exited chan struct{}
	log    string
}

// Start starts a command whose output is appended to a file.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening log of %s: %w", filepath.Base(cmd.Path), err)
	}
	defer out.Close()
	p := &Process{Cmd: cmd, log: log, Exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		defer close(p.Exited)
		// The kernel ties Pdeathsig to the starting thread, which must therefore live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState holds the result
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Ended returns an error with the last lines of output if the program has ended.
func (p *Process) Ended() error {
	select {
	case <-p.Exited:
		return fmt.Errorf("%s ended: %s\n%s", filepath.Base(p.Cmd.Path), p.Cmd.ProcessState, p.Tail())
	default:
		return nil
	}
}

// Stop terminates the program and waits. After the grace period it kills the program.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.Exited:
	case <-time.After(grace):
		p.Kill()
	}
}

// Kill kills the program and waits.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.Exited
}

// Output returns the output of the program and of all others that log to the same file.
func (p *Process) Output() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail returns the last lines of the output.
func (p *Process) Tail() string { return LastLines(p.Output(), 12) }

// LastLines returns the last n lines of an output.
func LastLines(output string, n int) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

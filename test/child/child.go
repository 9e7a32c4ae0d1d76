// SPDX-License-Identifier: Apache-2.0

// Package child runs the programs that tests need. They end with this one, however that ends, and what they print goes to a file.
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

// Process is a program that was started.
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
		// The kernel ties Pdeathsig to the starting thread, so that has to live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state says how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Ended returns an error with the end of the output if the program has ended.
func (p *Process) Ended() error {
	select {
	case <-p.Exited:
		return fmt.Errorf("%s ended: %s\n%s", filepath.Base(p.Cmd.Path), p.Cmd.ProcessState, p.Tail())
	default:
		return nil
	}
}

// Stop asks the program to end and waits; after some time it is made to.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.Exited:
	case <-time.After(grace):
		p.Kill()
	}
}

// Kill ends the program at once.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.Exited
}

// Output is what the program has printed, and what others did that have the same file.
func (p *Process) Output() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail is the end of the output.
func (p *Process) Tail() string {
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

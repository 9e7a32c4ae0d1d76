// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/executor/apis"
)

// Error messages of os/exec, which clients compare.
var (
	errNotStarted = errors.New("exec: not started")
	errStarted    = errors.New("exec: already started")
	errWaited     = errors.New("exec: Wait was already called")
)

// command is a registered command and, once started, its process.
type command struct {
	sn   uint32
	spec *apis.Command

	// The server's mutex guards these fields, which count the clients of the command.
	connections map[*connection]struct{}
	calls       int
	timer       *time.Timer

	mu      sync.Mutex
	started bool
	// failed is the error of starting the program.
	failed  error
	waiting bool
	process *os.Process
	// ended is closed after status and failure are set.
	ended          chan struct{}
	status         syscall.WaitStatus
	failure        error
	stdin          *os.File
	stdinTaken     bool
	stdout, stderr *output
}

// name returns the program without its arguments, which may hold secrets.
func (c *command) name() string { return filepath.Base(string(c.spec.GetPath())) }

// running reports whether the program was started and has not exited.
func (c *command) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// attended reports whether a client may still ask for the command, see Options.AbandonAfter. The caller holds the server's mutex.
func (c *command) attended() bool { return c.calls > 0 || len(c.connections) > 0 && c.running() }

// start starts the program with the requested pipes. onEnd is called after it has exited.
func (c *command) start(in *apis.StartInput, onEnd func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return errStarted
	}
	c.started = true
	c.failed = c.startLocked(in, onEnd)
	return c.failed
}

func (c *command) startLocked(in *apis.StartInput, onEnd func()) error {
	cmd, err := program(c.spec)
	if err != nil {
		return err
	}
	var theirs, ours []*os.File
	defer func() { closeAll(theirs) }()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	if in.GetHasStdin() {
		r, w := pipe()
		theirs, ours = append(theirs, r), append(ours, w)
		cmd.Stdin, c.stdin = r, w
	}
	if in.GetHasStdout() {
		r, w := pipe()
		theirs, ours = append(theirs, w), append(ours, r)
		cmd.Stdout, c.stdout = w, newOutput(r)
	}
	if in.GetHasStderr() {
		r, w := pipe()
		theirs, ours = append(theirs, w), append(ours, r)
		cmd.Stderr, c.stderr = w, newOutput(r)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		closeAll(ours)
		c.stdin, c.stdout, c.stderr = nil, nil, nil
		return err
	}
	c.process = cmd.Process
	go func() {
		err := cmd.Wait()
		if cmd.ProcessState != nil {
			c.status, err = cmd.ProcessState.Sys().(syscall.WaitStatus), nil
		}
		c.failure = err
		close(c.ended)
		onEnd()
	}()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

type waited struct {
	status  uint32
	failure string
	// first is false for a second Wait while another one is in progress.
	first bool
}

// wait blocks until the output has been read and the program has exited. The error is that of ctx.
func (c *command) wait(ctx context.Context) (waited, error) {
	c.mu.Lock()
	if c.waiting {
		c.mu.Unlock()
		return waited{failure: errWaited.Error()}, nil
	}
	c.waiting = true
	failed := c.failed
	if !c.started {
		failed = errNotStarted
	}
	stdout, stderr := c.stdout, c.stderr
	c.mu.Unlock()
	if failed != nil {
		return waited{failure: failed.Error(), first: true}, nil
	}
	for _, done := range []<-chan struct{}{stdout.finished(), stderr.finished(), c.ended} {
		select {
		case <-done:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.waiting = false
			return waited{}, ctx.Err()
		}
	}
	if c.failure != nil {
		return waited{failure: c.failure.Error(), first: true}, nil
	}
	return waited{status: uint32(c.status), first: true}, nil
}

// kill kills the process, not its children.
func (c *command) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return errNotStarted
	}
	return c.process.Kill()
}

// abandon cleans up a command that no client will ask for again. It kills only the process itself: background children, such as virtual machines,
// keep running, and their output is drained so that writing does not kill them.
func (c *command) abandon() {
	// The error is ignored: the process may already have exited.
	_ = c.kill()
	c.closeStdin()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range []*output{c.stdout, c.stderr} {
		if o != nil && o.take() {
			close(o.done)
			go o.drain()
		}
	}
}

// wantsInput reports whether the program expects input that no stream provides yet.
func (c *command) wantsInput() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stdin != nil && !c.stdinTaken
}

func (c *command) takeStdin() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stdin == nil:
		return nil, fmt.Errorf("sn %d has no standard input", c.sn)
	case c.stdinTaken:
		return nil, fmt.Errorf("the standard input of sn %d has another stream", c.sn)
	}
	c.stdinTaken = true
	return c.stdin, nil
}

func (c *command) closeStdin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdin != nil {
		c.stdinTaken = true
		c.stdin.Close()
	}
}

func (c *command) takeStdout() (*output, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return takeOutput(c.stdout, c.sn, "output")
}

func (c *command) takeStderr() (*output, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return takeOutput(c.stderr, c.sn, "error")
}

func takeOutput(o *output, sn uint32, name string) (*output, error) {
	if o == nil {
		return nil, fmt.Errorf("sn %d has no standard %s", sn, name)
	}
	if !o.take() {
		return nil, fmt.Errorf("the standard %s of sn %d has another stream", name, sn)
	}
	return o, nil
}

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

// The texts of os/exec, which clients compare.
var (
	errNotStarted = errors.New("exec: not started")
	errStarted    = errors.New("exec: already started")
	errWaited     = errors.New("exec: Wait was already called")
)

// command is one registered command and, once it is started, its process.
type command struct {
	sn   uint32
	spec *apis.Command

	// The server's mutex guards these: who attends to the command.
	connections map[*connection]struct{}
	calls       int
	timer       *time.Timer

	mu      sync.Mutex
	started bool
	// failed is why the program could not be started.
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

func newCommand(sn uint32, spec *apis.Command) *command {
	return &command{sn: sn, spec: spec, connections: map[*connection]struct{}{}, ended: make(chan struct{})}
}

// name is the program without its arguments, which may hold secrets.
func (c *command) name() string { return filepath.Base(string(c.spec.GetPath())) }

// running reports whether the program was started and has not ended.
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

// attended reports whether a client may still ask for the command, see Options.AbandonAfter. The server's mutex is held.
func (c *command) attended() bool { return c.calls > 0 || len(c.connections) > 0 && c.running() }

// start starts the program with the pipes that are asked for. onEnd is called after it has ended.
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

// waited is what Wait answers.
type waited struct {
	status  uint32
	failure string
	// first is false for a second Wait beside one that is not through.
	first bool
}

// wait blocks until the output was read and the program has ended. The error is that of ctx.
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

// kill ends the process, not its children.
func (c *command) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return errNotStarted
	}
	return c.process.Kill()
}

// abandon ends what is left of a command that no client will ask for again. Only the process itself is killed: what it has started in the
// background, a virtual machine for instance, goes on, and its output is read so that writing does not end it.
func (c *command) abandon() {
	// A process that has ended already is what is wanted.
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

// wantsInput reports whether the program waits for input that no stream brings yet.
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

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"
	"strings"
	"sync"

	"yunion.io/x/ocadm/internal/exec"
)

// Recorder is a runner for tests: it runs nothing, records the command lines and takes their results from Answer.
type Recorder struct {
	// Answer returns the result of each command. If nil, every command succeeds and prints nothing.
	Answer func(exec.Command) (exec.Result, error)

	mu    sync.Mutex
	calls []string
	input []string
}

// Run records the command and its standard input.
func (r *Recorder) Run(_ context.Context, c exec.Command) (exec.Result, error) {
	var in []byte
	if c.Stdin != nil {
		var err error
		if in, err = io.ReadAll(c.Stdin); err != nil {
			return exec.Result{ExitCode: 1}, &exec.Error{Argv: append([]string{c.Path}, c.Args...), ExitCode: 1, Err: err}
		}
	}
	r.mu.Lock()
	r.calls = append(r.calls, strings.Join(append([]string{c.Path}, c.Args...), " "))
	r.input = append(r.input, string(in))
	r.mu.Unlock()
	if r.Answer == nil {
		return exec.Result{}, nil
	}
	res, err := r.Answer(c)
	if c.OnLine != nil {
		for line := range strings.Lines(res.Stdout) {
			c.OnLine(strings.TrimSuffix(line, "\n"))
		}
	}
	return res, err
}

// Calls returns the recorded command lines.
func (r *Recorder) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// Input returns the standard input of the commands, in the order of Calls.
func (r *Recorder) Input() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.input...)
}

// Reset discards the recorded commands.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.input = nil, nil
}

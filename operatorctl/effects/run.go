// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// State is how an effect stands after a pass.
type State string

// The states of an effect.
const (
	// Done: performed, now or before, under the hash it has now.
	Done State = "done"
	// Pending: not tried in this pass, because what it needs is not there yet.
	Pending State = "pending"
	// Failed: tried, now or before; Err says why. It is tried again at Retry.
	Failed State = "failed"
)

// Outcome is how one effect stands.
type Outcome struct {
	Effect  Effect
	State   State
	Changed bool
	Err     error
	// For is what a Pending effect waits for: component names, or what the service is waiting for.
	For   []string
	Retry time.Time
}

// timeout bounds one effect; a hanging database or service must not hold a pass.
const timeout = 10 * time.Second

// parallel is how many effects are under way at once.
const parallel = 8

// Backoff of a failing effect: 1 s, doubled each time, at most a minute.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// patience is how often a target may be found down before that counts as a failure: a service whose pods have just become ready, or a
// database that restarts, answers a moment later.
const patience = 10

// shortWait is how often what is Waiting is tried at the pace it asks for; after that every longRetry.
const (
	shortWait = 120
	longRetry = 10 * time.Second
)

// Memory is what the runner remembers between passes of one cloud: failures and when to try again. It is lost with the process, on purpose.
type Memory struct {
	mu   sync.Mutex
	fail map[string]failure
}

type failure struct {
	hash  string
	count int
	next  time.Time
	err   error
}

// NewMemory makes an empty Memory.
func NewMemory() *Memory { return &Memory{fail: map[string]failure{}} }

// Pass is one run over a list of effects.
type Pass struct {
	Clients Clients
	Memory  *Memory
	// Recorded are the hashes in status.
	Recorded map[string]string
	// Available tells whether a component may be asked something; Serving is enough for its own effects.
	Available, Serving func(component string) bool
	// Audit performs effects even if their hash is recorded.
	Audit bool
	Now   func() time.Time
}

// Run performs what is due among the effects, several at once, and tells how each stands, in the given order.
// It never waits: what is not possible now is Pending or Failed.
func (p *Pass) Run(ctx context.Context, list []Effect) []Outcome {
	out := make([]Outcome, len(list))
	down := &targets{err: map[Target]error{}}
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, e := range list {
		o, due := p.look(e)
		out[i] = o
		if !due {
			continue
		}
		g.Go(func() error {
			out[i] = p.perform(ctx, e, down)
			return nil
		})
	}
	_ = g.Wait() // the functions return nil; their errors are in out
	return out
}

// look tells how an effect stands before anything is done.
func (p *Pass) look(e Effect) (Outcome, bool) {
	o := Outcome{Effect: e, State: Done}
	f, failing := p.failure(e)
	// What an audit could not verify is tried until it is done, like any other failure.
	if p.Recorded[e.Key] == e.Hash && !failing && (!p.Audit || e.Once) {
		return o, false
	}
	for _, n := range e.Needs {
		if !p.Available(n) && (n != e.Component || !p.Serving(n)) {
			o.For = append(o.For, n)
		}
	}
	for _, key := range e.Follows {
		if p.Recorded[key] == "" {
			o.For = append(o.For, key)
		}
	}
	if len(o.For) > 0 {
		if p.Recorded[e.Key] != e.Hash {
			o.State = Pending
		}
		return o, false
	}
	if failing && p.Now().Before(f.next) {
		return failedOutcome(e, f), false
	}
	return o, true
}

// failure is how the effect, as it is now, failed last.
func (p *Pass) failure(e Effect) (failure, bool) {
	p.Memory.mu.Lock()
	defer p.Memory.mu.Unlock()
	f, failing := p.Memory.fail[e.Key]
	return f, failing && f.hash == e.Hash
}

func failedOutcome(e Effect, f failure) Outcome {
	o := Outcome{Effect: e, State: Failed, Err: f.err, Retry: f.next}
	var w Waiting
	if errors.As(f.err, &w) {
		o.State, o.For = Pending, []string{w.For}
	}
	return o
}

func (p *Pass) perform(ctx context.Context, e Effect, down *targets) Outcome {
	if err := down.of(e.Target); err != nil {
		return p.failed(e, p.unreachable(e, err))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changed, err := e.Do(ctx, p.Clients)
	if err != nil {
		if p.Clients.Down != nil && p.Clients.Down(err) {
			down.set(e.Target, err)
			err = p.unreachable(e, err)
		}
		return p.failed(e, err)
	}
	p.Memory.mu.Lock()
	delete(p.Memory.fail, e.Key)
	p.Memory.mu.Unlock()
	return Outcome{Effect: e, State: Done, Changed: changed}
}

// unreachable is the error of an effect whose target is down: Waiting until patience is at its end.
func (p *Pass) unreachable(e Effect, err error) error {
	if p.tries(e) < patience {
		return Waiting{For: "an answer: " + err.Error(), Retry: time.Second}
	}
	return err
}

func (p *Pass) tries(e Effect) int {
	p.Memory.mu.Lock()
	defer p.Memory.mu.Unlock()
	return p.Memory.fail[e.Key].count
}

func (p *Pass) failed(e Effect, err error) Outcome {
	p.Memory.mu.Lock()
	defer p.Memory.mu.Unlock()
	f := p.Memory.fail[e.Key]
	if f.hash != e.Hash {
		f = failure{hash: e.Hash}
	}
	f.count++
	f.err = err
	delay := min(firstRetry<<min(f.count-1, 10), lastRetry)
	var w Waiting
	if errors.As(err, &w) && w.Retry > 0 {
		delay = w.Retry
		if f.count > shortWait {
			delay = max(w.Retry, longRetry)
		}
	}
	f.next = p.Now().Add(delay)
	p.Memory.fail[e.Key] = f
	return failedOutcome(e, f)
}

// targets that were found down in this pass.
type targets struct {
	mu  sync.Mutex
	err map[Target]error
}

func (t *targets) of(target Target) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err[target]
}

func (t *targets) set(target Target, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err[target] = err
}

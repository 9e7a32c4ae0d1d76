// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/identity"
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

// timeout bounds one effect that does not say how long it may take; a hanging database or service must not hold a pass.
const timeout = 10 * time.Second

// limit is how long the effect may take.
func (e Effect) limit() time.Duration {
	if e.Within > 0 {
		return e.Within
	}
	return timeout
}

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

// Memory is what the runner remembers between passes of one cloud: failures and when to try again, which targets are unhealthy, and what is
// still under way. It is lost with the process, on purpose.
type Memory struct {
	mu   sync.Mutex
	fail map[string]failure
	// running are effects under way by key; late those that ended after the pass that began them.
	running map[string]bool
	late    map[string]lateResult
	// unhealthy targets could not be used last; probes tells for which one effect is trying now.
	unhealthy, probes map[Target]bool
}

type failure struct {
	hash  string
	count int
	next  time.Time
	err   error
}

type lateResult struct {
	hash    string
	changed bool
}

// NewMemory makes an empty Memory.
func NewMemory() *Memory {
	return &Memory{fail: map[string]failure{}, running: map[string]bool{}, late: map[string]lateResult{}, unhealthy: map[Target]bool{}, probes: map[Target]bool{}}
}

// Retry makes everything that failed due now: the way to the targets has changed.
func (m *Memory) Retry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.fail)
}

// Runner performs the effects of a list that are due.
type Runner struct {
	Clients Clients
	Memory  *Memory
	// Recorded are the hashes in status.
	Recorded map[string]string
	// Available tells whether a component may be asked something; Serving is enough for its own effects.
	Available, Serving func(component string) bool
	// Audit performs effects even if their hash is recorded.
	Audit bool
	Now   func() time.Time
	// WaitLimit is how long Run waits for what it began; zero is to the end. What takes longer goes on in the background: a target that
	// hangs must not hold up the rest of the cloud.
	WaitLimit time.Duration
	// Wake is called when something ends after Run: it is time for another pass.
	Wake func()
}

// Run performs what is due among the effects, several at once, and tells how each stands, in the given order.
// What is not possible now is Pending or Failed.
func (p *Runner) Run(ctx context.Context, list []Effect) []Outcome {
	out := make([]Outcome, len(list))
	var due []int
	for i, e := range list {
		o, is := p.look(e)
		out[i] = o
		if is {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return out
	}
	for _, i := range due {
		out[i] = p.unanswered(list[i])
	}
	r := newRound(p, len(due))
	begun := r.begin(list, due)
	for _, t := range begun {
		go r.try(ctx, t)
	}
	var enough <-chan time.Time
	if p.WaitLimit > 0 {
		t := time.NewTimer(p.WaitLimit)
		defer t.Stop()
		enough = t.C
	}
	for range begun {
		select {
		case x := <-r.results:
			out[x.at] = x.outcome
		case <-enough:
			for _, x := range r.leave() {
				out[x.at] = x.outcome
			}
			return out
		}
	}
	return out
}

// unanswered is how an effect stands that has been begun, or would be if its target were not being tried already.
func (p *Runner) unanswered(e Effect) Outcome {
	f, failing := p.failure(e)
	switch {
	case failing:
		o := failedOutcome(e, f)
		o.Retry = p.Now().Add(e.limit())
		return o
	case p.Recorded[e.Key] == e.Hash:
		return Outcome{Effect: e, State: Done} // the audit will tell
	}
	return Outcome{Effect: e, State: Pending, For: []string{"an answer"}, Retry: p.Now().Add(e.limit())}
}

// look tells how an effect stands before anything is done.
func (p *Runner) look(e Effect) (Outcome, bool) {
	o := Outcome{Effect: e, State: Done}
	if p.underWay(e, &o) {
		return o, false
	}
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
func (p *Runner) failure(e Effect) (failure, bool) {
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

// underWay tells how an effect stands that an earlier pass began: it still runs, or it has ended since.
func (p *Runner) underWay(e Effect, o *Outcome) bool {
	m := p.Memory
	m.mu.Lock()
	running := m.running[e.Key]
	l, ended := m.late[e.Key]
	delete(m.late, e.Key)
	m.mu.Unlock()
	if running {
		*o = p.unanswered(e)
		return true
	}
	if !ended || l.hash != e.Hash {
		return false
	}
	o.Changed = l.changed
	return true
}

// perform does one effect, within its time.
func (p *Runner) perform(ctx context.Context, e Effect, r *round) Outcome {
	if err := r.trouble(e.Target); err != nil {
		if p.Clients.Down != nil && p.Clients.Down(err) {
			err = p.unreachable(e, err)
		}
		return p.failed(e, err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.limit())
	defer cancel()
	changed, err := e.Do(ctx, p.Clients)
	switch {
	case err == nil:
		p.Memory.healthy(e.Target)
		p.Memory.succeeded(e)
		return Outcome{Effect: e, State: Done, Changed: changed}
	case p.Clients.Down != nil && p.Clients.Down(err):
		r.troubled(e.Target, err)
		err = p.unreachable(e, err)
	case p.Clients.Denied != nil && p.Clients.Denied(err):
		if p.Clients.Advice != "" && identity.IsUnauthorized(err) {
			err = fmt.Errorf("%w; %s", err, p.Clients.Advice)
		}
		r.troubled(e.Target, err)
	default:
		p.Memory.healthy(e.Target)
	}
	return p.failed(e, err)
}

// unreachable is the error of an effect whose target is down: Waiting until patience is at its end.
func (p *Runner) unreachable(e Effect, err error) error {
	if p.tries(e) < patience {
		return Waiting{For: "an answer: " + err.Error(), Retry: time.Second}
	}
	return err
}

func (p *Runner) tries(e Effect) int {
	p.Memory.mu.Lock()
	defer p.Memory.mu.Unlock()
	return p.Memory.fail[e.Key].count
}

func (p *Runner) failed(e Effect, err error) Outcome {
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

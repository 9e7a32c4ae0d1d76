// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
)

// State is the state of an effect.
type State string

const (
	// Done means performed, now or before, with its current hash.
	Done State = "done"
	// Pending means not tried, because a dependency is missing, or not answered yet.
	Pending State = "pending"
	// Failed means tried, now or before; Err is the cause. It is retried at Retry.
	Failed State = "failed"
)

// Outcome is the state of one effect after a run.
type Outcome struct {
	Effect  Effect
	State   State
	Changed bool
	Err     error
	// For lists what a Pending effect waits for: component names, or what the service waits for.
	For   []string
	Retry time.Time
}

// timeout is the default time limit of an effect.
const timeout = 10 * time.Second

// limit returns how long the effect may take.
func (e Effect) limit() time.Duration { return cmp.Or(e.Within, timeout) }

// parallel is the maximum number of concurrent effects.
const parallel = 8

// A failing effect is retried with exponential backoff: 1 s, doubled each time, at most a minute.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// patience is how often a target may be down before that counts as a failure: a service whose pods have just become ready, or a restarting database,
// answers a moment later.
const patience = 10

// shortWait is how often an effect that is Waiting is retried at the interval it asks for; after that every longRetry.
const (
	shortWait = 120
	longRetry = 10 * time.Second
)

// Memory is the runner's state between the reconciliations of one cloud. It is deliberately not persistent.
type Memory struct {
	mu    sync.Mutex
	tries map[string]try
	// unhealthy holds the last error of each unusable target. A probe is closed when the first attempt at an unhealthy target ends.
	unhealthy map[Target]error
	probes    map[Target]chan struct{}
}

type try struct {
	hash    string
	running bool
	// done and changed are the result of a successful attempt, until Run has reported it.
	done, changed bool
	// err is the error of the attempt, failures the number of failures with this hash, next the time of the next attempt.
	err      error
	failures int
	next     time.Time
}

// failing reports whether the last attempt at the effect failed with the current hash.
func (t try) failing(e Effect) bool { return t.err != nil && t.hash == e.Hash }

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{tries: map[string]try{}, unhealthy: map[Target]error{}, probes: map[Target]chan struct{}{}}
}

// Retry makes all failed effects due immediately: the connection settings have changed.
func (m *Memory) Retry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.tries {
		t.err, t.failures = nil, 0
		m.tries[key] = t
	}
}

// Busy reports whether an attempt at an effect is running.
func (m *Memory) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tries {
		if t.running {
			return true
		}
	}
	return false
}

// Runner performs the due effects of a list.
type Runner struct {
	Clients Clients
	Memory  *Memory
	// Recorded are the hashes in status.
	Recorded map[string]string
	// Available reports whether a component can take requests. Serving suffices for the component's own effects.
	Available, Serving func(component string) bool
	// Audit repeats effects whose hash is recorded.
	Audit bool
	Now   func() time.Time
	// WaitLimit is how long Run waits for the effects that it started; zero means no limit. Slower ones continue in the background: a target that hangs
	// must not delay the rest of the cloud.
	WaitLimit time.Duration
	// Wake is called when an effect ends after Run has stopped waiting; the next Run reports it.
	Wake func()
}

type run struct {
	*Runner
	slots chan struct{}
	group sync.WaitGroup
	// left is set once Run no longer waits. Memory's lock guards it.
	left bool
}

// Run performs the due effects concurrently and returns the outcome of each, in the given order. What is not possible now is Pending or Failed.
func (p *Runner) Run(ctx context.Context, list []Effect) []Outcome {
	r := &run{Runner: p, slots: make(chan struct{}, parallel)}
	p.Memory.mu.Lock()
	for _, e := range list {
		if p.due(e) {
			r.begin(ctx, e)
		}
	}
	p.Memory.mu.Unlock()
	r.wait()
	p.Memory.mu.Lock()
	defer p.Memory.mu.Unlock()
	r.left = true
	return lists.Map(list, p.outcome)
}

func (r *run) wait() {
	ended := make(chan struct{})
	go func() {
		r.group.Wait()
		close(ended)
	}()
	var enough <-chan time.Time // nil never fires
	if r.WaitLimit > 0 {
		enough = time.After(r.WaitLimit)
	}
	select {
	case <-ended:
	case <-enough:
	}
}

// due reports whether an effect should be tried now. An effect that an audit could not verify is retried until it is done, like any other failure.
func (p *Runner) due(e Effect) bool {
	t := p.Memory.tries[e.Key]
	switch {
	case t.running || t.done && t.hash == e.Hash || len(p.missing(e)) > 0:
		return false
	case t.failing(e):
		return !p.Now().Before(t.next)
	}
	return p.Recorded[e.Key] != e.Hash || p.Audit && !e.Once
}

// missing returns what an effect waits for before it can be tried.
func (p *Runner) missing(e Effect) []string {
	needs := lists.Filter(e.Needs, func(n string) bool { return !p.Available(n) && (n != e.Component || !p.Serving(n)) })
	return append(needs, lists.Filter(e.Follows, func(key string) bool { return p.Recorded[key] == "" })...)
}

// outcome returns the state of an effect when Run ends. It removes a success from the memory.
func (p *Runner) outcome(e Effect) Outcome {
	o, t := Outcome{Effect: e, State: Done}, p.Memory.tries[e.Key]
	recorded, missing := p.Recorded[e.Key] == e.Hash, p.missing(e)
	switch {
	case t.running && t.failing(e):
		o.Retry = p.Now().Add(e.limit())
		o = t.outcome(o)
	case t.running && recorded: // during its audit, an effect counts as done until it fails
	case t.done && t.hash == e.Hash:
		o.Changed = t.changed
		delete(p.Memory.tries, e.Key)
	case recorded && (!t.failing(e) || len(missing) > 0):
	case len(missing) > 0 && !t.running:
		o.State, o.For = Pending, missing
	case t.failing(e):
		o.Retry = t.next
		o = t.outcome(o)
	default: // it is running, or did not start before Run stopped waiting
		o.State, o.For, o.Retry = Pending, []string{"an answer"}, p.Now().Add(e.limit())
	}
	return o
}

func (t try) outcome(o Outcome) Outcome {
	o.State, o.Err = Failed, t.err
	if w, waiting := errors.AsType[Waiting](t.err); waiting {
		o.State, o.For = Pending, []string{w.For}
	}
	return o
}

// begin starts an attempt. The first attempt at an unhealthy target is a probe for which the others wait: a database that is down, or a wrong password,
// is tried only once. The caller holds the lock.
func (r *run) begin(ctx context.Context, e Effect) {
	m := r.Memory
	probe, first := m.probes[e.Target], false
	if probe == nil && m.unhealthy[e.Target] != nil {
		probe, first = make(chan struct{}), true
		m.probes[e.Target] = probe
	}
	t := m.tries[e.Key]
	t.running, t.done = true, false
	m.tries[e.Key] = t
	r.group.Go(func() {
		if first {
			defer close(probe)
		} else if probe != nil {
			<-probe
		}
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		r.attempt(ctx, e, first)
	})
}

// attempt performs an effect, unless its target has become unhealthy, or Run no longer waits: the next Run has newer inputs.
func (r *run) attempt(ctx context.Context, e Effect, first bool) {
	m := r.Memory
	m.mu.Lock()
	err, left := m.unhealthy[e.Target], r.left
	m.mu.Unlock()
	changed := false
	if !left && (err == nil || first) {
		changed, err = r.do(ctx, e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first {
		delete(m.probes, e.Target)
	}
	t := m.tries[e.Key]
	if t.running = false; !left {
		t = r.end(t, e, changed, err)
	}
	m.tries[e.Key] = t
	if r.left && !left && r.Wake != nil {
		r.Wake()
	}
}

// do performs an effect within its time limit, and records whether its target is usable.
func (r *run) do(ctx context.Context, e Effect) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.limit())
	defer cancel()
	changed, err := e.Do(ctx, r.Clients)
	down := err != nil && r.Clients.Down != nil && r.Clients.Down(err)
	denied := err != nil && !down && r.Clients.Denied != nil && r.Clients.Denied(err)
	if denied && r.Clients.Advice != "" && identity.IsUnauthorized(err) {
		err = fmt.Errorf("%w; %s", err, r.Clients.Advice)
	}
	r.Memory.mu.Lock()
	defer r.Memory.mu.Unlock()
	if down || denied {
		r.Memory.unhealthy[e.Target] = err
	} else {
		delete(r.Memory.unhealthy, e.Target)
	}
	return changed, err
}

// end returns the updated record of an effect after an attempt.
func (r *run) end(t try, e Effect, changed bool, err error) try {
	if t.hash != e.Hash {
		t.hash, t.failures = e.Hash, 0
	}
	if t.done, t.changed, t.err = err == nil, changed, err; err == nil {
		t.failures = 0
		return t
	}
	if t.failures < patience && r.Clients.Down != nil && r.Clients.Down(err) {
		t.err = Waiting{For: "an answer: " + err.Error(), Retry: time.Second}
	}
	t.failures++
	delay := min(firstRetry<<min(t.failures-1, 10), lastRetry)
	if w, waiting := errors.AsType[Waiting](t.err); waiting && w.Retry > 0 {
		delay = w.Retry
		if t.failures > shortWait {
			delay = max(w.Retry, longRetry)
		}
	}
	t.next = r.Now().Add(delay)
	return t
}

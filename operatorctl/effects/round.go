// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"sync"
)

// round is what one pass has under way.
type round struct {
	p       *Runner
	results chan result
	slots   chan struct{}

	mu sync.Mutex
	// err is why a target cannot be used; the rest of its effects are not tried in this round.
	err map[Target]error
	// left: the pass waits no longer.
	left bool
}

type result struct {
	at      int
	outcome Outcome
}

// attempt at one effect. Of a target that was unhealthy last, one effect tries it first, and the others wait for the gate: a database that is
// down, or a password that is wrong, is asked once, not by everybody.
type attempt struct {
	at     int
	effect Effect
	gate   chan struct{}
	first  bool
}

func newRound(p *Runner, n int) *round {
	return &round{p: p, results: make(chan result, n), slots: make(chan struct{}, parallel), err: map[Target]error{}}
}

// begin chooses what is tried in this round: not what waits for an attempt of an earlier one.
func (r *round) begin(list []Effect, due []int) []attempt {
	m := r.p.Memory
	m.mu.Lock()
	defer m.mu.Unlock()
	gates := map[Target]chan struct{}{}
	var begun []attempt
	for _, i := range due {
		t := attempt{at: i, effect: list[i]}
		if target := t.effect.Target; m.unhealthy[target] {
			t.gate = gates[target]
			if t.gate == nil && m.probes[target] {
				continue
			}
			if t.gate == nil {
				t.gate, t.first = make(chan struct{}), true
				gates[target], m.probes[target] = t.gate, true
			}
		}
		m.running[t.effect.Key] = true
		begun = append(begun, t)
	}
	return begun
}

func (r *round) try(ctx context.Context, t attempt) {
	if t.gate != nil && !t.first {
		<-t.gate
	}
	if t.first {
		defer close(t.gate)
	}
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	if r.isLeft() {
		r.p.Memory.ended(t)
		return
	}
	o := r.p.perform(ctx, t.effect, r)
	r.p.Memory.ended(t)
	r.tell(t, o)
}

// tell hands an outcome to the pass, or keeps it for the next one.
func (r *round) tell(t attempt, o Outcome) {
	r.mu.Lock()
	if !r.left {
		r.results <- result{at: t.at, outcome: o}
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	if o.State == Done {
		r.p.Memory.keep(t.effect, o.Changed)
	}
	if r.p.Wake != nil {
		r.p.Wake()
	}
}

func (r *round) isLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// leave ends the waiting; it returns what came in the last moment.
func (r *round) leave() []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	var out []result
	for {
		select {
		case x := <-r.results:
			out = append(out, x)
		default:
			return out
		}
	}
}

// trouble is why a target cannot be used in this round, nil if nobody found out.
func (r *round) trouble(target Target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err[target]
}

func (r *round) troubled(target Target, err error) {
	r.mu.Lock()
	r.err[target] = err
	r.mu.Unlock()
	r.p.Memory.mu.Lock()
	r.p.Memory.unhealthy[target] = true
	r.p.Memory.mu.Unlock()
}

// healthy notes that a target answers, whatever it says.
func (m *Memory) healthy(target Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unhealthy, target)
}

// Busy tells whether anything is under way.
func (m *Memory) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.running) > 0
}

func (m *Memory) ended(t attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, t.effect.Key)
	if t.first {
		delete(m.probes, t.effect.Target)
	}
}

func (m *Memory) succeeded(e Effect) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fail, e.Key)
}

func (m *Memory) keep(e Effect, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late[e.Key] = lateResult{hash: e.Hash, changed: changed}
}

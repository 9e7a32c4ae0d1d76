// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/probe"
	"yunion.io/x/ocadm/internal/wait"
)

const (
	// answerTimeout bounds each answer of a machine; onTheWay is how long packets may take to arrive.
	answerTimeout = 90 * time.Second
	onTheWay      = 500 * time.Millisecond
)

// tried is the result of one machine.
type tried struct {
	ready   probe.Ready
	sent    map[string]probe.Sent
	arrived []probe.Arrival
	err     error
}

// session is the dialogue with a machine.
type session struct {
	in    *io.PipeWriter
	lines chan string
	ended chan error
}

func begin(ctx context.Context, m Member) *session {
	r, w := io.Pipe()
	s := &session{in: w, lines: make(chan string, 8), ended: make(chan error, 1)} //nolint:mnd // more lines than it prints
	go func() {
		err := m.Probe(ctx, r, func(l string) {
			select {
			case s.lines <- l:
			case <-ctx.Done():
			}
		})
		r.CloseWithError(io.ErrClosedPipe)
		s.ended <- err
		close(s.lines)
	}()
	return s
}

// say writes a line, hear reads the answer.
func (s *session) say(line any) error { return json.NewEncoder(s.in).Encode(line) }

func (s *session) hear(ctx context.Context, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	select {
	case l, more := <-s.lines:
		if !more {
			return cmp.Or(<-s.ended, errors.New("it ended without an answer"))
		}
		return json.Unmarshal([]byte(l), into)
	case <-ctx.Done():
		return errors.New("it does not answer")
	}
}

// Try tests the paths between machines. run identifies the test. report receives the number of finished groups.
func Try(ctx context.Context, all []Member, run string, report func(done, total int)) Outcome {
	groups := plan(all)
	out := Outcome{Said: said(all, groups), Untried: map[string]string{}}
	for i, g := range groups {
		report(i, len(groups))
		if ctx.Err() != nil {
			break
		}
		out.take(all, g, tryGroup(ctx, all, g, fmt.Sprintf("%s.%d", run, i)))
	}
	return out
}

// tryGroup makes the machines listen, then send, and then collects what has arrived.
func tryGroup(ctx context.Context, all []Member, g group, run string) map[int]*tried {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := map[int]*tried{}
	sessions := map[int]*session{}
	for _, i := range g.members {
		if slices.ContainsFunc(g.ways, func(w way) bool { return w.from == i || w.to == i }) {
			said[i] = &tried{sent: map[string]probe.Sent{}}
			sessions[i] = begin(ctx, all[i])
		}
	}
	each := func(do func(i int, s *session, t *tried) error) {
		var wg sync.WaitGroup
		for i, s := range sessions {
			if t := said[i]; t.err == nil {
				wg.Go(func() { t.err = do(i, s, t) })
			}
		}
		wg.Wait()
	}
	each(func(i int, s *session, t *tried) error {
		if err := s.say(probe.Listen{Run: run, Name: all[i].Name, TCP: listens(all, g, i)}); err != nil {
			return cmp.Or(<-s.ended, err)
		}
		return s.hear(ctx, &t.ready)
	})
	to := map[int]probe.Targets{} // computed before the machines send: failures change said
	for i := range sessions {
		to[i] = targets(all, g, i, said)
	}
	each(func(i int, s *session, t *tried) error {
		if err := s.say(to[i]); err != nil {
			return err
		}
		var r probe.Report
		if err := s.hear(ctx, &r); err != nil {
			return err
		}
		for _, one := range r.Sent {
			t.sent[one.To] = one
		}
		return nil
	})
	_ = wait.Sleep(ctx, onTheWay)
	each(func(_ int, s *session, t *tried) error {
		_ = s.in.Close()
		var a probe.Arrived
		err := s.hear(ctx, &a)
		t.arrived = a.Packets
		return err
	})
	for _, s := range sessions {
		_ = s.in.Close() // this ends the probe on failed machines, too
	}
	return said
}

// listens returns the ports on which a machine must be reachable.
func listens(all []Member, g group, to int) []int {
	var out []int
	for _, w := range g.ways {
		if w.to != to {
			continue
		}
		for _, p := range ports(all[w.from], all[w.to]) {
			if !p.udp && !slices.Contains(out, p.number) {
				out = append(out, p.number)
			}
		}
	}
	return out
}

// targets returns the targets to which a machine sends, without those that do not run the probe.
func targets(all []Member, g group, from int, said map[int]*tried) probe.Targets {
	out := probe.Targets{To: []probe.Target{}}
	for _, w := range g.ways {
		if w.from != from || said[w.to].err != nil {
			continue
		}
		t := probe.Target{Name: all[w.to].Name, Address: all[w.to].Address, MTU: true}
		for _, p := range ports(all[w.from], all[w.to]) {
			if p.udp {
				t.UDP = append(t.UDP, p.number)
			} else {
				t.TCP = append(t.TCP, p.number)
			}
		}
		out.To = append(out.To, t)
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// longestPhase bounds a phase that has a Patience but no Timeout.
const longestPhase = 4 * time.Hour

// patience cancels the context of a phase that makes no progress. Progress is a report that differs from all earlier ones in more than its numbers (a
// container that keeps failing repeats itself with another count), or a higher count passed to Progress.
type patience struct {
	limit time.Duration
	timer *time.Timer

	mu   sync.Mutex
	seen map[string]bool
	most map[string]int64
}

// bounded returns a context for a phase's Run and Verify, bounded by the phase's timeout and, if it has one, its patience.
func bounded(ctx context.Context, timeout, limit time.Duration) (context.Context, *patience, context.CancelFunc) {
	if limit == 0 {
		timeout = cmp.Or(timeout, DefaultTimeout)
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, wait.Expired(fmt.Sprintf("giving up after %s", timeout)))
		return ctx, nil, cancel
	}
	timeout = cmp.Or(timeout, longestPhase)
	ctx, end := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, wait.Expired(fmt.Sprintf("giving up after %s", timeout)))
	p := &patience{limit: limit, seen: map[string]bool{}, most: map[string]int64{}}
	p.timer = time.AfterFunc(limit, func() { end(wait.Expired(fmt.Sprintf("giving up after %s without progress", limit))) })
	return ctx, p, func() {
		p.timer.Stop()
		cancel()
		end(nil)
	}
}

// renew restarts the time without progress.
func (p *patience) renew() {
	if p != nil {
		p.timer.Reset(p.limit)
	}
}

var number = regexp.MustCompile(`[0-9]+`)

// said renews the patience if the text was not reported before.
func (p *patience) said(text string) {
	if p == nil {
		return
	}
	text = number.ReplaceAllString(text, "")
	p.mu.Lock()
	again := p.seen[text]
	p.seen[text] = true
	p.mu.Unlock()
	if !again {
		p.renew()
	}
}

// counted renews the patience if the count is higher than before.
func (p *patience) counted(done int64, unit string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	most, known := p.most[unit]
	more := !known || done > most
	if more {
		p.most[unit] = done
	}
	p.mu.Unlock()
	if more {
		p.renew()
	}
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// An operator that goes on with an operation may be up before the rest of the cloud: after a loss of power, pods fail until names are resolved and databases
// run. That is no reason to go back.

// resumeSettles is how many times as long as a wave must serve an operation is lenient after it was taken up again: five minutes by default.
const resumeSettles = 10

// lenient is until when it is; zero for an operation that begins here.
func (r *Run) lenient() time.Time {
	if r.resumed.IsZero() {
		return time.Time{}
	}
	return r.resumed.Add(resumeSettles * r.Settle)
}

// forbearance is how long a component may be Degraded.
type forbearance struct {
	// now is when it is judged; settle how long: a kubelet tries again what a busy node refused once.
	now    time.Time
	settle time.Duration
	// from is when the first can have failed.
	from time.Time
}

// forbearance with components now.
func (r *Run) forbearance(now time.Time) forbearance {
	return forbearance{now: now, settle: r.Settle, from: r.lenient()}
}

// over reports whether a component that is Degraded since a moment has failed.
func (f forbearance) over(since time.Time) bool {
	return f.now.Sub(since) >= f.settle && !f.now.Before(f.from)
}

// reach connects to a database server. While the operation is lenient, one that cannot be reached is tried again.
func (r *Run) reach(ctx context.Context, connect func() error) error {
	tick := time.NewTicker(tick)
	defer tick.Stop()
	for {
		err := connect()
		var e *mysql.Error
		if err == nil || !errors.As(err, &e) || e.Class != mysql.Unreachable || !time.Now().Before(r.lenient()) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

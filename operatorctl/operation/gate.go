// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
)

// verdict is what a gate says of the components of a wave.
type verdict struct {
	// ready is true if all of them serve what they are to serve, done how many do.
	ready      bool
	done, want int
	// why is what is missing, failed why it will not come.
	why, failed string
}

// judge reports whether the components of a wave serve as settled says. It is pure.
func judge(cloud *v1alpha1.OnecloudCluster, names []string, settled func(v1alpha1.ComponentStatus) bool, f forbearance) verdict {
	var v verdict
	var missing, failed []string
	for _, c := range cloud.Status.Components {
		if !slices.Contains(names, c.Name) || c.State == v1alpha1.Disabled {
			continue
		}
		v.want++
		switch {
		case settled(c):
			v.done++
		case c.State == v1alpha1.Degraded && f.over(c.Since.Time):
			failed = append(failed, fmt.Sprintf("%s: %s", c.Name, c.Message))
		default:
			missing = append(missing, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	v.ready = v.done == v.want
	v.why, v.failed = strings.Join(append(failed, missing...), "; "), strings.Join(failed, "; ")
	return v
}

// settledBefore reports whether a component serves, be it in the version from before the update.
func settledBefore(c v1alpha1.ComponentStatus) bool {
	return c.Settled() || c.State == v1alpha1.Available && c.Reason == v1alpha1.ReasonWave
}

// followed reports whether the status of a cloud was determined when a rollout was as it is now. Its values alone do not say that: no release is made, one
// is, and none is again. An operator whose definitions are older than it counts nothing. It is pure.
func followed(cloud *v1alpha1.OnecloudCluster, operation string, r v1alpha1.Rollout) bool {
	seen := cloud.Status.Rollout
	return seen != nil && seen.Operation == operation && (seen.Steer == r.Steer || seen.Steer == 0) &&
		seen.Reached == r.Reached && seen.Hold == r.Hold && slices.Equal(seen.Stopped, r.Stopped) &&
		(r.Of == 0 || r.Hold || seen.Of == r.Of)
}

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

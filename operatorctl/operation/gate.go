// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/wait"
)

type verdict struct {
	// ready is true if all want components serve the desired state; done counts those that do.
	ready      bool
	done, want int
	// why describes what does not serve, failed what has failed.
	why, failed string
}

// judge counts the components of a wave that have settled. It is pure.
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

// settledBefore reports whether a component serves, even if only in the version from before the update.
func settledBefore(c v1alpha1.ComponentStatus) bool {
	return c.Settled() || c.State == v1alpha1.Available && c.Reason == v1alpha1.ReasonWave
}

// followed reports whether the status of a cloud reflects the current rollout. Steer is compared because the other values repeat: Hold is set, cleared,
// and set again. It is 0 in the status if the operator's CRDs are older than the field. It is pure.
func followed(cloud *v1alpha1.OnecloudCluster, operation string, r v1alpha1.Rollout) bool {
	seen := cloud.Status.Rollout
	return seen != nil && seen.Operation == operation && (seen.Steer == r.Steer || seen.Steer == 0) &&
		seen.Reached == r.Reached && seen.Hold == r.Hold && slices.Equal(seen.Stopped, r.Stopped) &&
		(r.Of == 0 || r.Hold || seen.Of == r.Of)
}

// An operator that resumes an operation may be up before the rest of the cloud: after a power failure, pods fail until DNS works and databases run. That
// is no reason to revert.

// resumeSettles is how long an operation is lenient after it was resumed, as a multiple of Settle: five minutes by default.
const resumeSettles = 10

// lenient returns the time until which a resumed operation is lenient; zero for one that begins here.
func (r *Run) lenient() time.Time {
	if r.resumed.IsZero() {
		return time.Time{}
	}
	return r.resumed.Add(resumeSettles * r.Settle)
}

// forbearance defines how long a component may be Degraded.
type forbearance struct {
	// now is the time of the judgement. settle is how long: a kubelet retries what a busy node refused once.
	now    time.Time
	settle time.Duration
	// from is the earliest time at which one counts as failed.
	from time.Time
}

func (r *Run) forbearance(now time.Time) forbearance {
	return forbearance{now: now, settle: r.Settle, from: r.lenient()}
}

// over reports whether a component that has been Degraded since a given time has failed.
func (f forbearance) over(since time.Time) bool {
	return f.now.Sub(since) >= f.settle && !f.now.Before(f.from)
}

// reach connects to a database server. While the operation is lenient, it retries an unreachable one.
func (r *Run) reach(ctx context.Context, connect func() error) error {
	for {
		err := connect()
		if mysql.ClassOf(err) != mysql.Unreachable || !time.Now().Before(r.lenient()) {
			return err
		}
		if wait.Sleep(ctx, tick) != nil {
			return err
		}
	}
}

// patiently repeats a request that the API server does not answer, for at most writeTimeout: one that is being replaced must not end an operation.
func patiently(ctx context.Context, request func() error) error {
	for began := time.Now(); ; {
		err := request()
		_, network := errors.AsType[net.Error](err)
		unanswered := network || kube.Busy(err) || apierrors.IsInternalError(err)
		if !unanswered || time.Since(began) > writeTimeout || wait.Sleep(ctx, tick) != nil {
			return err
		}
	}
}

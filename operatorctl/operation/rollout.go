// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Every action that moves a cloud between releases does the same: hold the cloud at its release, make the next one, let the waves move. Reverting does the
// reverse. The reconciler follows status.rollout of the operation.

const (
	// DefaultSettle is how long a wave must serve without interruption.
	DefaultSettle = 30 * time.Second
	// waveTimeout bounds a wave. That of the agents moves one node at a time: it may take agentsTimeout, but no longer than agentsPatience for one node.
	waveTimeout    = 20 * time.Minute
	agentsTimeout  = 24 * time.Hour
	agentsPatience = 30 * time.Minute
	// moveTimeout bounds an operation that pulls images on all nodes or moves them. Each of its steps has a bound of its own.
	moveTimeout = 36 * time.Hour
	// releaseTimeout bounds steps that only wait for the reconciler.
	releaseTimeout = 5 * time.Minute
)

// rollout returns the rollout, nil before it has begun.
func (r *Run) rollout() *v1alpha1.Rollout { return r.Status().Rollout }

// mover moves the cloud of an operation.
type mover struct {
	*Run
	report workflow.Reporter
}

// moving returns the Run of a step that moves the cloud.
func moving(work func(context.Context, mover) error) func(context.Context, *Run, workflow.Reporter) error {
	return func(ctx context.Context, r *Run, report workflow.Reporter) error { return work(ctx, mover{r, report}) }
}

// steer changes the rollout and waits until the reconciler follows.
func (m mover) steer(ctx context.Context, change func(*v1alpha1.Rollout)) error {
	err := m.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Rollout = cmp.Or(s.Rollout, &v1alpha1.Rollout{})
		change(s.Rollout)
		s.Rollout.Steer++
	})
	if err != nil {
		return err
	}
	want := *m.rollout()
	return m.Until(ctx, m.report, "the operator", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
		return followed(cloud, m.Operation.Name, want), "it has not reconciled the cloud yet", nil
	})
}

// tick is how often a wait checks without a change, such as whether a wave has served for long enough.
const tick = time.Second

// Until waits until a condition of the cloud holds. It checks after each change of the cloud.
func (r *Run) Until(ctx context.Context, report workflow.Reporter, what string, cond func(*v1alpha1.OnecloudCluster) (done bool, why string, err error)) error {
	timer := time.NewTicker(tick)
	defer timer.Stop()
	for {
		cloud, err := r.Cloud(ctx)
		if err != nil {
			return fmt.Errorf("reading the cloud: %w", err)
		}
		done, why, err := cond(cloud)
		if done || err != nil {
			return err
		}
		if d := meta.FindStatusCondition(cloud.Status.Conditions, v1alpha1.ConditionDegraded); d != nil && d.Reason == status.ReasonBlocked {
			why += "; the operator cannot reconcile the cloud: " + d.Message
		}
		report.Waiting(what, why)
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %s: %w", what, why, context.Cause(ctx))
		case <-r.changed:
		case <-timer.C:
		}
	}
}

// hold keeps the cloud at its release until the next one exists.
func hold(order []v1alpha1.Wave) Step {
	return Step{
		Name: "hold", Short: "Keep every component at the release in force", Timeout: releaseTimeout,
		Run: moving(func(ctx context.Context, m mover) error {
			cloud, err := m.Cloud(ctx)
			if err != nil {
				return err
			}
			if cloud.Status.Release.Revision == 0 {
				return errors.New("the cloud has no release yet")
			}
			err = m.steer(ctx, func(now *v1alpha1.Rollout) {
				if now.Waves == nil {
					now.Waves = order
				}
				now.Hold = true
			})
			if err != nil {
				return err
			}
			if cloud, err = m.Cloud(ctx); err != nil { // until now, a release could still be made
				return err
			}
			if from := cloud.Status.Release.Revision; m.rollout().From != from {
				return m.steer(ctx, func(now *v1alpha1.Rollout) { now.From = from })
			}
			return nil
		}),
	}
}

// next makes the release that the cloud moves to. change returns the merge patch that the cloud needs for it, and the one that undoes that; of is the
// release whose contents it copies, 0 if it is rendered.
func next(change func(context.Context, *Run, *v1alpha1.OnecloudCluster) (patch, undo map[string]any, of int, err error)) Step {
	return Step{
		Name: "release", Short: "Create the next release", Timeout: releaseTimeout,
		Run: moving(func(ctx context.Context, m mover) error {
			if m.rollout().To != 0 {
				return nil // a killed operator has recorded the release: no further one is made
			}
			cloud, err := m.Cloud(ctx)
			if err != nil {
				return err
			}
			if cloud.Status.Release.Revision == m.rollout().From { // a killed operator may not have changed the cloud yet
				patch, undo, of, err := change(ctx, m.Run, cloud)
				if err != nil {
					return err
				}
				if err := m.keepWayBack(ctx, cloud, undo, of); err != nil {
					return err
				}
				if err := m.patchCloud(ctx, patch); err != nil {
					return err
				}
			}
			if err := m.steer(ctx, func(now *v1alpha1.Rollout) { now.Hold = false }); err != nil {
				return err
			}
			return m.released(ctx)
		}),
	}
}

// keepWayBack records how to undo a change of the cloud before it is made. What an interrupted run recorded stays: the cloud may have changed.
func (m mover) keepWayBack(ctx context.Context, cloud *v1alpha1.OnecloudCluster, undo map[string]any, of int) error {
	if m.rollout().Undo != "" {
		return nil
	}
	back, err := json.Marshal(undo)
	if err != nil {
		return err
	}
	absent, err := m.absent(ctx, cloud)
	if err != nil {
		return err
	}
	return m.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		if s.Rollout.Undo, s.Rollout.Of = string(back), of; len(absent) == 0 {
			return
		}
		s.Databases = cmp.Or(s.Databases, &v1alpha1.OperationDatabases{})
		s.Databases.Absent = absent
	})
}

// released waits until the next release is in force, and records its revision.
func (m mover) released(ctx context.Context) error {
	from, revision := m.rollout().From, 0
	err := m.Until(ctx, m.report, "the next release", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
		revision = cloud.Status.Release.Revision
		return revision > from, fmt.Sprintf("release %d is in force", revision), nil
	})
	if err != nil {
		return err
	}
	m.report.Changed("release %d", revision)
	return m.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Rollout.To = revision })
}

// patchCloud changes the cloud and waits until the cache shows it: the next release must be rendered from it.
func (m mover) patchCloud(ctx context.Context, patch map[string]any) error {
	if len(patch) == 0 {
		return nil
	}
	cloud, err := m.Cloud(ctx)
	if err != nil {
		return err
	}
	changed := cloud.DeepCopy()
	err = patiently(ctx, func() error { return kube.Merge(ctx, m.Client, changed, v1alpha1.ManagerOperator, patch) })
	if err != nil {
		return fmt.Errorf("changing the cloud: %w", err)
	}
	if changed.ResourceVersion == cloud.ResourceVersion {
		return nil
	}
	m.report.Changed("cloud: %s", changedFields(patch))
	metadata, _ := patch["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return m.Until(ctx, m.report, "the change of the cloud", func(now *v1alpha1.OnecloudCluster) (bool, string, error) {
		for key := range annotations { // a change of annotations, as of the edition, does not count as a generation
			if now.Annotations[key] != changed.Annotations[key] {
				return false, unread, nil
			}
		}
		return now.Generation >= changed.Generation, unread, nil
	})
}

const unread = "the operator has not read it yet"

func ofAgents(wave string) bool { return wave == waveNames[len(waveNames)-1] }

// limited sets the time limits of a step that moves a wave, forward or back.
func limited(s Step, wave string) Step {
	s.Timeout = waveTimeout
	if ofAgents(wave) {
		s.Timeout, s.Patience = agentsTimeout, agentsPatience
	}
	return s
}

// wave moves the components of a wave and waits until they serve. number counts from 1.
func wave(number int, name string) Step {
	return limited(Step{
		Name: "wave-" + name, Short: "Move " + name,
		Run: moving(func(ctx context.Context, m mover) error {
			err := m.steer(ctx, func(now *v1alpha1.Rollout) {
				now.Reached = max(now.Reached, number)
				now.Moved = max(now.Moved, now.Reached)
			})
			if err != nil {
				return err
			}
			return m.gate(ctx, name, members(m.rollout().Waves[:number]))
		}),
	}, name)
}

// members returns the components of waves, in order.
func members(waves []v1alpha1.Wave) []string {
	return slices.Concat(lists.Map(waves, func(w v1alpha1.Wave) []string { return w.Components })...)
}

// gate waits until the components have served without interruption for a while, and pass their probes.
func (m mover) gate(ctx context.Context, wave string, components []string) error {
	var since, asked time.Time
	return m.Until(ctx, m.report, "the components", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
		v := judge(cloud, components, v1alpha1.ComponentStatus.Settled, m.forbearance(time.Now()))
		if err := m.advance(ctx, wave, v); err != nil {
			return false, "", err
		}
		switch {
		case v.failed != "":
			return false, "", errors.New(v.failed)
		case !v.ready:
			since = time.Time{}
			return false, v.why, nil
		case since.IsZero():
			since = time.Now()
		}
		if time.Since(since) < m.Settle {
			return false, "all serve; they must keep serving for " + m.Settle.String(), nil
		}
		lines, err := prober{m.Client, m.Connections, cloud}.ask(ctx, m.Probes, components)
		if err == nil {
			for _, line := range lines {
				m.report.Changed("%s", line)
			}
			return true, "", nil
		}
		if asked.IsZero() {
			asked = time.Now()
		}
		if time.Since(asked) > probePatience || ctx.Err() != nil {
			return false, "", err
		}
		return false, err.Error(), nil
	})
}

// back moves the components of a wave back to the release they came from.
func back(number int, name string) Step {
	return limited(Step{
		Name: "back-" + name, Short: "Move " + name + " back",
		Skip: workflow.SkipIf("it was not moved", func(r *Run) bool { return r.rollout() == nil || r.rollout().Reached < number }),
		Run: moving(func(ctx context.Context, m mover) error {
			if err := m.steer(ctx, func(now *v1alpha1.Rollout) { now.Reached = number - 1 }); err != nil {
				return err
			}
			return m.untilBack(ctx, name, m.rollout().Waves[number-1].Components)
		}),
	}, name)
}

// untilBack waits until the components serve, even if only in the version from before the update.
func (m mover) untilBack(ctx context.Context, wave string, components []string) error {
	return m.Until(ctx, m.report, "the components", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
		v := judge(cloud, components, settledBefore, m.forbearance(time.Now()))
		return v.ready, v.why, m.advance(ctx, wave, v)
	})
}

// advance reports how far a wave is: the agents by the pods of the new version, so that each node counts as progress, the others by their components.
func (m mover) advance(ctx context.Context, wave string, v verdict) error {
	done, want, unit := int64(v.done), int64(v.want), "components"
	if ofAgents(wave) {
		all, err := agents(ctx, m.Client, client.ObjectKey{Namespace: m.Operation.Namespace, Name: m.Operation.Spec.Cloud})
		if err != nil {
			return err
		}
		done, want, unit = 0, 0, "pods of agents"
		for _, d := range all {
			done, want = done+int64(d.Status.UpdatedNumberScheduled), want+int64(d.Status.DesiredNumberScheduled)
		}
	}
	m.report.Progress(done, want, unit)
	return nil
}

// restore puts the contents of the release that the cloud came from into force again.
func restore() Step {
	return Step{
		Name: "restore-release", Short: "Restore the previous release", Timeout: releaseTimeout,
		Skip: workflow.SkipIf("it is in force", func(r *Run) bool { return r.rollout() == nil }),
		Run: moving(func(ctx context.Context, m mover) error {
			now := m.rollout()
			if now.Undo == "" {
				return nil // no release was made
			}
			if now.Of != now.From || now.Hold {
				made, err := m.undo(ctx)
				if err != nil || !made {
					return err
				}
			}
			err := m.steer(ctx, func(now *v1alpha1.Rollout) { now.Hold, now.Of = false, now.From })
			if err != nil {
				return err
			}
			m.report.Changed("restored the contents of release %d", now.From)
			return nil
		}),
	}
}

// undo undoes what the operation changed in the cloud, while no release is made. It reports whether one was made: before the operator holds the cloud,
// its status may be out of date on that.
func (m mover) undo(ctx context.Context) (made bool, err error) {
	if err := m.steer(ctx, func(now *v1alpha1.Rollout) { now.Hold = true }); err != nil {
		return false, err
	}
	cloud, err := m.Cloud(ctx)
	if err != nil {
		return false, err
	}
	var undo map[string]any
	if err := json.Unmarshal([]byte(m.rollout().Undo), &undo); err != nil {
		return false, fmt.Errorf("reading the recorded undo patch: %w", err)
	}
	return cloud.Status.Release.Revision != m.rollout().From, m.patchCloud(ctx, undo)
}

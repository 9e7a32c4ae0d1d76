// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// follower replaces the reconciler: it moves components as the rollout of the running operation says, and reports that. Package reconcile tests the real
// one.
type follower struct {
	*fixture
	mu sync.Mutex
	// broken is a component that does not run at the version v2; moved lists the components that moved, in order.
	broken string
	moved  []string
	// late is a component that is still progressing.
	late string
	// slow delays the next release until long after the operation that allows it was read: the follower sends to it, and receives from it.
	slow chan struct{}
	// edits makes a release just before the cloud is held.
	edits bool
	// at is the version of each component, contents that of each release.
	at       map[string]string
	contents map[int]string
}

// components has one component of each wave.
var components = map[string]int{"keystone": 0, "region": 1, "glance": 2, "host": 3}

func newFollower(t *testing.T, broken string) *follower {
	f := &follower{broken: broken, at: map[string]string{}, contents: map[int]string{3: "v4.0.4"}}
	f.fixture = newFixture(t, func(*fixture) []Action { return Actions(catalog.All()) })
	cloud := &v1alpha1.OnecloudCluster{}
	require.NoError(t, f.client.Get(t.Context(), key, cloud))
	cloud.Spec.Version = "v4.0.4"
	require.NoError(t, f.client.Update(t.Context(), cloud))
	cloud.Status.Version, cloud.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 3, Version: "v4.0.4"}
	for name := range components {
		f.at[name] = "v4.0.4"
	}
	require.NoError(t, f.client.Status().Update(t.Context(), cloud))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			f.follow(ctx)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return f
}

// follow does what one reconcile does.
func (f *follower) follow(ctx context.Context) {
	all, err := Of(ctx, f.client, key)
	cloud := &v1alpha1.OnecloudCluster{}
	if err != nil || f.client.Get(ctx, key, cloud) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var o *v1alpha1.OnecloudOperation
	if i := slices.IndexFunc(all, func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase.Active() }); i >= 0 {
		o = all[i]
	}
	spec := cloud.Spec.Version
	if f.slow != nil && o != nil && o.Status.Rollout != nil && !o.Status.Rollout.Hold {
		f.slow <- struct{}{}
		<-f.slow
		f.slow = nil
		if f.client.Get(ctx, key, cloud) != nil {
			return
		}
	}
	in := &cloud.Status.Release
	cloud.Status.Rollout = nil
	if o != nil && o.Status.Rollout != nil {
		r := o.Status.Rollout
		if f.edits {
			f.contents[in.Revision+1], f.edits = f.contents[in.Revision], false
			in.Revision++
		}
		if r.From == 0 {
			r.From = in.Revision
		}
		cloud.Status.Rollout = &v1alpha1.RolloutStatus{Operation: o.Name, Hold: r.Hold, Steer: r.Steer, Reached: r.Reached}
		switch {
		case r.Hold:
		case r.Of != 0:
			if f.contents[-in.Revision] != f.contents[r.Of] || in.Revision == r.From {
				in.Revision++
				f.contents[in.Revision], f.contents[-in.Revision] = f.contents[r.Of], f.contents[r.Of]
			}
			cloud.Status.Rollout.Of = r.Of
		case in.Revision == r.From:
			in.Revision++
			f.contents[in.Revision] = spec
		}
		in.Version = f.contents[in.Revision]
	}
	cloud.Status.Components = nil
	for name := range components {
		want, reason, outdated := f.contents[in.Revision], "Available", false
		if o != nil && o.Status.Rollout != nil && !reached(o.Status.Rollout, name) {
			if was := f.contents[o.Status.Rollout.From]; was != want {
				want, reason, outdated = was, v1alpha1.ReasonWave, true
			}
		}
		if f.at[name] != want {
			f.at[name] = want
			f.moved = append(f.moved, name+" "+want)
		}
		c := v1alpha1.ComponentStatus{Name: name, State: v1alpha1.Available, Reason: reason, Outdated: outdated}
		if name == f.broken && f.at[name] == "v4.0.5" {
			c.State, c.Message = v1alpha1.Degraded, "it crashes"
		}
		if name == f.late {
			c.State = v1alpha1.Progressing
		}
		cloud.Status.Components = append(cloud.Status.Components, c)
	}
	_ = f.client.Status().Update(ctx, cloud) // after a conflict, the next round writes it
}

func reached(r *v1alpha1.Rollout, name string) bool {
	i := slices.IndexFunc(r.Waves, func(w v1alpha1.Wave) bool { return slices.Contains(w.Components, name) })
	return i < r.Reached
}

func (f *follower) edit(change func(*v1alpha1.OnecloudCluster)) {
	f.Helper()
	for deadline := time.Now().Add(patience); ; {
		cloud := &v1alpha1.OnecloudCluster{}
		err := f.client.Get(f.Context(), key, cloud)
		if err == nil {
			change(cloud)
			err = f.client.Update(f.Context(), cloud)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.Fatal(err)
		}
	}
}

// end checks where a cloud is after an operation.
func (f *follower) end(want string, moves ...string) {
	f.Helper()
	cloud := &v1alpha1.OnecloudCluster{}
	require.NoError(f, f.client.Get(f.Context(), key, cloud))
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, at := range f.at {
		if at != want {
			f.Errorf("%s is at %s, want %s", name, at, want)
		}
	}
	if cloud.Spec.Version != want || cloud.Status.Release.Version != want {
		f.Errorf("spec %s, release %+v, want %s", cloud.Spec.Version, cloud.Status.Release, want)
	}
	if !slices.Equal(f.moved, moves) {
		f.Errorf("moved %q, want %q", f.moved, moves)
	}
}

func TestUpdateMovesWavesInOrder(t *testing.T) {
	f := newFollower(t, "")
	f.edit(func(c *v1alpha1.OnecloudCluster) { c.Spec.Version = "v4.0.5" })
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		all, err := Of(t.Context(), f.client, key)
		if err == nil && len(all) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no operation: %v", err)
		}
	}
	o := f.until("c-update-3-0-v4-0-5", v1alpha1.OperationSucceeded)
	f.end("v4.0.5", "keystone v4.0.5", "region v4.0.5", "glance v4.0.5", "host v4.0.5")
	if r := o.Status.Rollout; r.From != 3 || r.To != 4 || r.Reached != 4 {
		t.Errorf("%+v", r)
	}
}

// Whichever component fails, everything that was moved goes back, the last wave first, and so does the spec.
func TestFailedUpdateGoesBack(t *testing.T) {
	moves := []string{"keystone", "region", "glance", "host"}
	for i, broken := range moves {
		t.Run(broken, func(t *testing.T) {
			f := newFollower(t, broken)
			f.create("u", func(o *v1alpha1.OnecloudOperation) {
				o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
			})
			o := f.until("u", v1alpha1.OperationReverted)
			var want []string
			for _, name := range moves[:i+1] {
				want = append(want, name+" v4.0.5")
			}
			for _, name := range slices.Backward(moves[:i+1]) {
				want = append(want, name+" v4.0.4")
			}
			f.end("v4.0.4", want...)
			if !strings.Contains(o.Status.Cause, broken+": it crashes") {
				t.Errorf("%q", o.Status.Cause)
			}
		})
	}
}

// The operation starts from a release that was made while the update began.
func TestReleaseMadeBeforeTheHold(t *testing.T) {
	f := newFollower(t, "")
	f.mu.Lock()
	f.edits = true
	f.mu.Unlock()
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
	})
	o := f.until("u", v1alpha1.OperationSucceeded)
	f.end("v4.0.5", "keystone v4.0.5", "region v4.0.5", "glance v4.0.5", "host v4.0.5")
	if r := o.Status.Rollout; r.From != 4 || r.To != 5 {
		t.Errorf("%+v", r)
	}
}

// An update that is cancelled while its release is being made also goes back from that release.
func TestCancelDuringReleaseCreation(t *testing.T) {
	f := newFollower(t, "")
	f.mu.Lock()
	slow := make(chan struct{})
	f.slow = slow
	f.mu.Unlock()
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
	})
	<-slow
	f.control("u", v1alpha1.OperationCancel)
	goesBack := func(s v1alpha1.OperationStep) bool { return s.Name == "restore-release" && s.Message != "" }
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if s := f.get("u").Status; s.Phase.Final() || slices.ContainsFunc(s.Steps, goesBack) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", f.get("u").Status)
		}
	}
	slow <- struct{}{}
	o := f.until("u", v1alpha1.OperationCancelled)
	time.Sleep(20 * time.Millisecond)
	f.end("v4.0.4")
	if r := o.Status.Rollout; r.Of != r.From {
		t.Errorf("the release was made, and was not taken back: %+v", r)
	}
}

// One edit may change the version and something else: the reconciler applies the rest first, and the update waits for that.
func TestUpdateWaitsForProgressingComponents(t *testing.T) {
	f := newFollower(t, "")
	f.mu.Lock()
	f.late = "glance"
	f.mu.Unlock()
	f.follow(t.Context())
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
	})
	f.until("u", v1alpha1.OperationPlanning)
	for deadline := time.Now().Add(patience); f.get("u").Status.Steps[0].Message == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait: %+v", f.get("u").Status)
		}
	}
	f.mu.Lock()
	f.late = ""
	f.mu.Unlock()
	f.until("u", v1alpha1.OperationSucceeded)
}

func TestOnTheWay(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	cloud := func(observed int64, age time.Duration, states ...v1alpha1.State) *v1alpha1.OnecloudCluster {
		c := &v1alpha1.OnecloudCluster{}
		c.Generation, c.Status.ObservedGeneration = 2, observed
		for _, s := range states {
			c.Status.Components = append(c.Status.Components, v1alpha1.ComponentStatus{Name: "glance", State: s, Since: metav1.NewTime(now.Add(-age)), Message: "its pods start"})
		}
		return c
	}
	with := func(annotation string, c *v1alpha1.OnecloudCluster) *v1alpha1.OnecloudCluster {
		c.Annotations = map[string]string{v1alpha1.AnnotationPaused: annotation}
		return c
	}
	blocked := cloud(1, time.Hour, v1alpha1.Progressing)
	out := status.Of(blocked, now)
	out.Blocked("a list was refused")
	blocked.Status = out.OnecloudClusterStatus
	for _, c := range []struct {
		name  string
		cloud *v1alpha1.OnecloudCluster
		want  string
	}{
		{"all run", cloud(2, time.Hour, v1alpha1.Available, v1alpha1.Disabled, v1alpha1.Idle), ""},
		{"not reconciled", cloud(1, time.Hour, v1alpha1.Available), "the operator has not reconciled the cloud yet"},
		{"pods start", cloud(2, time.Hour, v1alpha1.Available, v1alpha1.Progressing), "glance is Progressing: its pods start"},
		{"it waits for another", cloud(2, time.Hour, v1alpha1.Waiting), "glance is Waiting: its pods start"},
		{"one is broken", cloud(2, time.Minute, v1alpha1.Progressing, v1alpha1.Degraded), ""},
		{"one had trouble just now", cloud(2, 29*time.Second, v1alpha1.Degraded), "glance is Degraded: its pods start"},
		{"paused", with("true", cloud(2, 0, v1alpha1.Progressing)), ""},
		{"one is paused", with("glance", cloud(2, 0, v1alpha1.Waiting)), ""},
		{"no longer paused", with("false", cloud(2, 0, v1alpha1.Waiting)), "glance is Waiting: its pods start"},
		{"blocked", blocked, ""},
	} {
		if got := onTheWay(c.cloud, forbearance{now: now, settle: 30 * time.Second}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestUpdateIsRefusedBeforeAnyChange(t *testing.T) {
	f := newFollower(t, "")
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v3.10.16"}
	})
	o := f.until("u", v1alpha1.OperationFailed)
	f.end("v4.0.4")
	if len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7061" || o.Status.Rollout != nil {
		t.Errorf("%+v", o.Status)
	}
}

// If an operator is killed after it has recorded the undo patch and before it changes the cloud, the next one changes the cloud.
func TestKilledBeforeTheCloudChanges(t *testing.T) {
	f := newFollower(t, "")
	f.stop()
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
	})
	o := f.get("u")
	for _, p := range update(waves(catalog.All())).Steps {
		o.Status.Steps = append(o.Status.Steps, v1alpha1.OperationStep{Name: p.Name, Short: p.Short, State: v1alpha1.StepPending})
	}
	o.Status.Phase, o.Status.Start = v1alpha1.OperationRunning, metav1.Now()
	o.Status.Steps[0].State, o.Status.Steps[1].State = v1alpha1.StepDone, v1alpha1.StepDone
	o.Status.Steps[2].State, o.Status.Steps[2].Start = v1alpha1.StepRunning, metav1.Now()
	o.Status.Rollout = &v1alpha1.Rollout{From: 3, Waves: waves(catalog.All()), Hold: true, Undo: `{"spec":{"version":"v4.0.4"}}`}
	require.NoError(t, f.client.Status().Update(t.Context(), o))
	f.start()
	o = f.until("u", v1alpha1.OperationSucceeded)
	f.end("v4.0.5", "keystone v4.0.5", "region v4.0.5", "glance v4.0.5", "host v4.0.5")
	if o.Status.Rollout.Undo != `{"spec":{"version":"v4.0.4"}}` {
		t.Errorf("the way back is %s", o.Status.Rollout.Undo)
	}
}

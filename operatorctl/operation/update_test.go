// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/operatorctl/catalog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// follower stands for the reconciler: it moves components as the rollout of the running operation says, and reports that. package reconcile tests
// the real one.
type follower struct {
	*world
	mu sync.Mutex
	// broken is a component that does not run at the version v2, moved each component that was moved, in order.
	broken string
	moved  []string
	// at is the version of each component, contents that of each release.
	at       map[string]string
	contents map[int]string
}

// components has one of each wave.
var components = map[string]int{"keystone": 0, "region": 1, "glance": 2, "host": 3}

func newFollower(t *testing.T, broken string) *follower {
	f := &follower{broken: broken, at: map[string]string{}, contents: map[int]string{3: "v4.0.4"}}
	f.world = newWorld(t, func(*world) []Action { return Actions(catalog.All()) })
	cloud := &v1alpha1.OnecloudCluster{}
	if err := f.client.Get(t.Context(), key, cloud); err != nil {
		t.Fatal(err)
	}
	cloud.Spec.Version = "v4.0.4"
	if err := f.client.Update(t.Context(), cloud); err != nil {
		t.Fatal(err)
	}
	cloud.Status.Version, cloud.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 3, Version: "v4.0.4"}
	for name := range components {
		f.at[name] = "v4.0.4"
	}
	if err := f.client.Status().Update(t.Context(), cloud); err != nil {
		t.Fatal(err)
	}
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
	in := &cloud.Status.Release
	cloud.Status.Rollout = nil
	var o *v1alpha1.OnecloudOperation
	if i := slices.IndexFunc(all, func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase.Active() }); i >= 0 {
		o = all[i]
	}
	if o != nil && o.Status.Rollout != nil {
		r := o.Status.Rollout
		cloud.Status.Rollout = &v1alpha1.RolloutStatus{Operation: o.Name, Hold: r.Hold, Reached: r.Reached}
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
			f.contents[in.Revision] = cloud.Spec.Version
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
		cloud.Status.Components = append(cloud.Status.Components, c)
	}
	_ = f.client.Status().Update(ctx, cloud) // a conflict: the next round has it
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

// end is where a cloud is after an operation.
func (f *follower) end(want string, moves ...string) {
	f.Helper()
	cloud := &v1alpha1.OnecloudCluster{}
	if err := f.client.Get(f.Context(), key, cloud); err != nil {
		f.Fatal(err)
	}
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

// Whichever component fails, everything that was moved goes back, the last wave first, and the spec with it.
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

// An operator that was killed between keeping the way back and changing the cloud is followed by one that changes the cloud.
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
	if err := f.client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	f.start()
	o = f.until("u", v1alpha1.OperationSucceeded)
	f.end("v4.0.5", "keystone v4.0.5", "region v4.0.5", "glance v4.0.5", "host v4.0.5")
	if o.Status.Rollout.Undo != `{"spec":{"version":"v4.0.4"}}` {
		t.Errorf("the way back is %s", o.Status.Rollout.Undo)
	}
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

func TestOperationSucceeds(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		skip := fx.does("skipped")
		skip.Skip = func(*Run) string { return "not here" }
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.looks("look"), fx.does("one"), skip, fx.does("two")}}}
	})
	fx.create("a")
	o := fx.until("a", v1alpha1.OperationSucceeded)
	fx.wantSaid("look", "one", "two")
	var states []string
	for _, s := range o.Status.Steps {
		states = append(states, s.Name+" "+string(s.State))
		if s.End.IsZero() || s.State == v1alpha1.StepDone && len(s.Evidence) != 1 {
			t.Errorf("%+v", s)
		}
	}
	if want := []string{"look Done", "one Done", "skipped Skipped", "two Done"}; !slices.Equal(states, want) {
		t.Errorf("%q, want %q", states, want)
	}
	for _, c := range o.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	}
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "cloud" {
		t.Errorf("owners: %v", o.OwnerReferences)
	}
	cm := &corev1.ConfigMap{}
	if err := fx.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: o.Status.Log}, cm); err != nil || !strings.Contains(cm.Data[LogKey], "did two") {
		t.Errorf("%v: %q", err, cm.Data)
	}
	fx.until("a", v1alpha1.OperationSucceeded)
}

func TestOneAtATime(t *testing.T) {
	release := make(chan struct{})
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one", func(ctx context.Context, r *Run, _ workflow.Reporter) error {
			if r.Operation.Name == "b" {
				return nil
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		})}}}
	})
	fx.create("a")
	fx.until("a", v1alpha1.OperationRunning)
	fx.create("b")
	if o := fx.until("b", v1alpha1.OperationPending); o.Status.Message != "waiting for operation a" {
		t.Errorf("%+v", o.Status)
	}
	close(release)
	fx.until("a", v1alpha1.OperationSucceeded)
	fx.until("b", v1alpha1.OperationSucceeded)
}

func TestFailureIsReverted(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.looks("look"), fx.does("one"), fx.does("two", fails), fx.does("three")},
			Revert: []Step{fx.does("back-two"), fx.does("back-one")}}}
	})
	fx.create("a")
	o := fx.until("a", v1alpha1.OperationReverted)
	fx.wantSaid("look", "one", "two", "back-two", "back-one")
	if want := "phase two: broken; all changes were undone"; o.Status.Message != want {
		t.Errorf("%q, want %q", o.Status.Message, want)
	}
}

func TestFailureBeforeAnyChange(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.looks("look", fails), fx.does("one")}, Revert: []Step{fx.does("back")}}}
	})
	fx.create("a")
	o := fx.until("a", v1alpha1.OperationFailed)
	fx.wantSaid("look")
	if want := "phase look: broken; nothing was changed"; o.Status.Message != want {
		t.Errorf("%q, want %q", o.Status.Message, want)
	}
}

func TestFailureThatPauses(t *testing.T) {
	var corrected sync.Map
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one"), fx.does("two", func(context.Context, *Run, workflow.Reporter) error {
			if _, ok := corrected.Load("yes"); !ok {
				return errors.New("broken")
			}
			return nil
		})}, Revert: []Step{fx.does("back")}}}
	})
	pausing := func(o *v1alpha1.OnecloudOperation) { o.Spec.OnFailure = v1alpha1.OnFailurePause }
	fx.create("a", pausing)
	o := fx.until("a", v1alpha1.OperationPaused)
	if o.Annotations[v1alpha1.AnnotationControl] != v1alpha1.OperationPause || !strings.Contains(o.Status.Message, "broken; to try again: ocadm operation resume --name c --namespace n a;") {
		t.Errorf("%v: %q", o.Annotations, o.Status.Message)
	}
	corrected.Store("yes", true)
	fx.control("a", "")
	fx.until("a", v1alpha1.OperationSucceeded)
	fx.wantSaid("one", "two", "two")
	corrected.Delete("yes")
	fx.create("b", pausing)
	fx.until("b", v1alpha1.OperationPaused)
	fx.control("b", v1alpha1.OperationCancel)
	fx.until("b", v1alpha1.OperationCancelled)
	fx.wantSaid("one", "two", "two", "one", "two", "back")
}

// A process that ends does not continue; the next one repeats the step that ran and none that was done, both forward and when reverting.
func TestKilledOperatorGoesOn(t *testing.T) {
	ran := make(chan string)
	next := make(chan error)
	wait := func(name string) func(context.Context, *Run, workflow.Reporter) error {
		return func(ctx context.Context, _ *Run, _ workflow.Reporter) error {
			select {
			case ran <- name:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case err := <-next:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck,
			Steps:  []Step{fx.looks("look", wait("look")), fx.does("one", wait("one")), fx.does("two", wait("two"))},
			Revert: []Step{fx.does("back-two", wait("back-two")), fx.does("back-one", wait("back-one"))}}}
	})
	fx.create("a")
	runs := func(want string) {
		t.Helper()
		select {
		case got := <-ran:
			if got != want {
				t.Fatalf("step %q runs, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("step %q does not run: %+v", want, fx.get("a").Status)
		}
	}
	for _, name := range []string{"look", "one", "two", "back-two", "back-one"} {
		runs(name)
		fx.stop()
		if p := fx.get("a").Status.Phase; p.Final() {
			t.Fatalf("killed in step %s, it is %s", name, p)
		}
		fx.start()
		runs(name)
		var result error
		if name == "two" {
			result = errors.New("broken")
		}
		next <- result
	}
	fx.until("a", v1alpha1.OperationReverted)
	fx.wantSaid("look", "look", "one", "one", "two", "two", "back-two", "back-two", "back-one", "back-one")
}

// TestCancelledWhileNoOperatorRuns: the step that would remove what it created does not run again.
func TestCancelledWhileNoOperatorRuns(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.looks("copy", blocks)}, Clean: func(context.Context, *Run) error {
			fx.say("clean")
			return nil
		}}}
	})
	fx.create("a")
	for fx.get("a").Status.Step != "copy" {
		time.Sleep(time.Millisecond)
	}
	fx.stop()
	fx.control("a", v1alpha1.OperationCancel)
	fx.start()
	if o := fx.until("a", v1alpha1.OperationCancelled); o.Status.Steps[0].State != v1alpha1.StepFailed {
		t.Errorf("%+v", o.Status)
	}
	fx.wantSaid("copy", "clean")
}

func TestPauseResumeAndCancel(t *testing.T) {
	release := make(chan struct{})
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{
			fx.does("one", func(context.Context, *Run, workflow.Reporter) error { <-release; return nil }), fx.does("two", blocks)},
			Revert: []Step{fx.does("back")}}}
	})
	fx.create("a")
	fx.until("a", v1alpha1.OperationRunning)
	fx.control("a", v1alpha1.OperationPause)
	for fx.get("a").Status.Step != "one" {
		time.Sleep(time.Millisecond)
	}
	// The run obeys the annotation in the next reconcile; the step ends after that.
	fx.create("waits")
	fx.until("waits", v1alpha1.OperationPending)
	fx.create("later")
	fx.until("later", v1alpha1.OperationPending)
	close(release)
	fx.until("a", v1alpha1.OperationPaused)
	fx.wantSaid("one")
	o := fx.get("a")
	o.Status.Start, o.Status.RanSeconds = metav1.NewTime(time.Now().Add(-24*time.Hour)), 24*60*60 // it was paused for a night, and had used up its time
	require.NoError(t, fx.client.Status().Update(t.Context(), o))
	fx.control("a", "")
	for fx.get("a").Status.Step != "two" { // an earlier cancellation would skip it
		time.Sleep(time.Millisecond)
	}
	fx.control("waits", v1alpha1.OperationCancel)
	fx.until("waits", v1alpha1.OperationCancelled)
	fx.control("later", v1alpha1.OperationCancel)
	fx.control("a", v1alpha1.OperationCancel)
	if o := fx.until("a", v1alpha1.OperationCancelled); o.Status.Message != "cancelled; all changes were undone" {
		t.Errorf("%q", o.Status.Message)
	}
	fx.wantSaid("one", "two", "back")
}

// A user pauses an operation, and cancels it while the step that was to be the last still runs: everything is undone.
func TestCancelAfterAPauseThatHasNotBegun(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one", blocks)}, Revert: []Step{fx.does("back")}}}
	})
	fx.create("a")
	fx.until("a", v1alpha1.OperationRunning)
	fx.control("a", v1alpha1.OperationPause)
	fx.create("waits") // the run obeys the annotation in the same reconcile
	fx.until("waits", v1alpha1.OperationPending)
	fx.control("waits", v1alpha1.OperationCancel)
	fx.control("a", v1alpha1.OperationCancel)
	if o := fx.until("a", v1alpha1.OperationCancelled); o.Status.Message != "cancelled; all changes were undone" {
		t.Errorf("%q", o.Status.Message)
	}
	fx.wantSaid("one", "back")
}

// An operation that is deleted while it runs is cancelled first.
func TestDeletedOperationIsCancelled(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one", blocks)}, Revert: []Step{fx.does("back")}}}
	})
	fx.create("a")
	o := fx.until("a", v1alpha1.OperationRunning)
	require.NoError(t, fx.client.Delete(t.Context(), o))
	for deadline := time.Now().Add(patience); fx.client.Get(t.Context(), client.ObjectKeyFromObject(o), o) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it stays: %+v", o.Status)
		}
	}
	fx.wantSaid("one", "back")
}

// An operation whose time is up reverts what it has begun. Only the time during which an operator ran it counts.
func TestTimeout(t *testing.T) {
	for _, c := range []struct {
		what  string
		ran   time.Duration
		phase v1alpha1.OperationPhase
		said  []string
	}{
		{"its time is up", time.Hour, v1alpha1.OperationReverted, []string{"back"}},
		{"the operator was away for two hours", time.Minute, v1alpha1.OperationSucceeded, []string{"one"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			fx := newFixture(t, func(fx *fixture) []Action {
				return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one")}, Revert: []Step{fx.does("back")}}}
			})
			fx.stop()
			fx.create("a", func(o *v1alpha1.OnecloudOperation) { o.Spec.Timeout = "1h" })
			o := fx.get("a")
			began := metav1.NewTime(time.Now().Add(-2 * time.Hour))
			o.Status.Phase, o.Status.Start, o.Status.RanSeconds = v1alpha1.OperationRunning, began, int64(c.ran.Seconds())
			o.Status.Steps = []v1alpha1.OperationStep{{Name: "one", State: v1alpha1.StepRunning, Start: began}}
			require.NoError(t, fx.client.Status().Update(t.Context(), o))
			fx.start()
			o = fx.until("a", c.phase)
			if c.phase == v1alpha1.OperationReverted && o.Status.Cause != "the operation did not end within 1h0m0s" {
				t.Errorf("%q", o.Status.Cause)
			}
			if o.Status.RanSeconds < int64(c.ran.Seconds()) {
				t.Errorf("it ran for %d s", o.Status.RanSeconds)
			}
			fx.wantSaid(c.said...)
		})
	}
}

func TestResumed(t *testing.T) {
	now := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	s := &v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationPaused}
	if got := Resumed(s, now); got != "" {
		t.Errorf("without copies: %q", got)
	}
	s.Databases = &v1alpha1.OperationDatabases{Saved: &v1alpha1.DatabaseCopies{Time: metav1.NewTime(now.Add(-14 * time.Hour))}}
	if got := Resumed(s, now); !strings.HasPrefix(got, "the copies of its databases are 14h0m0s old, from 2026-11-24T18:00:00Z") {
		t.Errorf("%q", got)
	}
	s.Phase = v1alpha1.OperationRunning
	if got := Resumed(s, now); got != "" {
		t.Errorf("it runs: %q", got)
	}
}

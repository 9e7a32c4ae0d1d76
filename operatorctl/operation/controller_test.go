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
)

func TestOperationSucceeds(t *testing.T) {
	w := newWorld(t, func(w *world) []Action {
		skip := w.does("skipped")
		skip.Skip = func(*Run) string { return "not here" }
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.looks("look"), w.does("one"), skip, w.does("two")}}}
	})
	w.create("a")
	o := w.until("a", v1alpha1.OperationSucceeded)
	w.wantSaid("look", "one", "two")
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
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: o.Status.Log}, cm); err != nil || !strings.Contains(cm.Data[LogKey], "did two") {
		t.Errorf("%v: %q", err, cm.Data)
	}
	w.until("a", v1alpha1.OperationSucceeded)
}

func TestOneAtATime(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.does("one", func(ctx context.Context, r *Run, _ workflow.Reporter) error {
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
	w.create("a")
	w.until("a", v1alpha1.OperationRunning)
	w.create("b")
	if o := w.until("b", v1alpha1.OperationPending); o.Status.Message != "waits for operation a" {
		t.Errorf("%+v", o.Status)
	}
	close(release)
	w.until("a", v1alpha1.OperationSucceeded)
	w.until("b", v1alpha1.OperationSucceeded)
}

func TestFailureIsReverted(t *testing.T) {
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.looks("look"), w.does("one"), w.does("two", fails), w.does("three")},
			Revert: []Step{w.does("back-two"), w.does("back-one")}}}
	})
	w.create("a")
	o := w.until("a", v1alpha1.OperationReverted)
	w.wantSaid("look", "one", "two", "back-two", "back-one")
	if want := "phase two: broken; what was changed is as it was before"; o.Status.Message != want {
		t.Errorf("%q, want %q", o.Status.Message, want)
	}
}

func TestFailureBeforeAnyChange(t *testing.T) {
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.looks("look", fails), w.does("one")}, Revert: []Step{w.does("back")}}}
	})
	w.create("a")
	o := w.until("a", v1alpha1.OperationFailed)
	w.wantSaid("look")
	if want := "phase look: broken; nothing was changed"; o.Status.Message != want {
		t.Errorf("%q, want %q", o.Status.Message, want)
	}
}

func TestFailureThatPauses(t *testing.T) {
	var corrected sync.Map
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.does("one"), w.does("two", func(context.Context, *Run, workflow.Reporter) error {
			if _, ok := corrected.Load("yes"); !ok {
				return errors.New("broken")
			}
			return nil
		})}, Revert: []Step{w.does("back")}}}
	})
	pausing := func(o *v1alpha1.OnecloudOperation) { o.Spec.OnFailure = v1alpha1.OnFailurePause }
	w.create("a", pausing)
	o := w.until("a", v1alpha1.OperationPaused)
	if o.Annotations[v1alpha1.AnnotationControl] != v1alpha1.OperationPause || !strings.Contains(o.Status.Message, "broken; to try again: ocadm operation resume a") {
		t.Errorf("%v: %q", o.Annotations, o.Status.Message)
	}
	corrected.Store("yes", true)
	w.control("a", "")
	w.until("a", v1alpha1.OperationSucceeded)
	w.wantSaid("one", "two", "two")
	corrected.Delete("yes")
	w.create("b", pausing)
	w.until("b", v1alpha1.OperationPaused)
	w.control("b", v1alpha1.OperationCancel)
	w.until("b", v1alpha1.OperationCancelled)
	w.wantSaid("one", "two", "two", "one", "two", "back")
}

// A process that ends goes on nowhere; the next one begins with the step that ran, and repeats none that was done, on the way there and back.
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
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck,
			Steps:  []Step{w.looks("look", wait("look")), w.does("one", wait("one")), w.does("two", wait("two"))},
			Revert: []Step{w.does("back-two", wait("back-two")), w.does("back-one", wait("back-one"))}}}
	})
	w.create("a")
	runs := func(want string) {
		t.Helper()
		select {
		case got := <-ran:
			if got != want {
				t.Fatalf("step %q runs, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("step %q does not run: %+v", want, w.get("a").Status)
		}
	}
	for _, name := range []string{"look", "one", "two", "back-two", "back-one"} {
		runs(name)
		w.stop()
		if p := w.get("a").Status.Phase; p.Final() {
			t.Fatalf("killed in step %s, it is %s", name, p)
		}
		w.start()
		runs(name)
		var result error
		if name == "two" {
			result = errors.New("broken")
		}
		next <- result
	}
	w.until("a", v1alpha1.OperationReverted)
	w.wantSaid("look", "look", "one", "one", "two", "two", "back-two", "back-two", "back-one", "back-one")
}

func TestPauseResumeAndCancel(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{
			w.does("one", func(context.Context, *Run, workflow.Reporter) error { <-release; return nil }), w.does("two", blocks)},
			Revert: []Step{w.does("back")}}}
	})
	w.create("a")
	w.until("a", v1alpha1.OperationRunning)
	w.control("a", v1alpha1.OperationPause)
	for w.get("a").Status.Step != "one" {
		time.Sleep(time.Millisecond)
	}
	// The run heeds the annotation in the next reconcile; the step ends after that.
	w.create("waits")
	w.until("waits", v1alpha1.OperationPending)
	w.create("later")
	w.until("later", v1alpha1.OperationPending)
	close(release)
	w.until("a", v1alpha1.OperationPaused)
	w.wantSaid("one")
	o := w.get("a")
	o.Status.Start, o.Status.RanSeconds = metav1.NewTime(time.Now().Add(-24*time.Hour)), 24*60*60 // it rested for a night, and had used up its time
	if err := w.client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.control("a", "")
	for w.get("a").Status.Step != "two" { // a cancellation before that would leave it out
		time.Sleep(time.Millisecond)
	}
	w.control("waits", v1alpha1.OperationCancel)
	w.until("waits", v1alpha1.OperationCancelled)
	w.control("later", v1alpha1.OperationCancel)
	w.control("a", v1alpha1.OperationCancel)
	if o := w.until("a", v1alpha1.OperationCancelled); o.Status.Message != "cancelled; what was changed is as it was before" {
		t.Errorf("%q", o.Status.Message)
	}
	w.wantSaid("one", "two", "back")
}

// An operation that is deleted while it runs is cancelled first.
func TestDeletedOperationIsCancelled(t *testing.T) {
	w := newWorld(t, func(w *world) []Action {
		return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.does("one", blocks)}, Revert: []Step{w.does("back")}}}
	})
	w.create("a")
	o := w.until("a", v1alpha1.OperationRunning)
	if err := w.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it stays: %+v", o.Status)
		}
	}
	w.wantSaid("one", "back")
}

// An operation whose time is up reverts what it has begun. Only the time counts in which an operator ran it.
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
			w := newWorld(t, func(w *world) []Action {
				return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{w.does("one")}, Revert: []Step{w.does("back")}}}
			})
			w.stop()
			w.create("a", func(o *v1alpha1.OnecloudOperation) { o.Spec.Timeout = "1h" })
			o := w.get("a")
			began := metav1.NewTime(time.Now().Add(-2 * time.Hour))
			o.Status.Phase, o.Status.Start, o.Status.RanSeconds = v1alpha1.OperationRunning, began, int64(c.ran.Seconds())
			o.Status.Steps = []v1alpha1.OperationStep{{Name: "one", State: v1alpha1.StepRunning, Start: began}}
			if err := w.client.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			w.start()
			o = w.until("a", c.phase)
			if c.phase == v1alpha1.OperationReverted && o.Status.Cause != "the operation did not end within 1h0m0s" {
				t.Errorf("%q", o.Status.Cause)
			}
			if o.Status.RanSeconds < int64(c.ran.Seconds()) {
				t.Errorf("it ran for %d s", o.Status.RanSeconds)
			}
			w.wantSaid(c.said...)
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
	if got := Resumed(s, now); !strings.HasPrefix(got, "the copies of its databases are 14h0m0s old, of 2026-11-24T18:00:00Z") {
		t.Errorf("%q", got)
	}
	s.Phase = v1alpha1.OperationRunning
	if got := Resumed(s, now); got != "" {
		t.Errorf("it runs: %q", got)
	}
}

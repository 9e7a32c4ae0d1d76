// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// announce is what a program does first, and with it each time it gives a sign.
func (w *world) announce(name string) {
	w.Helper()
	o := w.get(name)
	o.Status.Runner = &v1alpha1.OperationRunner{Name: "host", Renewed: metav1.NowMicro()}
	if err := w.client.Status().Update(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func asBackup(o *v1alpha1.OnecloudOperation) {
	o.Spec.Action, o.Spec.Backup = v1alpha1.ActionBackup, &v1alpha1.BackupParameters{Place: "/backup"}
}

// TestSilentProgram: the operator lets an operation run that runs elsewhere, ends it when its program gives no sign any more, and says so among the backups.
// What waited for it runs.
func TestSilentProgram(t *testing.T) {
	w := newWorld(t, func(w *world) []Action {
		return append(outside(), Action{Name: v1alpha1.ActionCheck, Short: "x", Timeout: time.Hour, Steps: []Step{}})
	})
	w.create("b", asBackup)
	w.until("b", v1alpha1.OperationPending)
	w.announce("b")
	o := w.until("b", v1alpha1.OperationRunning)
	if o.Status.Start.IsZero() || len(o.Finalizers) == 0 || len(o.OwnerReferences) != 1 {
		t.Errorf("%+v", o)
	}
	w.create("next")
	if o := w.until("next", v1alpha1.OperationPending); o.Status.Message != "waits for operation b" {
		t.Error(o.Status.Message)
	}
	w.stop() // an operator that takes over waits anew
	w.silence = 200 * time.Millisecond
	w.start()
	o = w.until("b", v1alpha1.OperationFailed)
	if !strings.Contains(o.Status.Message, "host gave no sign") || !strings.Contains(o.Status.Message, "half a file is never listed") || o.Status.End.IsZero() {
		t.Errorf("%+v", o.Status)
	}
	w.until("next", v1alpha1.OperationSucceeded)
	h, err := archive.History(t.Context(), w.client, "n")
	if err != nil || len(h) != 1 || h[0].Place != "/backup" || !strings.Contains(h[0].Error, "gave no sign") {
		t.Errorf("%+v %v", h, err)
	}
}

// TestSilentProgramOfAStoppedCloud: what the operation did not stop does not start when its program is gone; what it did starts, and a pause of before comes back.
func TestSilentProgramOfAStoppedCloud(t *testing.T) {
	for by, want := range map[string]map[string]string{
		"a person": {v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance"}, "r": {v1alpha1.AnnotationPaused: "glance"},
	} {
		w := newWorld(t, func(*world) []Action { return outside() })
		cloud := &v1alpha1.OnecloudCluster{}
		if err := w.client.Get(t.Context(), key, cloud); err != nil {
			t.Fatal(err)
		}
		cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance"}
		if by == "r" {
			cloud.Annotations[v1alpha1.AnnotationStoppedBy] = by
		}
		if err := w.client.Update(t.Context(), cloud); err != nil {
			t.Fatal(err)
		}
		w.create("r", func(o *v1alpha1.OnecloudOperation) {
			o.Spec.Action, o.Spec.Restore = v1alpha1.ActionRestore, &v1alpha1.RestoreParameters{File: "f", Place: "/backup"}
		})
		w.until("r", v1alpha1.OperationPending)
		w.announce("r")
		w.until("r", v1alpha1.OperationRunning)
		w.stop()
		w.silence = 200 * time.Millisecond
		w.start()
		o := w.until("r", v1alpha1.OperationReverted)
		if strings.Contains(o.Status.Message, "starts again") != (by == "r") || !strings.Contains(o.Status.Message, "as it was before") {
			t.Errorf("stopped by %s: %s", by, o.Status.Message)
		}
		if err := w.client.Get(t.Context(), key, cloud); err != nil || !maps.Equal(cloud.Annotations, want) {
			t.Errorf("stopped by %s: %v, %v", by, cloud.Annotations, err)
		}
	}
}

// TestSigns: as long as there are signs, however old by the clock of the program, it goes on.
func TestSigns(t *testing.T) {
	c := New(Options{Silence: time.Hour})
	o := backupOp("b", 1, v1alpha1.OperationRunning, "host")
	o.UID, o.Status.Runner.Renewed = "b", metav1.NewMicroTime(time.Unix(1, 0))
	first := c.noticed(o)
	if again := c.noticed(o); again.seen != first.seen {
		t.Error("no sign counts as one")
	}
	o.Status.Runner.Renewed = metav1.NewMicroTime(time.Unix(0, 1000)) // a clock that was set back
	if later := c.noticed(o); !later.seen.After(first.seen) {
		t.Error("a sign does not count")
	}
}

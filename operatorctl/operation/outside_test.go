// SPDX-License-Identifier: Apache-2.0

package operation

import (
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

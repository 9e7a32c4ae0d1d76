// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/test/require"
)

// announce is what a program does first; it also renews its heartbeat.
func (fx *fixture) announce(name string) {
	fx.Helper()
	require.NoError(fx, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the operator also writes
		o := fx.get(name)
		o.Status.Runner = &v1alpha1.OperationRunner{Name: "host", Renewed: metav1.NowMicro()}
		return fx.client.Status().Update(fx.Context(), o)
	}))
}

func asBackup(o *v1alpha1.OnecloudOperation) {
	o.Spec.Action, o.Spec.Backup = v1alpha1.ActionBackup, &v1alpha1.BackupParameters{Place: "/backup"}
}

// TestSilentProgram: the operator lets an outside operation run, ends it when the heartbeat of its program stops, and records that among the backups. Then
// what waited for it runs.
func TestSilentProgram(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return append(outside(), Action{Name: v1alpha1.ActionCheck, Timeout: time.Hour, Steps: []Step{}})
	})
	fx.create("b", asBackup)
	fx.until("b", v1alpha1.OperationPending)
	fx.announce("b")
	o := fx.until("b", v1alpha1.OperationRunning)
	if o.Status.Start.IsZero() || len(o.Finalizers) == 0 || len(o.OwnerReferences) != 1 {
		t.Errorf("%+v", o)
	}
	fx.create("next")
	if o := fx.until("next", v1alpha1.OperationPending); o.Status.Message != "waiting for operation b" {
		t.Error(o.Status.Message)
	}
	fx.stop() // a new operator starts the wait again
	fx.silence = 200 * time.Millisecond
	fx.start()
	o = fx.until("b", v1alpha1.OperationFailed)
	if !strings.Contains(o.Status.Message, "host sent no heartbeat") || !strings.Contains(o.Status.Message, "incomplete files are never listed") || o.Status.End.IsZero() {
		t.Errorf("%+v", o.Status)
	}
	fx.until("next", v1alpha1.OperationSucceeded)
	h, err := archive.History(t.Context(), fx.client, "n")
	if err != nil || len(h) != 1 || h[0].Place != "/backup" || !strings.Contains(h[0].Error, "sent no heartbeat") {
		t.Errorf("%+v %v", h, err)
	}
}

// TestSilentProgramOfAStoppedCloud: when its program has disappeared, only what the operation stopped starts again, and an earlier pause is restored.
func TestSilentProgramOfAStoppedCloud(t *testing.T) {
	for by, want := range map[string]map[string]string{
		"a person": {v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance"}, "r": {v1alpha1.AnnotationPaused: "glance"},
	} {
		annotations := map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance"}
		if by == "r" {
			annotations[v1alpha1.AnnotationStoppedBy] = by
		}
		fx, cloud := restoring(t, annotations)
		fx.silence = 200 * time.Millisecond
		fx.start()
		o := fx.until("r", v1alpha1.OperationReverted)
		if strings.Contains(o.Status.Message, "starting again") != (by == "r") || !strings.Contains(o.Status.Message, "all changes were undone") {
			t.Errorf("stopped by %s: %s", by, o.Status.Message)
		}
		if err := fx.client.Get(t.Context(), key, cloud); err != nil || !maps.Equal(cloud.Annotations, want) {
			t.Errorf("stopped by %s: %v, %v", by, cloud.Annotations, err)
		}
	}
}

// TestSigns: an operation continues while there are heartbeats, however old by the program's clock.
func TestSigns(t *testing.T) {
	p := New(Options{Settings: Settings{Silence: time.Hour}}).programs
	o := backupOp("b", 1, v1alpha1.OperationRunning, "host")
	o.UID, o.Status.Runner.Renewed = "b", metav1.NewMicroTime(time.Unix(1, 0))
	first := p.noticed(o)
	if again := p.noticed(o); again.seen != first.seen {
		t.Error("no sign counts as one")
	}
	o.Status.Runner.Renewed = metav1.NewMicroTime(time.Unix(0, 1000)) // a clock that was set back
	if later := p.noticed(o); !later.seen.After(first.seen) {
		t.Error("a sign does not count")
	}
}

// A restore of etcd paused an unfinished operation whose program is gone: the operator does not start what it stopped until a user resumes it.
func TestPausedByARestoreOfEtcd(t *testing.T) {
	fx, cloud := restoring(t, map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "", v1alpha1.AnnotationStoppedBy: "r"})
	o := fx.get("r")
	o.Annotations = map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationPause}
	require.NoError(t, fx.client.Update(t.Context(), o))
	fx.silence = 200 * time.Millisecond
	fx.start()
	time.Sleep(3 * fx.silence)
	stopped := func() bool {
		require.NoError(t, fx.client.Get(t.Context(), key, cloud))
		return cloud.Annotations[v1alpha1.AnnotationPaused] == "true"
	}
	if o = fx.get("r"); o.Status.Phase != v1alpha1.OperationRunning || !stopped() {
		t.Errorf("%s: %s; cloud %v", o.Status.Phase, o.Status.Message, cloud.Annotations)
	}
	o.Annotations = nil
	require.NoError(t, fx.client.Update(t.Context(), o))
	if fx.until("r", v1alpha1.OperationReverted); stopped() {
		t.Errorf("resumed, and the services do not start: %v", cloud.Annotations)
	}
}

// restoring returns a cloud with annotations, and a running restore "r" of it. The operator has ended.
func restoring(t *testing.T, annotations map[string]string) (*fixture, *v1alpha1.OnecloudCluster) {
	t.Helper()
	fx := newFixture(t, func(*fixture) []Action { return outside() })
	cloud := &v1alpha1.OnecloudCluster{}
	require.NoError(t, fx.client.Get(t.Context(), key, cloud))
	cloud.Annotations = annotations
	require.NoError(t, fx.client.Update(t.Context(), cloud))
	fx.create("r", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Restore = v1alpha1.ActionRestore, &v1alpha1.RestoreParameters{File: "f", Place: "/backup"}
	})
	fx.until("r", v1alpha1.OperationPending)
	fx.announce("r")
	fx.until("r", v1alpha1.OperationRunning)
	fx.stop()
	return fx, cloud
}

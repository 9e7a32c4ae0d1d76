// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func TestNextOfMachine(t *testing.T) {
	failed := &Operation{ObjectMeta: metav1.ObjectMeta{Name: "join-w1-1"}, Status: v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationFailed}}
	runs := failed.DeepCopy()
	runs.Status.Phase = v1alpha1.OperationRunning
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, test := range map[string]struct {
		change func(*Machine)
		last   *Operation
		want   string
	}{
		"it runs":       {func(m *Machine) { m.Status.Phase = v1alpha1.MachineRunning }, failed, ""},
		"new":           {func(*Machine) {}, nil, ""},
		"on its way":    {func(*Machine) {}, runs, "operation show join-w1-1"},
		"failed":        {func(m *Machine) { m.Status.Phase = v1alpha1.MachineFailed }, failed, "correct the cause, then: ocadm machine retry w1"},
		"waits":         {func(m *Machine) { m.Status.RetryAfter = now }, failed, "2026-01-02T03:04:05Z; to retry it at once: ocadm machine retry w1"},
		"paused":        {func(m *Machine) { m.Annotations = PauseMachine(now.Time) }, nil, "ocadm machine resume w1"},
		"precheck":      {func(*Machine) {}, failed, "ocadm operation logs join-w1-1"},
		"cannot leave":  {func(m *Machine) { m.DeletionTimestamp = &now }, failed, "ocadm machine remove w1 --abandon"},
		"is leaving":    {func(m *Machine) { m.DeletionTimestamp = &now }, runs, "operation show join-w1-1"},
		"runs, retries": {func(m *Machine) { m.Status.RetryAfter = now }, runs, "operation show"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
			test.change(m)
			if got := Next(m, test.last); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// LastOperation reads the operation that a machine names; nil if there is none or it no longer exists.
func LastOperation(ctx context.Context, c client.Client, m *Machine) (*Operation, error) {
	if m.Status.Operation == "" {
		return nil, nil
	}
	o, err := OperationOf(ctx, c, client.ObjectKey{Namespace: m.Namespace, Name: m.Status.Operation})
	if list := finding.Of(err); len(list) > 0 && list[0].Code == "OCA-7054" {
		return nil, nil
	}
	return o, err
}

// Next returns what to do about a machine, "" if nothing. last is its operation, or nil. It is pure.
func Next(m *Machine, last *Operation) string {
	s := m.Status
	retry := "ocadm machine retry " + m.Name
	switch {
	case m.DeletionTimestamp != nil && last != nil && last.Status.Phase == v1alpha1.OperationFailed:
		return fmt.Sprintf("correct the cause, then: %s; if the machine is gone: ocadm machine remove %s --abandon", retry, m.Name)
	case s.Phase == v1alpha1.MachineFailed:
		return "correct the cause, then: " + retry
	case last != nil && !last.Status.Phase.Final():
		return "to see its steps: ocadm operation show " + last.Name
	case !s.RetryAfter.IsZero():
		return fmt.Sprintf("it is retried at %s; to retry it at once: %s", s.RetryAfter.UTC().Format(time.RFC3339), retry)
	case m.Annotations[v1alpha1.AnnotationPaused] != "":
		return "to let it join: ocadm machine resume " + m.Name
	case last != nil && last.Status.Phase == v1alpha1.OperationFailed && s.Phase != v1alpha1.MachineRunning:
		return "to see what its steps reported: ocadm operation logs " + last.Name
	}
	return ""
}

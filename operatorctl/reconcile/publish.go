// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Observer receives the results of reconciles. The operator's metrics are the only one.
type Observer interface {
	// Effect is called for each attempted effect.
	Effect(o effects.Outcome)
	// Reconciled is called at the end of a reconcile.
	Reconciled(cloud types.NamespacedName, s Summary)
	// Gone is called for a cloud that no longer exists.
	Gone(cloud types.NamespacedName)
}

type noObserver struct{}

func (noObserver) Effect(effects.Outcome)                   {}
func (noObserver) Reconciled(types.NamespacedName, Summary) {}
func (noObserver) Gone(types.NamespacedName)                {}

// publish writes the status if it changed, and sends its events only after that: a failed write is repeated, an event is not.
func (a actor) publish(ctx context.Context, m *cloud, s State, out *status.Cloud, events []pendingEvent) error {
	before := s.Cloud.DeepCopy()
	s.Cloud.Status = out.OnecloudClusterStatus
	if !equality.Semantic.DeepEqual(before.Status, s.Cloud.Status) {
		if err := a.client.Status().Patch(ctx, s.Cloud, client.MergeFrom(before), client.FieldOwner(engine.FieldManager)); client.IgnoreNotFound(err) != nil {
			s.Cloud.Status = before.Status
			return fmt.Errorf("writing status: %w", err)
		} else if err == nil {
			m.written = s.Cloud.DeepCopy()
		}
	}
	for _, e := range events {
		a.event(s.Cloud, e)
	}
	return nil
}

func (a actor) event(cr *v1alpha1.OnecloudCluster, e pendingEvent) {
	a.events.Eventf(cr, nil, e.kind, e.reason, string(e.about), "%s", status.Note(finding.Here(e.note, cr.Namespace, cr.Name)))
}

func (a actor) log(s State) *slog.Logger {
	return a.logger.With("cluster", s.Cloud.Name, "namespace", s.Cloud.Namespace)
}

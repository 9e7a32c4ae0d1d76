// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// launch runs an operation beside the reconciles.
func (c *Controller) launch(o *v1alpha1.OnecloudOperation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base == nil || c.base.Err() != nil || c.running[o.UID] != nil {
		return
	}
	r := &running{changed: make(chan struct{}, 1)}
	var ctx context.Context
	ctx, r.abort = context.WithCancelCause(c.base)
	action, _ := find(c.Actions, o.Spec.Action)
	x := &execution{action: action, run: &Run{
		Operation: o.DeepCopy(), Client: c.Client, Direct: c.Direct, Settle: c.Settle, Connections: c.Connections, Probes: c.Probes, Means: c.Means,
		changed: r.changed, record: newRecord(c.Client, c.Events, o),
	}}
	if !o.Status.Start.IsZero() {
		x.run.resumed = time.Now()
	}
	x.stop, r.pause = context.WithCancelCause(ctx)
	x.cancel, r.cancel = context.WithCancelCause(ctx)
	if cancelled(o) {
		r.cancel(errCancelled)
	}
	c.running[o.UID] = r
	c.runs.Go(func() { c.perform(ctx, x, r) })
}

// perform runs an operation and reports its end.
func (c *Controller) perform(ctx context.Context, x *execution, r *running) {
	o, rec := x.run.Operation, x.run.record
	log := c.Log.With("operation", o.Name, "namespace", o.Namespace, "cluster", o.Spec.Cloud, "action", o.Spec.Action)
	log.Info("operation runs")
	c.Events.Eventf(o, nil, corev1.EventTypeNormal, "Started", o.Spec.Action, "%s runs", o.Spec.Action)
	err := x.perform(ctx, c.Direct, log)
	end := rec.status()
	if ctx.Err() == nil {
		c.announce(o, end)
	}
	log.Info("operation ended", "phase", string(end.Phase), "message", end.Message)
	if err != nil {
		log.Warn("operation", "error", err)
		pause := time.NewTimer(retryDelay)
		defer pause.Stop()
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	r.abort(nil)
	c.mu.Lock()
	delete(c.running, o.UID)
	c.mu.Unlock()
	select {
	case c.woken <- event.GenericEvent{Object: o}:
	case <-c.base.Done():
	}
}

// announce makes an event of the end of an operation.
func (c *Controller) announce(o *v1alpha1.OnecloudOperation, end v1alpha1.OnecloudOperationStatus) {
	kind := corev1.EventTypeNormal
	if end.Phase != v1alpha1.OperationSucceeded {
		kind = corev1.EventTypeWarning
	}
	c.Events.Eventf(o, nil, kind, string(end.Phase), o.Spec.Action, "%s", Note(cmp.Or(end.Message, "done")))
}

// retryDelay is how long an operation rests whose status could not be written.
const retryDelay = 5 * time.Second

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
)

// launcher runs operations in this process, concurrently with the reconciles.
type launcher struct {
	*store

	mu  sync.Mutex
	all map[types.UID]*running
	// base is the context of all runs. It ends when this process stops leading; nil before it leads.
	base context.Context
	wait sync.WaitGroup
	// woken receives operations whose run has ended.
	woken chan event.GenericEvent
}

// running is a run in this process. pause and cancel carry out a user's request; abort ends it immediately and reverts nothing.
type running struct {
	pause, cancel, abort context.CancelCauseFunc
	changed              chan struct{}
}

// of returns the run of an operation, or nil if it does not run here.
func (r *launcher) of(uid types.UID) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[uid]
}

// launch runs an operation unless it already runs.
func (r *launcher) launch(o *v1alpha1.OnecloudOperation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil || r.base.Err() != nil || r.all[o.UID] != nil {
		return
	}
	one := &running{changed: make(chan struct{}, 1)}
	var ctx context.Context
	ctx, one.abort = context.WithCancelCause(r.base)
	x := &execution{action: r.action(o), run: &Run{Operation: o.DeepCopy(), Means: r.Means, Settle: r.Settle, record: r.record(o), changed: one.changed}}
	if !o.Status.Start.IsZero() {
		x.run.resumed = time.Now()
	}
	one.pause, one.cancel = x.control(ctx)
	if cancelled(o) {
		one.cancel(errCancelled)
	}
	r.all[o.UID] = one
	r.wait.Go(func() { r.perform(ctx, x, one) })
}

func (r *launcher) perform(ctx context.Context, x *execution, one *running) {
	o, rec := x.run.Operation, x.run.record
	log := r.Log.With("operation", o.Name, "namespace", o.Namespace, "cluster", o.Spec.Cloud, "action", o.Spec.Action)
	log.Info("operation started")
	r.Events.Eventf(o, nil, corev1.EventTypeNormal, "Started", o.Spec.Action, "%s started", o.Spec.Action)
	err := x.perform(ctx, r.Direct, log)
	end := rec.Status()
	if ctx.Err() == nil {
		r.announce(o, end)
	}
	log.Info("operation ended", "phase", string(end.Phase), "message", end.Message)
	if err != nil {
		log.Warn("operation", "error", err)
		_ = wait.Sleep(ctx, retryDelay)
	}
	one.abort(nil)
	r.mu.Lock()
	delete(r.all, o.UID)
	r.mu.Unlock()
	select {
	case r.woken <- event.GenericEvent{Object: o}:
	case <-r.base.Done():
	}
}

// retryDelay is how long an operation waits after its status could not be written.
const retryDelay = 5 * time.Second

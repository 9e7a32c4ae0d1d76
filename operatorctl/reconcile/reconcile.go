// SPDX-License-Identifier: Apache-2.0

// Package reconcile makes one cloud match its spec. A reconcile is a pipeline of values: gather reads the State, resolve computes the Desired state,
// plan compares both, execute acts, report describes the cloud. Only execute writes; resolve, plan and report are pure. Reconcile calls the stages in
// this order, and the files of this package call each other in one direction only.
package reconcile

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// DefaultAudit is how often databases, accounts, services and endpoints are verified without a change.
const DefaultAudit = 10 * time.Minute

// Options configures a Reconciler.
type Options struct {
	// Components is the catalogue; nil means the built-in one.
	Components []component.Component
	// Image is the operator's own image.
	Image string
	// WithoutNodes is true if the operator has no permission to read nodes.
	WithoutNodes bool
	// Operations is true if operations may move clouds from one release to another, in waves.
	Operations bool
	// AtOnce is true if a changed version moves all components at once. Otherwise it waits for an operation.
	AtOnce bool
	// Audit is how often everything outside Kubernetes is verified; 0 means DefaultAudit, negative never.
	Audit time.Duration
	// SpecsChecked is true if the API server validates specs with the built-in CRD.
	SpecsChecked bool
	// Connections configures the clients of databases and services.
	Connections effects.Options
	// Observer is called for every reconcile; nil for none.
	Observer Observer
	Log      *slog.Logger
}

// Reconciler makes clouds match their specs.
type Reconciler struct {
	options Options
	reads   reader
	acts    actor
	// started is when this process began: the API server may have validated older clouds with another CRD.
	started time.Time
}

// New returns a Reconciler that writes through c, and bypasses its cache with direct.
func New(c client.Client, direct client.Reader, rec events.EventRecorder, o Options) (*Reconciler, error) {
	table, err := newCatalogue(o.Image, o.Components)
	if err != nil {
		return nil, err
	}
	o.Log, o.Audit = cmp.Or(o.Log, slog.Default()), cmp.Or(o.Audit, DefaultAudit)
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	applier := newApplier(c)
	return &Reconciler{
		options: o, started: time.Now(),
		reads: reader{
			client: c, direct: direct, applier: applier, scheme: c.Scheme(), catalog: table, clouds: newClouds(),
			withoutNodes: o.WithoutNodes, operations: o.Operations, atOnce: o.AtOnce, audits: o.Audit > 0, now: time.Now,
		},
		acts: actor{
			client: c, direct: direct, applier: applier, events: rec, observer: o.Observer, logger: o.Log, catalog: table, options: o.Connections,
			now: time.Now, woken: make(chan event.GenericEvent, 64),
		},
	}, nil
}

// advanceFor is how long a reconcile continues with what its own effects made possible, before it reports.
const advanceFor = time.Second

func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := r.reads.clouds.enter(req.NamespacedName, r.reads.now().Add(jitter(r.options.Audit, req.Name)))
	defer r.reads.clouds.leave(m)
	state, err := r.reads.gather(ctx, m, req.NamespacedName)
	switch {
	case state.Cloud == nil && err == nil:
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	case state.Cloud == nil:
		return ctrl.Result{}, err
	case err != nil:
		return r.stop(ctx, m, state, err)
	case !state.Cloud.DeletionTimestamp.IsZero():
		return r.finalize(ctx, m, state)
	case state.Paused.all:
		return r.rest(ctx, m, state)
	}
	if prepare := planPreparation(state); prepare.due() {
		if state, err = r.acts.prepare(ctx, m, state, prepare); err != nil {
			return r.stop(ctx, m, state, err)
		}
	}
	desired, err := r.resolve(ctx, m, state)
	if err == nil && adoptionDue(state) {
		r.acts.adopt(ctx, state, desired)
		desired, err = r.resolve(ctx, m, state)
	}
	if err != nil {
		return r.stop(ctx, m, state, err)
	}
	defer desired.dropObjects()
	if state, err = r.acts.record(ctx, m, state, desired); err != nil {
		return r.stop(ctx, m, state, err)
	}
	if desired, err = desired.during(state, r.reads.scheme); err != nil {
		return r.stop(ctx, m, state, err)
	}
	progress := false
	for round := 0; ; round++ {
		plan := planRound(state, desired, round)
		if state, err = r.acts.apply(ctx, m, state, desired, plan); err != nil {
			return r.stop(ctx, m, state, err)
		}
		if round > 0 && (!progress || !canProgress(state, desired) || r.reads.now().Sub(state.Now) > advanceFor || ctx.Err() != nil) {
			break
		}
		progress = r.acts.perform(ctx, m, state, desired, plan)
	}
	r.acts.clean(ctx, state, planCleanup(state, desired))
	status, events, last := report(state, desired)
	if err := r.acts.publish(ctx, m, state, status, events); err != nil {
		return ctrl.Result{}, err
	}
	if state.Audit {
		last.nextAudit = state.Now.Add(jitter(r.options.Audit, req.Name))
	}
	again := last.goesOn(state, desired)
	m.last, m.conflicts = last, 0
	r.options.Observer.Reconciled(req.NamespacedName, summary(state, desired, last, r.options.Audit > 0))
	return r.requeue(state, desired, last, again, progress), nil
}

// requeue returns when the next reconcile is due without a watch event.
func (r *Reconciler) requeue(s State, d *Desired, last last, again, progress bool) ctrl.Result {
	switch {
	case again:
		return ctrl.Result{RequeueAfter: soon}
	case progress && canProgress(s, d):
		return ctrl.Result{RequeueAfter: time.Millisecond}
	}
	next := last.nextAudit
	if r.options.Audit < 0 {
		next = s.Now.Add(24 * time.Hour)
	}
	next = wait.Earliest(next, d.Certificates.RenewAt, s.Done.Retry, dueTime(s, d))
	if s.Done.Refused {
		next = wait.Earliest(next, r.reads.now().Add(retryDelay(last.refusals-1)))
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(r.reads.now()), soon)}
}

// Failed reads and deletions are retried with exponential backoff, from one second to one minute: a failed request causes no watch event.
const (
	firstRefusedRetry = time.Second
	lastRefusedRetry  = time.Minute
)

func retryDelay(refusals int) time.Duration {
	return min(firstRefusedRetry<<min(refusals, 10), lastRefusedRetry)
}

// forget drops everything about a deleted cloud.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.reads.clouds.mu.Lock()
	defer r.reads.clouds.mu.Unlock()
	if m := r.reads.clouds.of[key]; m != nil && m.connections != nil {
		m.connections.Close()
	}
	delete(r.reads.clouds.of, key)
	maps.DeleteFunc(r.reads.clouds.instances, func(k types.NamespacedName, name string) bool {
		return k.Namespace == key.Namespace && name == key.Name
	})
	r.options.Observer.Gone(key)
}

// LastReconcile returns when the last reconcile ended.
func (r *Reconciler) LastReconcile() time.Time { return time.Unix(0, r.reads.clouds.at.Load()) }

// Rest drops the caches of reconciles, and responses to writes that the cache shows by now.
func (r *Reconciler) Rest(ctx context.Context) {
	r.reads.clouds.mu.Lock()
	all := maps.Clone(r.reads.clouds.of)
	r.reads.clouds.mu.Unlock()
	for key, m := range all {
		m.mu.Lock()
		m.memos.desired.drop()
		m.memos.issued.drop()
		if m.written != nil {
			cached := &v1alpha1.OnecloudCluster{}
			if err := r.acts.client.Get(ctx, key, cached, client.UnsafeDisableDeepCopy); err == nil && !engine.Older(cached.ResourceVersion, m.written.ResourceVersion) {
				m.written = nil
			}
		}
		m.mu.Unlock()
	}
}

// CloudOf returns the name of the cloud that an object belongs to, "" if none.
func (r *Reconciler) CloudOf(o client.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == v1alpha1.Kind {
		return ref.Name
	}
	label := o.GetLabels()[v1alpha1.LabelInstance]
	r.reads.clouds.mu.Lock()
	name := r.reads.clouds.instances[types.NamespacedName{Namespace: o.GetNamespace(), Name: label}]
	r.reads.clouds.mu.Unlock()
	if made, ok := strings.CutPrefix(label, v1alpha1.InstancePrefix); ok && name == "" {
		return made // before its first reconcile
	}
	return name
}

// Deleted drops what the applier knows about a deleted object.
func (r *Reconciler) Deleted(o client.Object) {
	if gvk, err := apiutil.GVKForObject(o, r.acts.client.Scheme()); err == nil {
		r.acts.applier.Forget(engine.Key{GVK: gvk, Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetResourceVersion())
	}
}

// Woken returns the channel of clouds for which something happened outside Kubernetes.
func (r *Reconciler) Woken() <-chan event.GenericEvent { return r.acts.woken }

// jitter spreads the audits of clouds: it returns between 1 and 1.25 times d, the same for the same name.
func jitter(d time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return d + d*time.Duration(h.Sum32()%256)/1024
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// Settings define how operations move clouds.
type Settings struct {
	// Settle is how long a wave must serve without interruption; 0 means DefaultSettle.
	Settle time.Duration
	// Silence is how long the program of an outside operation may send no heartbeat; 0 means DefaultSilence.
	Silence time.Duration
	// MachinesAtOnce is how many machines of a cloud are worked on concurrently; 0 means DefaultMachinesAtOnce.
	MachinesAtOnce int
	// AtOnce leaves a changed spec.version to the reconciler, which moves all components together. Otherwise it creates an update, and only operations
	// move a cloud that has run.
	AtOnce bool
}

// Options configure a Controller.
type Options struct {
	// Means are for the steps; nil Probes means Probes().
	Means
	Events events.EventRecorder
	Settings
	// JobImage is the image of the Jobs that run operations; "" lets this process run all of them, except scheduled backups.
	JobImage string
	// WithoutJobs means that the operator may not create Jobs.
	WithoutJobs bool
	// Actions are all known actions.
	Actions []Action
	Log     *slog.Logger
}

// Controller runs the operations of all clouds: one at a time for each cloud, and beside it one for each of several machines and those that do not change
// the cloud. Its requests name clouds.
type Controller struct {
	*store
	runs     *launcher
	jobs     *jobs
	programs *programs
}

// New returns a Controller. It is also a Runnable of the manager, and its runs end with it.
func New(o Options) *Controller {
	if o.Probes == nil {
		o.Probes = Probes()
	}
	o.Settle, o.Silence = cmp.Or(o.Settle, DefaultSettle), cmp.Or(o.Silence, DefaultSilence)
	o.MachinesAtOnce = cmp.Or(o.MachinesAtOnce, DefaultMachinesAtOnce)
	o.Log = cmp.Or(o.Log, slog.Default())
	st := &store{o}
	return &Controller{
		store: st, jobs: &jobs{st}, programs: &programs{store: st, signs: map[types.UID]sign{}},
		runs: &launcher{store: st, all: map[types.UID]*running{}, woken: make(chan event.GenericEvent, 64)},
	}
}

// Woken delivers operations whose run has ended.
func (c *Controller) Woken() <-chan event.GenericEvent { return c.runs.woken }

// Start lets operations run until ctx ends, and then waits for their steps.
func (c *Controller) Start(ctx context.Context) error {
	c.runs.mu.Lock()
	c.runs.base = ctx
	c.runs.mu.Unlock()
	<-ctx.Done()
	c.runs.wait.Wait()
	return nil
}

// Reconcile handles the operations of one cloud.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	all, cloud, err := c.read(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	var next time.Duration
	if cloud != nil {
		next, err = c.trigger(ctx, cloud, all)
		errs = append(errs, err)
	}
	d := decide(all, cloud, c.Actions, c.MachinesAtOnce)
	for _, o := range all {
		end, ends := d.end[o.Name]
		a := c.action(o)
		if a.Outside && !ends {
			left, err := c.programs.attend(ctx, a, o, cloud, d.run == o)
			if errs = append(errs, err); left > 0 && (next == 0 || left < next) {
				next = left
			}
		}
		switch {
		case ends:
			errs = append(errs, c.end(ctx, o, end))
		case o.Status.Phase.Final():
			errs = append(errs, c.release(ctx, o))
		case d.pending[o.Name] != "":
			errs = append(errs, c.say(ctx, o, v1alpha1.OperationPending, d.pending[o.Name]))
		}
	}
	for _, o := range d.prune {
		errs = append(errs, client.IgnoreNotFound(c.Client.Delete(ctx, o)))
	}
	for _, o := range append(d.beside, d.run) {
		if o == nil {
			continue
		}
		if a := c.action(o); !a.Outside || asked(o) {
			errs, next = append(errs, c.advance(ctx, o, cloud)), c.jobs.again(a, o, next)
		}
	}
	return ctrl.Result{RequeueAfter: next}, errors.Join(errs...)
}

// read returns the operations of a cloud and the cloud, from the cache.
func (c *Controller) read(ctx context.Context, key client.ObjectKey) ([]*v1alpha1.OnecloudOperation, *v1alpha1.OnecloudCluster, error) {
	all, err := Of(ctx, c.Client, key)
	if err != nil {
		return nil, nil, err
	}
	cloud := &v1alpha1.OnecloudCluster{}
	if found, err := kube.Find(ctx, c.Client, key, cloud, "the cloud"); !found {
		return all, nil, err
	}
	return all, cloud, nil
}

// Of returns the operations of a cloud, sorted by InTurn.
func Of(ctx context.Context, c client.Reader, key client.ObjectKey) ([]*v1alpha1.OnecloudOperation, error) {
	var list v1alpha1.OnecloudOperationList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	var all []*v1alpha1.OnecloudOperation
	for i := range list.Items { // without copies: each pass of each cloud does this
		if list.Items[i].Spec.Cloud == key.Name {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortFunc(all, InTurn)
	return all, nil
}

// end ends an operation that needs no further work.
func (c *Controller) end(ctx context.Context, o *v1alpha1.OnecloudOperation, how ending) error {
	if r := c.runs.of(o.UID); r != nil { // its cloud was deleted
		r.abort(errGone)
		return nil
	}
	return c.jobs.end(ctx, o, how)
}

// advance starts an operation, or passes the user's requests on to a running one.
func (c *Controller) advance(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	if r := c.runs.of(o.UID); r != nil {
		select {
		case r.changed <- struct{}{}:
		default:
		}
		switch {
		case cancelled(o):
			r.cancel(errCancelled)
		case paused(o):
			r.pause(errPaused)
		}
		return nil
	}
	if paused(o) && o.Status.Phase == v1alpha1.OperationPaused && (!cancelled(o) || HalfRestored(&o.Status) != "") {
		return nil
	}
	if action := c.action(o); c.jobs.inJob(action, o) {
		return c.jobs.follow(ctx, o, cloud, action)
	}
	now, err := c.unfinished(ctx, o)
	if now == nil || err != nil {
		return err
	}
	if paused(now) && !cancelled(now) {
		return c.rest(ctx, now)
	}
	if err := c.take(ctx, now, cloud); err != nil {
		return err
	}
	c.runs.launch(now)
	return nil
}

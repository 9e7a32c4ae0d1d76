// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
)

// Options of a Controller.
type Options struct {
	// Client writes, and reads from the cache; Direct reads past it.
	Client client.Client
	Direct client.Reader
	Events events.EventRecorder
	// Settle is how long a wave must serve without interruption; 0 means DefaultSettle.
	Settle time.Duration
	// Connections are how databases and services are reached.
	Connections effects.Options
	// AtOnce leaves a changed spec.version to the reconciler. Else it creates an update.
	AtOnce bool
	// Probes ask the components of a wave; nil means Probes().
	Probes []Probe
	// MachinesAtOnce is how many machines of a cloud are worked on at once; 0 means DefaultMachinesAtOnce.
	MachinesAtOnce int
	// Silence is how long the program of an operation that the operator does not run may give no sign; 0 means DefaultSilence.
	Silence time.Duration
	// JobImage is the image of the Jobs that run operations; "" lets this process run all of them.
	JobImage string
	// WithoutJobs is an operator that may create no Jobs.
	WithoutJobs bool
	// Actions are those there are.
	Actions []Action
	Means
	Log *slog.Logger
}

// Controller runs the operations of all clouds: one at a time for each cloud, and beside it one for each of several machines and those that leave the cloud
// alone. Its request is a cloud.
type Controller struct {
	Options

	mu      sync.Mutex
	running map[types.UID]*running
	// signs are the last signs of programs elsewhere.
	signs map[types.UID]sign
	// base is the context of all runs: the time in which this process leads. nil before that.
	base context.Context
	runs sync.WaitGroup
	// woken are operations whose run has ended.
	woken chan event.GenericEvent
}

// running is a run of this process. pause and cancel are as a user wants it; abort ends it at once and reverts nothing.
type running struct {
	pause, cancel, abort context.CancelCauseFunc
	changed              chan struct{}
}

// New makes a Controller. It is a Runnable of the manager, too: its runs end with it.
func New(o Options) *Controller {
	if o.Probes == nil {
		o.Probes = Probes()
	}
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.Silence = cmp.Or(o.Silence, DefaultSilence)
	o.MachinesAtOnce = cmp.Or(o.MachinesAtOnce, DefaultMachinesAtOnce)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Controller{Options: o, running: map[types.UID]*running{}, signs: map[types.UID]sign{}, woken: make(chan event.GenericEvent, 64)}
}

// Woken delivers operations whose run has ended.
func (c *Controller) Woken() <-chan event.GenericEvent { return c.woken }

// Start lets operations run until ctx ends, and then waits for their steps.
func (c *Controller) Start(ctx context.Context) error {
	c.mu.Lock()
	c.base = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.runs.Wait()
	return nil
}

// Reconcile looks at the operations of one cloud.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	all, cloud, err := c.read(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	if cloud != nil {
		errs = append(errs, c.trigger(ctx, cloud, all))
	}
	d := decide(all, cloud, c.Actions, c.MachinesAtOnce)
	var next time.Duration
	for _, o := range all {
		end, ends := d.end[o.Name]
		a, _ := find(c.Actions, o.Spec.Action)
		if a.Outside && !ends {
			left, err := c.attend(ctx, a, o, cloud, d.run == o)
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
			errs = append(errs, c.pend(ctx, o, d.pending[o.Name]))
		}
	}
	for _, o := range d.prune {
		errs = append(errs, client.IgnoreNotFound(c.Client.Delete(ctx, o)))
	}
	for _, o := range append(d.beside, d.run) {
		if o == nil {
			continue
		}
		if a, _ := find(c.Actions, o.Spec.Action); !a.Outside || asked(o) {
			errs, next = append(errs, c.advance(ctx, o, cloud)), c.again(a, o, next)
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
	switch err := c.Client.Get(ctx, key, cloud); {
	case apierrors.IsNotFound(err):
		return all, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the cloud: %w", err)
	}
	return all, cloud, nil
}

// Of are the operations of a cloud.
func Of(ctx context.Context, c client.Reader, key client.ObjectKey) ([]*v1alpha1.OnecloudOperation, error) {
	var list v1alpha1.OnecloudOperationList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	var all []*v1alpha1.OnecloudOperation
	for i := range list.Items {
		if list.Items[i].Spec.Cloud == key.Name {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortFunc(all, InTurn)
	return all, nil
}

// pend reports what an operation waits for.
func (c *Controller) pend(ctx context.Context, o *v1alpha1.OnecloudOperation, why string) error {
	if o.Status.Phase == v1alpha1.OperationPending && o.Status.Message == why {
		return nil
	}
	return c.set(ctx, o.DeepCopy(), func(s *v1alpha1.OnecloudOperationStatus) { s.Phase, s.Message = v1alpha1.OperationPending, why })
}

// end ends an operation for which nothing is to be done any more.
func (c *Controller) end(ctx context.Context, o *v1alpha1.OnecloudOperation, how ending) error {
	if r := c.of(o.UID); r != nil { // of a cloud that was deleted
		r.abort(errGone)
		return nil
	}
	if err := c.deleteJob(ctx, o); err != nil {
		return err
	}
	err := newRecord(c.Client, c.Events, o.DeepCopy()).update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = how.phase, how.message, metav1.Now()
		disown(s)
	})
	return errors.Join(err, c.release(ctx, o))
}

// advance starts an operation, or lets one that runs know what the user wants.
func (c *Controller) advance(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	if r := c.of(o.UID); r != nil {
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
	if action, _ := find(c.Actions, o.Spec.Action); c.inJob(action, o) {
		return c.follow(ctx, o, cloud, action)
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
	c.launch(now)
	return nil
}

// unfinished is an operation as the API server has it, nil if it has ended or is another one by now: the cache may show it as it was before.
func (c *Controller) unfinished(ctx context.Context, o *v1alpha1.OnecloudOperation) (*v1alpha1.OnecloudOperation, error) {
	now := &v1alpha1.OnecloudOperation{}
	if err := c.Direct.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if now.UID != o.UID || now.Status.Phase.Final() {
		return nil, nil //nolint:nilnil // there is none
	}
	return now, nil
}

// rest notes that an operation that does not run is paused.
func (c *Controller) rest(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	if o.Status.Phase == v1alpha1.OperationPaused {
		return nil
	}
	return newRecord(c.Client, c.Events, o).update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message = v1alpha1.OperationPaused, "paused; to continue: ocadm operation resume "+o.Name
	})
}

func (c *Controller) of(uid types.UID) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[uid]
}

// take makes an operation one of its cloud: it is deleted with it, and not before it has ended.
func (c *Controller) take(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	before := o.DeepCopy()
	owner := ownerOf(cloud)
	if !slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
		o.OwnerReferences = append(o.OwnerReferences, owner)
	}
	if o.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(o, v1alpha1.Finalizer)
	}
	if err := c.patch(ctx, o, before); err != nil {
		return err
	}
	return c.number(ctx, o)
}

// number notes that an operation begins after all others of its cloud that have begun.
func (c *Controller) number(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	if o.Status.Turn != 0 {
		return nil
	}
	all, err := Of(ctx, c.Client, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Cloud})
	if err != nil {
		return err
	}
	before := o.DeepCopy()
	for _, other := range all {
		o.Status.Turn = max(o.Status.Turn, other.Status.Turn+1)
	}
	locked := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Status().Patch(ctx, o, locked, client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("numbering operation %s: %w", o.Name, err)
	}
	return nil
}

// release lets Kubernetes delete an operation that has ended.
func (c *Controller) release(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	after := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(after, v1alpha1.Finalizer) {
		return nil
	}
	if o.Status.Worker != nil {
		c.announce(o, o.Status)
	}
	return client.IgnoreNotFound(c.patch(ctx, after, o))
}

func (c *Controller) patch(ctx context.Context, after, before *v1alpha1.OnecloudOperation) error {
	if slices.Equal(after.Finalizers, before.Finalizers) && len(after.OwnerReferences) == len(before.OwnerReferences) {
		return nil
	}
	status := after.Status
	if err := c.Client.Patch(ctx, after, client.MergeFrom(before), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("taking operation %s: %w", before.Name, err)
	}
	after.Status = status
	return nil
}

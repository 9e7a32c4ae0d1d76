// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// Work defines what a program does in an operation that it runs itself.
type Work[S any] struct {
	Steps []workflow.Phase[S]
	// Final is the first step that can be neither cancelled nor reverted; "" if all can be cancelled.
	Final string
	// Revert undoes what the steps before Final did.
	Revert []workflow.Phase[S]
	// Unlocked work does no harm beside another operation: it is done even if the operator is down and gives it no turn.
	Unlocked bool
}

// Runner runs an operation in this process and records it.
type Runner struct {
	Client client.WithWatch
	// Operation to create: its namespace and spec. If it has a name, it exists, and this process takes it.
	Operation *v1alpha1.OnecloudOperation
	// Name identifies this process in the operation; Owner is its field manager.
	Name  string
	Owner client.FieldOwner
	// Show is called with each state; nil shows nothing.
	Show func(*v1alpha1.OnecloudOperation)
	// Wait bounds the wait for other operations; 0 waits until the context ends.
	Wait time.Duration
	// Later records the operation only once it has succeeded: it creates the cloud that the operation belongs to.
	Later bool
	// Answer is how long the operator may take to notice the operation; 0 means DefaultAnswer.
	Answer time.Duration
}

const (
	// DefaultAnswer is longer than an operator needs to start or to become leader.
	DefaultAnswer = time.Minute
	// signInterval is the interval of heartbeats, runnerFlush how long a change within a step may take to be written.
	signInterval = 10 * time.Second
	runnerFlush  = 2 * time.Second
	// revertTimeout bounds the reverting steps.
	revertTimeout = 15 * time.Minute
)

// Perform creates an operation, waits for its turn, does the work and records the result. It returns the error of the failed step.
func Perform[S any](ctx context.Context, r Runner, w Work[S], s S, result func(*v1alpha1.OnecloudOperationStatus)) error {
	rec, err := r.create(ctx, w.Unlocked)
	if err != nil {
		return err
	}
	x := &performance[S]{Runner: r, Work: w, state: s, rec: rec, result: result, signed: time.Now()}
	ending, stop := context.WithCancel(context.WithoutCancel(ctx))
	var signs sync.WaitGroup
	defer func() {
		stop()
		signs.Wait()
	}()
	if rec.client != nil {
		signs.Go(func() { rec.flush(ending, runnerFlush, x.sign) })
	}
	if err := x.turn(ctx); err != nil {
		return err
	}
	cancelable, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if rec.client != nil {
		signs.Go(func() { x.heed(ending, cancel) })
	}
	return x.do(ctx, cancelable)
}

// create creates the operation and announces this process. Unlocked work is done even if the operator does not support such operations, or if the account
// may not create one; its record has no client then.
func (r Runner) create(ctx context.Context, unlocked bool) (*record, error) {
	o := r.Operation
	if o.Name != "" {
		return r.take(ctx)
	}
	o.GenerateName, o.Labels = Prefix(o.Spec.Action), map[string]string{v1alpha1.LabelOperationCloud: o.Spec.Cloud}
	var err error
	if !r.Later {
		err = r.Client.Create(ctx, o, r.Owner)
	}
	rec := newRecord(r.Client, nil, o)
	rec.owner, rec.show = r.Owner, r.Show
	switch {
	case r.Later:
		o.Name, rec.client = o.GenerateName+"new", nil
		return rec, nil
	case err == nil:
	case unlocked && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)):
		o.Name, rec.client = o.GenerateName+"unrecorded", nil
		rec.op.Status.Plan = []string{"the operation is not recorded and does not wait for others: " + err.Error()}
		return rec, nil
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return nil, finding.Errorf("OCA-7055", "The operator of this cluster does not support such operations", finding.InstallOperator, "%w", err)
	default:
		return nil, fmt.Errorf("creating an operation: %w", err)
	}
	return rec, rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Runner = &v1alpha1.OperationRunner{Name: r.Name, Renewed: metav1.NowMicro()}
	})
}

// take assigns an existing operation to this process. It fails if the operation has ended or another process has it.
func (r Runner) take(ctx context.Context) (*record, error) {
	var o *v1alpha1.OnecloudOperation
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := kube.WaitFor(ctx, r.Client, r.Operation, func(found client.Object) (bool, string) {
			o, _ = kube.As[v1alpha1.OnecloudOperation](found)
			return true, ""
		}, func(string) {})
		switch {
		case err != nil:
			return err
		case o == nil:
			return notRun(r.Operation.Name, errDeleted.Error())
		case o.Status.Phase.Final():
			return notRun(o.Name, cmp.Or(o.Status.Message, "it has ended"))
		case o.Status.Runner != nil:
			return notRun(o.Name, "it runs in "+o.Status.Runner.Name)
		}
		before := o.DeepCopy()
		o.Status.Runner = &v1alpha1.OperationRunner{Name: r.Name, Renewed: metav1.NowMicro()}
		return r.Client.Status().Patch(ctx, o, kube.IfUnchanged(before), r.Owner)
	})
	if err != nil {
		return nil, fmt.Errorf("taking operation %s: %w", r.Operation.Name, err)
	}
	rec := newRecord(r.Client, nil, o)
	rec.owner, rec.show = r.Owner, r.Show
	return rec, nil
}

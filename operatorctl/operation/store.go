// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/status"
)

// store reads and writes the operations on the API server.
type store struct{ Options }

func (st *store) action(o *v1alpha1.OnecloudOperation) Action {
	a, _ := find(st.Actions, o.Spec.Action)
	return a
}

// record returns a record that writes the status of an operation and updates o.
func (st *store) record(o *v1alpha1.OnecloudOperation) *record {
	return newRecord(st.Client, st.Events, o)
}

// unfinished returns an operation as the API server has it, or nil if it has ended or was replaced by another: the cache may be stale.
func (st *store) unfinished(ctx context.Context, o *v1alpha1.OnecloudOperation) (*v1alpha1.OnecloudOperation, error) {
	now := &v1alpha1.OnecloudOperation{}
	if err := st.Direct.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if now.UID != o.UID || now.Status.Phase.Final() {
		return nil, nil //nolint:nilnil // there is none
	}
	return now, nil
}

// set changes the status of an operation that others write, too. It skips a stale write: the next reconcile sees the change.
func (st *store) set(ctx context.Context, o *v1alpha1.OnecloudOperation, change func(*v1alpha1.OnecloudOperationStatus)) error {
	_, err := st.write(ctx, o, change)
	return err
}

// write is set, and reports whether it wrote.
func (st *store) write(ctx context.Context, o *v1alpha1.OnecloudOperation, change func(*v1alpha1.OnecloudOperationStatus)) (bool, error) {
	before := o.DeepCopy()
	change(&o.Status)
	conditions(&o.Status, metav1.Now())
	here(o)
	err := st.Client.Status().Patch(ctx, o, kube.IfUnchanged(before), client.FieldOwner(v1alpha1.ManagerOperator))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the status of operation %s: %w", o.Name, err)
	}
	return true, nil
}

// say records the phase of an operation that does not run, and what it waits for.
func (st *store) say(ctx context.Context, o *v1alpha1.OnecloudOperation, phase v1alpha1.OperationPhase, message string) error {
	message = finding.Here(message, o.Namespace, o.Spec.Cloud)
	if o.Status.Phase == phase && o.Status.Message == message {
		return nil
	}
	return st.set(ctx, o.DeepCopy(), func(s *v1alpha1.OnecloudOperationStatus) { s.Phase, s.Message = phase, message })
}

// rest records that an operation that does not run is paused.
func (st *store) rest(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	if o.Status.Phase == v1alpha1.OperationPaused {
		return nil
	}
	return st.record(o).Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message = v1alpha1.OperationPaused, "paused; to continue: ocadm operation resume "+o.Name
	})
}

// take makes an operation part of its cloud: it is deleted with the cloud, and not before it has ended.
func (st *store) take(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	before := o.DeepCopy()
	owner := OwnerOf(cloud)
	if !slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
		o.OwnerReferences = append(o.OwnerReferences, owner)
	}
	if o.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(o, v1alpha1.Finalizer)
	}
	if err := st.patch(ctx, o, before); err != nil {
		return err
	}
	return st.number(ctx, o)
}

// number gives an operation the turn after all of its cloud's operations that have begun.
func (st *store) number(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	if o.Status.Turn != 0 {
		return nil
	}
	all, err := Of(ctx, st.Client, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Cloud})
	if err != nil {
		return err
	}
	before := o.DeepCopy()
	for _, other := range all {
		o.Status.Turn = max(o.Status.Turn, other.Status.Turn+1)
	}
	if err := st.Client.Status().Patch(ctx, o, kube.IfUnchanged(before), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("numbering operation %s: %w", o.Name, err)
	}
	return nil
}

func (st *store) patch(ctx context.Context, after, before *v1alpha1.OnecloudOperation) error {
	if slices.Equal(after.Finalizers, before.Finalizers) && len(after.OwnerReferences) == len(before.OwnerReferences) {
		return nil
	}
	status := after.Status
	if err := st.Client.Patch(ctx, after, client.MergeFrom(before), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("taking operation %s: %w", before.Name, err)
	}
	after.Status = status
	return nil
}

// release lets Kubernetes delete an operation that has ended.
func (st *store) release(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	after := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(after, v1alpha1.Finalizer) {
		return nil
	}
	if o.Status.Worker != nil {
		st.announce(o, o.Status)
	}
	return client.IgnoreNotFound(st.patch(ctx, after, o))
}

func (st *store) announce(o *v1alpha1.OnecloudOperation, end v1alpha1.OnecloudOperationStatus) {
	kind := corev1.EventTypeNormal
	if end.Phase != v1alpha1.OperationSucceeded {
		kind = corev1.EventTypeWarning
	}
	st.Events.Eventf(o, nil, kind, string(end.Phase), o.Spec.Action, "%s", status.Note(finding.Here(cmp.Or(end.Message, "done"), o.Namespace, o.Spec.Cloud)))
}

// unmade records a failed backup that its program could not record.
func (st *store) unmade(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, why string) error {
	if o.Spec.Action != v1alpha1.ActionBackup || cloud == nil {
		return nil
	}
	place := "the place of the schedule"
	if o.Spec.Backup != nil {
		place = o.Spec.Backup.Place
	}
	one := backup.Record{Place: place, Time: cmp.Or(o.Status.Start.Time, o.CreationTimestamp.Time).UTC(), Error: why}
	return archive.AddRecord(ctx, st.Client, v1alpha1.ManagerOperator, cloud, one)
}

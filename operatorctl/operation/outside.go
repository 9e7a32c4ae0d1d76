// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// Backups, restores and moves of databases run in the program that asks for them, because it has the keys: docs/decisions/0056. The operator gives them
// their turn among the operations of the cloud, and ends those whose program is gone.

// outside are the actions that run elsewhere.
func outside() []Action {
	return []Action{
		{
			Name: v1alpha1.ActionBackup, Short: "Back the cloud up, and prove the backup", Outside: true,
			Timeout: databasesTimeout, // as long as the command of the schedule has
			Left:    "half a file is never listed; the next backup of the cloud to the place removes what is left",
		},
		{
			Name: v1alpha1.ActionRestore, Short: "Restore the cloud from a backup", Outside: true, Back: startAgain,
			Left: "the services are stopped, and the databases may be half restored. It may still work on the databases: make sure that it has ended, and run the same " +
				"ocadm cluster backup restore again, which waits for it and starts over",
		},
		{
			Name: v1alpha1.ActionMoveDatabase, Short: "Move the databases to another server", Outside: true, Back: startAgain,
			Left: "the services may be stopped: run the same ocadm cluster move-database again, or ocadm cluster start",
		},
	}
}

// startAgain starts the services that the program of an operation stopped and left so.
func startAgain(ctx context.Context, c client.Client, key client.ObjectKey, operation string) (bool, error) {
	return StartAgain(ctx, c, key, v1alpha1.ManagerOperator, operation)
}

// DefaultSilence is how long the program of an operation may give no sign. It gives one every signInterval.
const DefaultSilence = 2 * time.Minute

// sign is the last sign of a program: its own time, and when this process saw it. Clocks of different machines are not compared.
type sign struct {
	renewed time.Time
	seen    time.Time
}

// unannounced reports whether an operation lacks the program that is to run it.
func unannounced(o *v1alpha1.OnecloudOperation, actions []Action) bool {
	a, _ := find(actions, o.Spec.Action)
	return a.Outside && o.Status.Runner == nil && !asked(o)
}

// attend gives an operation that runs elsewhere its turn, and ends one whose program is gone. It returns when to look again.
func (c *Controller) attend(ctx context.Context, a Action, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, turn bool) (time.Duration, error) {
	if o.Status.Phase.Final() {
		c.forget(o)
		if controllerutil.ContainsFinalizer(o, v1alpha1.Finalizer) { // which is removed next
			c.announce(o, o.Status)
		}
		return 0, nil
	}
	if asked(o) && o.Status.Runner == nil { // its Job is looked after
		return 0, nil
	}
	left := c.Silence - time.Since(c.noticed(o).seen)
	if left <= 0 {
		return c.Silence, c.lose(ctx, a, o, cloud)
	}
	if !turn || o.Status.Phase.Active() && o.Status.Phase != v1alpha1.OperationPlanning {
		return left, nil
	}
	if err := c.take(ctx, o, cloud); err != nil {
		return left, err
	}
	c.Events.Eventf(o, nil, corev1.EventTypeNormal, "Started", a.Name, "%s runs in %s", a.Name, o.Status.Runner.Name)
	return left, c.set(ctx, o, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.Start = v1alpha1.OperationRunning, "", metav1.Now()
	})
}

// noticed is the last sign of the program of an operation.
func (c *Controller) noticed(o *v1alpha1.OnecloudOperation) sign {
	renewed := o.CreationTimestamp.Time
	if o.Status.Runner != nil {
		renewed = o.Status.Runner.Renewed.Time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.signs[o.UID]
	if !known || !last.renewed.Equal(renewed) {
		last = sign{renewed: renewed, seen: time.Now()}
		c.signs[o.UID] = last
	}
	return last
}

func (c *Controller) forget(o *v1alpha1.OnecloudOperation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.signs, o.UID)
}

// lose ends an operation whose program is gone.
func (c *Controller) lose(ctx context.Context, a Action, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	now := &v1alpha1.OnecloudOperation{}
	if err := c.Direct.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		c.forget(o) // without an API server, the program could give no sign either
		return client.IgnoreNotFound(err)
	}
	if now.Status.Phase.Final() || now.ResourceVersion != o.ResourceVersion && now.Status.Runner != nil && !now.Status.Runner.Renewed.Time.Equal(c.noticed(o).renewed) {
		return nil
	}
	who := "the program that was to run it"
	if now.Status.Runner != nil {
		who = now.Status.Runner.Name
	}
	why, end := fmt.Sprintf("%s gave no sign for %s", who, c.Silence), v1alpha1.OperationFailed
	switch {
	case !now.Status.Phase.Active():
	case a.Back == nil || now.Status.Runner.Final || cloud == nil:
		why += "; " + a.Left
	case now.Status.Phase != v1alpha1.OperationReverting: // from now on a program that lives all the same goes no further: record.commit
		return c.set(ctx, now, func(s *v1alpha1.OnecloudOperationStatus) {
			s.Phase, s.Message, s.Cause = v1alpha1.OperationReverting, why, why
		})
	default:
		did, err := a.Back(ctx, c.Client, client.ObjectKeyFromObject(cloud), now.Name)
		if err != nil {
			return err
		}
		if did {
			why += "; what was stopped starts again"
		}
		why, end = why+"; the cloud is as it was before", v1alpha1.OperationReverted
	}
	if err := c.unmade(ctx, now, cloud, why); err != nil { // again if this operator ends before the next line
		return err
	}
	return c.set(ctx, now, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = end, why, metav1.Now()
		failRunning(s, "it did not end")
	})
}

// unmade records a backup that its program could not record.
func (c *Controller) unmade(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, why string) error {
	if o.Spec.Action != v1alpha1.ActionBackup || cloud == nil {
		return nil
	}
	place := "the place of the schedule"
	if o.Spec.Backup != nil {
		place = o.Spec.Backup.Place
	}
	one := backup.Record{Place: place, Time: cmp.Or(o.Status.Start.Time, o.CreationTimestamp.Time).UTC(), Error: why}
	return archive.AddRecord(ctx, c.Client, v1alpha1.ManagerOperator, cloud, one)
}

// set changes the status of an operation that others write, too. If it was written since it was read, the next reconcile sees that.
func (c *Controller) set(ctx context.Context, o *v1alpha1.OnecloudOperation, change func(*v1alpha1.OnecloudOperationStatus)) error {
	before := o.DeepCopy()
	change(&o.Status)
	conditions(&o.Status, metav1.Now())
	err := c.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.ManagerOperator))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of operation %s: %w", o.Name, err)
	}
	return nil
}

// setControl writes the annotation by which an operation is paused, resumed ("") or cancelled.
func setControl(ctx context.Context, c client.Client, o *v1alpha1.OnecloudOperation, value string) error {
	var set any = value
	if value == "" {
		set = nil
	}
	target := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	fields := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationControl: set}}}
	if err := kube.Merge(ctx, c, target, v1alpha1.ManagerOperator, fields); err != nil {
		return fmt.Errorf("setting %s of operation %s: %w", v1alpha1.AnnotationControl, o.Name, err)
	}
	return nil
}

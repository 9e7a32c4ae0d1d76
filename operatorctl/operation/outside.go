// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// Backups, restores and database moves run in the requesting program, because it has the keys: docs/decisions/0056. The operator schedules them among the
// operations of the cloud, and ends those whose program has disappeared.

// BackupTimeout bounds a backup of the schedule. Large databases take hours, but a backup that hangs blocks other operations, and the Job of the schedule,
// which ends after a day, tries three times.
const BackupTimeout = 7 * time.Hour

// outside returns the actions that run in other programs.
func outside() []Action {
	return []Action{
		{
			Name: v1alpha1.ActionBackup, Outside: true,
			Timeout: BackupTimeout,
			Left:    "incomplete files are never listed; the next backup of the cloud to the same place removes them",
		},
		{
			Name: v1alpha1.ActionRestore, Outside: true, Back: startAgain,
			Left: "the services are stopped, and the databases may be only partly restored. The program may still be working on them: " +
				"make sure that it has ended, then run the same ocadm cluster backup restore again, which waits for it and starts over",
		},
		{
			Name: v1alpha1.ActionMoveDatabase, Outside: true, Back: startAgain,
			Left: "the services may be stopped: run the same ocadm cluster move-database again, or ocadm cluster start",
		},
	}
}

// startAgain starts the services that the program of an operation stopped and did not start again.
func startAgain(ctx context.Context, c client.Client, key client.ObjectKey, operation string) (bool, error) {
	return StartAgain(ctx, c, key, v1alpha1.ManagerOperator, operation)
}

// DefaultSilence is how long the program of an operation may send no heartbeat. It sends one every signInterval.
const DefaultSilence = 2 * time.Minute

// sign is the last heartbeat of a program: its timestamp, and when this process saw it. Clocks of different machines are not compared.
type sign struct {
	renewed time.Time
	seen    time.Time
}

// programs handles outside operations.
type programs struct {
	*store

	mu    sync.Mutex
	signs map[types.UID]sign
}

// attend gives an outside operation its turn, and ends one whose program has disappeared. It returns when to look again.
func (p *programs) attend(ctx context.Context, a Action, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, turn bool) (time.Duration, error) {
	if o.Status.Phase.Final() {
		p.forget(o)
		if controllerutil.ContainsFinalizer(o, v1alpha1.Finalizer) { // it is removed next
			p.announce(o, o.Status)
		}
		return 0, nil
	}
	if asked(o) && o.Status.Runner == nil { // its Job is handled by jobs
		return 0, nil
	}
	if paused(o) { // by a restore of etcd: a user decides how to continue
		return 0, nil
	}
	left := p.Silence - time.Since(p.noticed(o).seen)
	if left <= 0 {
		return p.Silence, p.lose(ctx, a, o, cloud)
	}
	if !turn || o.Status.Phase.Active() && o.Status.Phase != v1alpha1.OperationPlanning {
		return left, nil
	}
	if err := p.take(ctx, o, cloud); err != nil {
		return left, err
	}
	p.Events.Eventf(o, nil, corev1.EventTypeNormal, "Started", a.Name, "%s runs in %s", a.Name, o.Status.Runner.Name)
	return left, p.set(ctx, o, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.Start = v1alpha1.OperationRunning, "", metav1.Now()
	})
}

// noticed returns the last heartbeat of an operation's program.
func (p *programs) noticed(o *v1alpha1.OnecloudOperation) sign {
	renewed := o.CreationTimestamp.Time
	if o.Status.Runner != nil {
		renewed = o.Status.Runner.Renewed.Time
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.signs[o.UID]
	if !known || !last.renewed.Equal(renewed) {
		last = sign{renewed: renewed, seen: time.Now()}
		p.signs[o.UID] = last
	}
	return last
}

func (p *programs) forget(o *v1alpha1.OnecloudOperation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.signs, o.UID)
}

// lose ends an operation whose program has disappeared.
func (p *programs) lose(ctx context.Context, a Action, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) error {
	now := &v1alpha1.OnecloudOperation{}
	if err := p.Direct.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		p.forget(o) // without an API server, the program could send no heartbeat either
		return client.IgnoreNotFound(err)
	}
	if now.Status.Phase.Final() || now.ResourceVersion != o.ResourceVersion && now.Status.Runner != nil && !now.Status.Runner.Renewed.Time.Equal(p.noticed(o).renewed) {
		return nil
	}
	who := "the program that was to run the operation"
	if now.Status.Runner != nil {
		who = now.Status.Runner.Name
	}
	why, end := fmt.Sprintf("%s sent no heartbeat for %s", who, p.Silence), v1alpha1.OperationFailed
	switch {
	case !now.Status.Phase.Active():
	case a.Back == nil || now.Status.Runner.Final || cloud == nil:
		why += "; " + a.Left
	case now.Status.Phase != v1alpha1.OperationReverting: // from now on, record.commit stops a program that is still alive
		return p.set(ctx, now, func(s *v1alpha1.OnecloudOperationStatus) {
			s.Phase, s.Message, s.Cause = v1alpha1.OperationReverting, why, why
		})
	default:
		did, err := a.Back(ctx, p.Client, client.ObjectKeyFromObject(cloud), now.Name)
		if err != nil {
			return err
		}
		if did {
			why += "; stopped services are starting again"
		}
		why, end = why+"; all changes were undone", v1alpha1.OperationReverted
	}
	if err := p.unmade(ctx, now, cloud, why); err != nil { // repeated if this operator ends before the next line
		return err
	}
	return p.set(ctx, now, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = end, why, metav1.Now()
		failRunning(s, "it did not end")
	})
}

// SetControl writes the annotation that pauses or cancels an operation.
func SetControl(ctx context.Context, c client.Client, o *v1alpha1.OnecloudOperation, value string) error {
	target := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	fields := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationControl: value}}}
	if err := kube.Merge(ctx, c, target, v1alpha1.ManagerOperator, fields); err != nil {
		return fmt.Errorf("setting %s of operation %s: %w", v1alpha1.AnnotationControl, o.Name, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

type performance[S any] struct {
	Runner
	Work[S]
	state  S
	rec    *record
	result func(*v1alpha1.OnecloudOperationStatus)
	// signed is when the heartbeat was last renewed. The time in the status does not measure that: it has no monotonic reading, and clocks are set back.
	signed time.Time
}

// sign renews the heartbeat if it is old. The next write sends it.
func (x *performance[S]) sign(context.Context) {
	x.rec.mu.Lock()
	defer x.rec.mu.Unlock()
	if time.Since(x.signed) >= signInterval {
		x.signed, x.rec.op.Status.Runner.Renewed = time.Now(), metav1.NowMicro()
	}
}

// turn waits until the operator lets the operation run.
func (x *performance[S]) turn(ctx context.Context) error {
	if x.rec.client == nil {
		return x.claim(ctx)
	}
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if x.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(waiting, x.Wait, errBusy)
		defer cancel()
	}
	unanswered := time.AfterFunc(cmp.Or(x.Answer, DefaultAnswer), func() { stop(errUnanswered) })
	defer unanswered.Stop()
	var last *v1alpha1.OnecloudOperation
	err := kube.WaitFor(waiting, x.Client, x.target(), func(o client.Object) (bool, string) {
		now, there := kube.As[v1alpha1.OnecloudOperation](o)
		if !there {
			stop(errDeleted)
			return false, errDeleted.Error()
		}
		last = now
		if now.Status.Phase != "" {
			unanswered.Stop()
		}
		runs := now.Status.Phase.Active() && now.Status.Phase != v1alpha1.OperationPlanning
		if x.Show != nil && !runs {
			x.Show(now.DeepCopy())
		}
		return runs || now.Status.Phase.Final(), cmp.Or(now.Status.Message, string(now.Status.Phase))
	}, func(string) {})
	switch {
	case err == nil && last.Status.Phase.Final():
		return notRun(last.Name, last.Status.Message)
	case err == nil:
		x.rec.adopt(last.Status)
		return x.rec.Update(ctx, x.plan)
	case errors.Is(context.Cause(waiting), errUnanswered) && x.Unlocked:
		return x.claim(ctx)
	case errors.Is(context.Cause(waiting), errUnanswered):
		return x.giveUp(ctx, finding.New("OCA-7420", "The operator does not answer", "the operator has not picked up operation "+x.rec.op.Name,
			"kubectl -n onecloud get pods -l app=onecloud-operator; run the command again when the operator is running"))
	case errors.Is(context.Cause(waiting), errDeleted):
		return notRun(x.rec.op.Name, "it was deleted")
	case ctx.Err() != nil: // by a signal
		_ = x.giveUp(context.WithoutCancel(ctx), finding.Finding{Cause: "the command was stopped"}) // otherwise the operator ends it in two minutes
		return context.Cause(ctx)
	}
	why := "waited for its turn"
	if last != nil && last.Status.Message != "" {
		why = last.Status.Message
	}
	if errors.Is(context.Cause(waiting), errBusy) {
		why += fmt.Sprintf(", for more than %s", x.Wait)
	}
	return x.giveUp(ctx, finding.Errorf("OCA-7421", "Another operation of the cloud runs", "ocadm operation list; then run the command again", "%s: %w", why, err))
}

// Reasons why a program does not get its turn.
var (
	errBusy       = errors.New("another operation took too long")
	errUnanswered = errors.New("the operator does not answer")
	errDeleted    = errors.New("the operation was deleted")
)

func notRun(name, why string) error {
	return finding.New("OCA-7422", fmt.Sprintf("Operation %s was cancelled", name), cmp.Or(why, "cancelled"), "run the command again")
}

// giveUp ends an operation that has not begun.
func (x *performance[S]) giveUp(ctx context.Context, why finding.Finding) error {
	err := x.rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = v1alpha1.OperationCancelled, "it has not started: "+why.Cause, metav1.Now()
		s.Findings = Findings(finding.List{why})
	})
	return errors.Join(why, err)
}

// claim begins without waiting for the operator.
func (x *performance[S]) claim(ctx context.Context) error {
	return x.rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		if x.rec.client != nil {
			s.Plan = []string{"the operator does not answer: starting without its turn"}
		}
		s.Phase, s.Start = v1alpha1.OperationRunning, metav1.Now()
		x.plan(s)
	})
}

func (x *performance[S]) plan(s *v1alpha1.OnecloudOperationStatus) {
	s.Steps = append(s.Steps, pending(x.Steps, false)...)
}

// heed cancels the work when a user requests it, or when the operator has given the operation up.
func (x *performance[S]) heed(ctx context.Context, cancel context.CancelCauseFunc) {
	_ = kube.WaitFor(ctx, x.Client, x.target(), func(o client.Object) (bool, string) {
		now, there := kube.As[v1alpha1.OnecloudOperation](o)
		if !there || cancelled(now) {
			cancel(errCancelled)
			return true, ""
		}
		if now.Status.Phase.Final() {
			cancel(fmt.Errorf("the operator abandoned the operation: %s", now.Status.Message))
		}
		return now.Status.Phase.Final(), ""
	}, func(string) {}) // it ends with the operation
}

func (x *performance[S]) target() *v1alpha1.OnecloudOperation {
	return &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: x.rec.op.Namespace, Name: x.rec.op.Name}}
}

// do runs the steps, and reverts what it can if one fails.
func (x *performance[S]) do(ctx, cancelable context.Context) error {
	final := slices.IndexFunc(x.Steps, func(p workflow.Phase[S]) bool { return p.Name == x.Final })
	if final < 0 {
		final = len(x.Steps)
	}
	err := x.run(cancelable, x.Steps[:final])
	if err == nil && final < len(x.Steps) {
		err = x.rec.commit(cancelable)
	}
	if err == nil {
		if err = x.run(ctx, x.Steps[final:]); err != nil {
			return x.end(ctx, v1alpha1.OperationFailed, err.Error(), err)
		}
		return x.end(ctx, v1alpha1.OperationSucceeded, "", nil)
	}
	phase := v1alpha1.OperationFailed
	if cancelable.Err() != nil && ctx.Err() == nil {
		err = context.Cause(cancelable)
		if errors.Is(err, errCancelled) {
			phase, err = v1alpha1.OperationCancelled, notRun(x.rec.op.Name, "by a user")
		}
	} else if errors.Is(ctx.Err(), context.Canceled) { // with Ctrl-C
		phase = v1alpha1.OperationCancelled
	}
	why, now := err.Error(), x.rec.Status()
	if !changed(x.Steps, &now) || len(x.Revert) == 0 {
		return x.end(ctx, phase, why, err)
	}
	_ = x.rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { // the next write includes it
		s.Phase, s.Message, s.Cause = v1alpha1.OperationReverting, why, why
		s.Steps = append(s.Steps, pending(x.Revert, true)...)
	})
	back, end := context.WithTimeout(context.WithoutCancel(ctx), revertTimeout)
	defer end()
	if undone := x.run(back, x.Revert); undone != nil {
		return x.end(ctx, v1alpha1.OperationFailed, why+"; undoing the changes failed: "+undone.Error(), errors.Join(err, undone))
	}
	if phase == v1alpha1.OperationFailed {
		phase = v1alpha1.OperationReverted
	}
	return x.end(ctx, phase, why+"; all changes were undone", err)
}

// run runs some steps. It returns the error of the step, without its name.
func (x *performance[S]) run(ctx context.Context, steps []workflow.Phase[S]) error {
	_, err := workflow.Runner[S]{Plan: x.rec.op.Name, Phases: steps, Sink: x.rec, Journal: forgiving{x.rec}}.Run(ctx, x.state, workflow.Options{})
	if failed, ok := errors.AsType[*workflow.PhaseError](err); ok {
		return failed.Err
	}
	return err
}

// forgiving is a journal whose failures do not stop the work: without an API server the databases are still there.
type forgiving struct{ *record }

// Append implements workflow.Journal.
func (f forgiving) Append(ctx context.Context, e workflow.Entry) error {
	_ = f.record.Append(ctx, e) // the next write includes it
	return nil
}

// end ends the operation. Its result counts even if it cannot be written.
func (x *performance[S]) end(ctx context.Context, phase v1alpha1.OperationPhase, message string, failed error) error {
	x.rec.log.keep(ctx, x.rec.client)
	err := x.rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = phase, message, metav1.Now()
		if x.rec.client != nil {
			s.Log = LogName(x.rec.op.Name)
		}
		if x.Later {
			s.Runner = &v1alpha1.OperationRunner{Name: x.Name, Renewed: metav1.NowMicro()}
		}
		if l := finding.Of(failed); len(l) > 0 {
			s.Findings = Findings(l)
		}
		if x.result != nil {
			x.result(s)
		}
	})
	if failed != nil {
		return failed
	}
	if x.Later {
		return x.late(ctx)
	}
	return err
}

// late records what was done. The cloud exists even if that fails.
func (x *performance[S]) late(ctx context.Context) error {
	status := x.rec.Status()
	o := x.Operation
	o.Name, o.Status = "", v1alpha1.OnecloudOperationStatus{}
	if err := x.Client.Create(ctx, o, x.Owner); err != nil {
		return nil //nolint:nilerr // an operator of another version may not support such operations
	}
	rec := newRecord(x.Client, nil, o)
	rec.owner = x.Owner
	rec.log.lines.WriteString(x.rec.log.lines.String())
	status.Log = LogName(o.Name)
	rec.log.keep(ctx, x.Client)
	_ = rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { *s = status }) // otherwise the operator ends it for lack of a program
	return nil
}

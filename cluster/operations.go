// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Operation is an operation of a cloud.
type Operation = v1alpha1.OnecloudOperation

// Operations lists the operations of a cloud, latest first; with an empty name, those of all clouds in the namespace.
func Operations(ctx context.Context, c client.Client, namespace, cloud string) ([]Operation, error) {
	var list v1alpha1.OnecloudOperationList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, noOperations(fmt.Errorf("listing the operations in namespace %s: %w", namespace, err))
	}
	out := slices.DeleteFunc(list.Items, func(o Operation) bool { return cloud != "" && o.Spec.Cloud != cloud })
	slices.SortFunc(out, func(a, b Operation) int { return operation.InTurn(&b, &a) })
	for i := range out {
		plain(&out[i], v1alpha1.OperationKind)
	}
	return out, nil
}

// OperationOf reads one operation.
func OperationOf(ctx context.Context, c client.Client, key client.ObjectKey) (*Operation, error) {
	o := &Operation{}
	err := c.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return nil, finding.Errorf("OCA-7054", fmt.Sprintf("There is no operation %s", key.Name), "ocadm operation list", "%w", err)
	}
	if err != nil {
		return nil, noOperations(fmt.Errorf("reading operation %s: %w", key, err))
	}
	plain(o, v1alpha1.OperationKind)
	return o, nil
}

// plain removes fields that are of no use to a reader, and sets the kind.
func plain(o client.Object, kind string) {
	o.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
}

// noOperations explains that the cluster does not define operations.
func noOperations(err error) error { return undefined(err, "OCA-7055", "runs no operations") }

// undefined returns a finding if the cluster does not define the kind that a request was for. does says what its operator does not do.
func undefined(err error, code, does string) error {
	if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return err
	}
	return finding.Errorf(code, "The operator of this cluster "+does, finding.InstallOperator, "%w", err)
}

// LogOf returns the log of an operation, one JSON event per line.
func LogOf(ctx context.Context, c client.Client, o *Operation) (string, error) {
	if v, ok := c.(Views); ok {
		return v.OperationLog(ctx, client.ObjectKeyFromObject(o))
	}
	cm := &corev1.ConfigMap{}
	_, err := kube.Find(ctx, c, client.ObjectKey{Namespace: o.Namespace, Name: operation.LogName(o.Name)}, cm, "the log of operation "+o.Name)
	return cm.Data[operation.LogKey], err
}

// Control pauses, cancels or resumes ("") an operation. It reports whether anything changed.
func Control(ctx context.Context, c client.Client, key client.ObjectKey, value string) (bool, error) {
	o, err := OperationOf(ctx, c, key)
	if err != nil {
		return false, err
	}
	was := o.Annotations[v1alpha1.AnnotationControl]
	if was == value {
		return false, nil
	}
	if half := operation.HalfRestored(&o.Status); half != "" && value == v1alpha1.OperationCancel {
		return false, finding.New(operation.CodeHalfRestored, fmt.Sprintf("Operation %s cannot be cancelled", key.Name), half,
			"correct the cause that ocadm operation show "+key.Name+" names, then: ocadm operation resume "+key.Name)
	}
	problem := ""
	switch {
	case o.Status.Phase.Final():
		problem = fmt.Sprintf("it has ended: %s", o.Status.Phase)
	case was == v1alpha1.OperationCancel:
		problem = "it is being cancelled"
	case value == v1alpha1.OperationPause && o.Status.Runner != nil && o.Status.Phase.Active():
		problem = "it runs in " + o.Status.Runner.Name + ", and cannot be paused"
	case value == v1alpha1.OperationCancel && o.Status.Runner != nil && o.Status.Runner.Final:
		problem = "it can only continue to its end now: a half-replaced database is of no use"
	}
	if problem != "" {
		return false, finding.New("OCA-7056", fmt.Sprintf("Operation %s cannot be changed", key.Name), problem, "ocadm operation show "+key.Name)
	}
	var set any
	if value != "" {
		set = value
	}
	if err := merge(ctx, c, o, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationControl: set}}}); err != nil {
		return false, fmt.Errorf("changing operation %s: %w", key, err)
	}
	return true, nil
}

// Operate creates an operation. Its name consists of the action and a time.
func Operate(ctx context.Context, c client.Client, o *Operation) error {
	o.GenerateName = operation.Prefix(o.Spec.Action)
	o.Labels = map[string]string{v1alpha1.LabelOperationCloud: o.Spec.Cloud}
	if err := c.Create(ctx, o, client.FieldOwner(kube.FieldManager)); err != nil {
		return noOperations(fmt.Errorf("creating an operation: %w", err))
	}
	return nil
}

// OperateOnce creates an operation, or finds an identical one that has not ended: a user whose connection broke tries again, and a second update
// would overwrite the first one's copies of the databases. again reports whether it found one.
func OperateOnce(ctx context.Context, c client.Client, o *Operation) (again bool, err error) {
	all, err := Operations(ctx, c, o.Namespace, o.Spec.Cloud)
	if err != nil && !apierrors.IsForbidden(err) { // creating needs no permission to list
		return false, err
	}
	same := slices.IndexFunc(all, func(other Operation) bool { return operation.Repeats(o, &other) })
	if same < 0 {
		// The operator would end an operation of a mistyped cloud, but without --wait the command would succeed.
		if _, err := get(ctx, c, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Cloud}); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return false, err
		}
		return false, Operate(ctx, c, o)
	}
	*o = all[same]
	return true, nil
}

// FollowOperation calls report with each state of an operation until it has ended or is paused, and returns the last state. It returns a finding if
// the operation did not succeed.
func FollowOperation(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(*Operation)) (*Operation, error) {
	last, err := followUntil(ctx, c, key, report, rests)
	if err != nil {
		return last, err
	}
	return last, Outcome(last)
}

// FollowChecks is like FollowOperation, but ends when the checks have passed or the operation waits for another one.
func FollowChecks(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(*Operation)) (*Operation, error) {
	last, err := followUntil(ctx, c, key, report, func(o *Operation) bool {
		return o.Status.Phase != "" && o.Status.Phase != v1alpha1.OperationPlanning
	})
	if err != nil || !rests(last) {
		return last, err
	}
	return last, Outcome(last)
}

// rests reports whether an operation has ended or waits for a user.
func rests(o *Operation) bool {
	return o.Status.Phase.Final() || o.Status.Phase == v1alpha1.OperationPaused
}

func followUntil(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(*Operation), end func(*Operation) bool) (*Operation, error) {
	var last *Operation
	target := &Operation{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := denied(ctx, c, v1alpha1.OperationKind, key); err != nil {
		return nil, fmt.Errorf("following operation %s, which continues: %w", key.Name, err)
	}
	err := kube.WaitFor(watching, c, target, func(o client.Object) (bool, string) {
		now, there := kube.As[Operation](o)
		if !there {
			stop(errGone)
			return false, errGone.Error()
		}
		plain(now, v1alpha1.OperationKind)
		last = now
		report(now)
		return end(now), string(now.Status.Phase)
	}, func(why string) {
		if last == nil || why != string(last.Status.Phase) {
			go stillDenied(watching, c, v1alpha1.OperationKind, key, stop)
		}
		if last != nil && why != string(last.Status.Phase) {
			unknown := last.DeepCopy() // the rest is the last known state
			unknown.Status.Steps = append(unknown.Status.Steps,
				v1alpha1.OperationStep{Name: "api-server", Short: "Wait for the API server", State: v1alpha1.StepRunning, Message: why})
			report(unknown)
		}
	})
	if errors.Is(context.Cause(watching), errGone) {
		return last, finding.Errorf("OCA-7054", fmt.Sprintf("Operation %s was deleted", key.Name), "ocadm operation list", "%w", errGone)
	}
	if errors.Is(err, context.DeadlineExceeded) && last != nil {
		return last, finding.New(finding.CodeContinues, fmt.Sprintf("%s %s has not ended in time, and continues", last.Spec.Action, key.Name),
			strings.TrimSuffix(cmp.Or(string(last.Status.Phase), "the operator has not begun it yet")+": "+brief(last, last.Status.Message), ": "),
			"ocadm operation show "+key.Name).Wrap(err)
	}
	if err != nil {
		return last, fmt.Errorf("following operation %s, which continues: %w", key.Name, err)
	}
	return last, nil
}

// Outcome returns nil for an operation that succeeded, otherwise a finding with the reason.
func Outcome(o *Operation) error {
	if o.Status.Phase == v1alpha1.OperationSucceeded {
		return nil
	}
	f := finding.New("OCA-7057", fmt.Sprintf("%s %s: %s", o.Spec.Action, o.Name, o.Status.Phase), brief(o, o.Status.Message),
		"ocadm operation show "+o.Name+"; ocadm operation logs "+o.Name)
	all := operation.ErrorsIn(o.Status.Findings)
	if len(all) > 0 && (o.Status.Phase == v1alpha1.OperationFailed || o.Status.Phase == v1alpha1.OperationCancelled) {
		return all
	}
	f.Evidence = lists.Map(all, func(one finding.Finding) string { return one.Code + " " + one.Error() })
	return f
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
)

// Wait waits until a cloud is Ready, or until only an invalid option keeps it from becoming Ready. It calls report from one goroutine with
// the status after each change.
func Wait(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(Status)) error {
	return WaitSeen(ctx, c, key, func(Status) bool { return true }, report)
}

// WaitSeen is like Wait, for a change that the cloud's resource does not show: seen reports whether a status is from after it.
func WaitSeen(ctx context.Context, c client.WithWatch, key client.ObjectKey, seen func(Status) bool, report func(Status)) error {
	var last Status
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	people := &uncorrected{end: stop}
	defer people.stop()
	err := follow(watching, c, key, func(s Status) { last.Unreachable = s.Unreachable; report(s) }, func(u *unstructured.Unstructured, s Status) bool {
		if s.Ready && !seen(s) {
			s.Ready, s.Message = false, "the operator has not seen the latest change yet"
		}
		last = s
		people.look(u, s)
		return s.Ready
	})
	switch {
	case err == nil || errors.Is(err, errGone):
		return err
	case errors.Is(context.Cause(watching), errUncorrected):
		return toCorrect(key, last)
	case errors.Is(err, context.DeadlineExceeded):
		return notReady(ctx, c, key, last, err)
	}
	return err
}

// WaitHeld is like Wait, for a cloud that has to stay ready for the duration hold.
func WaitHeld(ctx context.Context, c client.WithWatch, key client.ObjectKey, hold time.Duration, report func(Status)) error {
	for {
		if err := Wait(ctx, c, key, report); err != nil || hold == 0 {
			return err
		}
		holding, cancel := context.WithTimeout(ctx, hold)
		err := follow(holding, c, key, report, func(_ *unstructured.Unstructured, s Status) bool { return !s.Ready })
		cancel()
		switch {
		case err == nil: // it is no longer ready
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			cause := fmt.Sprintf("it is ready, but must stay ready for %s to count as running, which is longer than the timeout allowed", hold)
			return late(key, cause, "ocadm cluster status   # to wait again: ocadm cluster status --wait", err)
		default:
			return err
		}
	}
}

// Watch calls report from one goroutine with the status of a cloud after each change. It ends with ctx, or when the cloud is deleted.
func Watch(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(Status)) error {
	return follow(ctx, c, key, report, func(*unstructured.Unstructured, Status) bool { return false })
}

// follow calls report, and then done, with each state of a cloud until done returns true. It returns a finding if the cloud is deleted.
func follow(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(Status), done func(*unstructured.Unstructured, Status) bool) error {
	last, why := Status{Components: []v1alpha1.ComponentStatus{}}, ""
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := denied(ctx, c, v1alpha1.Kind, key); err != nil {
		return fmt.Errorf("reading cloud %s: %w", key, err)
	}
	err := kube.WaitFor(watching, c, empty(key), func(o client.Object) (bool, string) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || u == nil {
			why = errGone.Error()
			stop(errGone)
			return false, why
		}
		s, err := statusOf(u.Object)
		if err != nil {
			why = err.Error()
			return false, why
		}
		last, why = s, cmp.Or(s.Message, "it is ready")
		report(s)
		return done(u, s), why
	}, func(now string) {
		if now != why { // it does not come from the cloud
			go stillDenied(watching, c, v1alpha1.Kind, key, stop)
			unknown := last
			unknown.Name, unknown.Namespace, unknown.Unreachable = key.Name, key.Namespace, now
			report(unknown)
		}
	})
	if err != nil && errors.Is(context.Cause(watching), errGone) {
		return finding.Errorf("OCA-7002", fmt.Sprintf("Cloud %s was deleted", key), "create it: ocadm cluster create --version VERSION", "%w", errGone)
	}
	return err
}

// denied returns an error if the account may not list an object, as every wait does: waiting does not change that.
func denied(ctx context.Context, c client.Client, kind string, key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(ctx, afterwards)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// deniedPatience is how long the API server may deny access during a wait: one that starts may deny it to valid credentials.
const deniedPatience = 30 * time.Second

// stillDenied ends a wait if, a while after trouble, the account may not read the object.
func stillDenied(ctx context.Context, c client.Client, kind string, key client.ObjectKey, stop context.CancelCauseFunc) {
	if wait.Sleep(ctx, deniedPatience) == nil {
		if err := denied(ctx, c, kind, key); err != nil {
			stop(err)
		}
	}
}

var errGone = errors.New("it was deleted, or never existed")

// afterwards bounds a request before or after the wait itself.
const afterwards = 10 * time.Second

func late(key client.ObjectKey, cause, remedy string, err error) finding.Finding {
	return finding.New("OCA-7004", fmt.Sprintf("Cloud %s did not become ready in time", key), cause, remedy).Wrap(err)
}

// notReady explains why a cloud is not ready: its components, or an operator that is not running.
func notReady(ctx context.Context, c client.Client, key client.ObjectKey, last Status, err error) error {
	cause := cmp.Or(last.Unreachable, last.Message, wait.Why(err))
	f := late(key, cause, fmt.Sprintf("ocadm why; kubectl -n %s get pods   # the operator continues; to wait again: ocadm cluster status --wait",
		key.Namespace), err)
	if missing := last.Missing(); len(missing) > 0 && last.Unreachable == "" {
		f.Cause, f.Evidence = missing[0], missing[1:] // the cause is not repeated
		if n := len(f.Evidence); n > 0 {
			f.Cause += fmt.Sprintf(" (and %d more)", n)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	d := &appsv1.Deployment{}
	err = c.Get(ctx, client.ObjectKey{Namespace: DefaultNamespace, Name: OperatorName}, d)
	blame := func(cause, remedy string) { f.Cause, f.Remedy, f.Evidence = cause, remedy, last.Missing() }
	if apierrors.IsNotFound(err) {
		blame("the operator is not installed: "+err.Error(), finding.InstallOperator)
		return f
	}
	if err != nil { // without access to the operator, report what the cloud says
		return f
	}
	if ok, why := kube.Ready(d, nil); !ok {
		blame("the operator does not run: "+why, fmt.Sprintf("kubectl -n %s describe pods -l app=%s", DefaultNamespace, OperatorName))
	}
	if watched := WatchedBy(d); !slices.Contains(watched, key.Namespace) && !slices.Contains(watched, "*") {
		blame(fmt.Sprintf("the operator does not manage namespace %s", key.Namespace), "ocadm operator namespace add "+key.Namespace)
	}
	return f
}

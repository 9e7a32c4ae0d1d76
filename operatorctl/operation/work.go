// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// errTaken ends a worker whose operation was taken by another pod or by the operator: a pod of a lost node may still run.
var errTaken = errors.New("another pod took over the operation")

// Worker runs one operation in a pod of its own.
type Worker struct {
	Client  client.WithWatch
	Actions []Action
	// Pod is the pod of this process. It owns the operation from its first write until a later pod of the Job takes it.
	Pod string
	Log *slog.Logger
}

// Work runs an operation until it has ended or is paused; then the Job is complete. If ctx ends first, so does this pod, with an error: another one continues.
func (w Worker) Work(ctx context.Context, key client.ObjectKey) error {
	o, action, err := w.take(ctx, key)
	if err != nil || o.Status.Phase.Final() {
		return err
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	rec := newRecord(w.Client, nil, o) // the operator creates the events
	rec.worker = w.Pod
	x := &execution{action: action, run: &Run{
		Operation: o.DeepCopy(), Means: Means{Client: w.Client, Direct: w.Client}, record: rec, changed: make(chan struct{}, 1),
	}}
	pause, cancel := x.control(ctx)
	go w.obey(ctx, o.DeepCopy(), pause, cancel, abort)
	if err := x.perform(ctx, w.Client, w.Log); err != nil {
		return err
	}
	end := rec.Status()
	w.Log.Info("operation", "operation", o.Name, "phase", string(end.Phase), "message", end.Message)
	if !end.Phase.Final() && end.Phase != v1alpha1.OperationPaused {
		return fmt.Errorf("running operation %s: %w", o.Name, cmp.Or(context.Cause(ctx), errors.New("it has not ended")))
	}
	return nil
}

// take assigns the operation to this pod, and begins it.
func (w Worker) take(ctx context.Context, key client.ObjectKey) (*v1alpha1.OnecloudOperation, Action, error) {
	o, action := &v1alpha1.OnecloudOperation{}, Action{}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Client.Get(ctx, key, o); err != nil || o.Status.Phase.Final() {
			return err
		}
		var known bool
		if action, known = find(w.Actions, o.Spec.Action); !known {
			return fmt.Errorf("this ocadm does not support action %q", o.Spec.Action)
		}
		before := o.DeepCopy()
		o.Status.Worker = cmp.Or(o.Status.Worker, &v1alpha1.OperationWorker{})
		o.Status.Worker.Pod = w.Pod
		o.Status.Worker.Number++
		(&execution{action: action, run: &Run{Operation: o}}).begin(&o.Status)
		conditions(&o.Status, metav1.Now())
		return w.Client.Status().Patch(ctx, o, kube.IfUnchanged(before), client.FieldOwner(v1alpha1.ManagerOperator))
	})
	if err != nil {
		return nil, action, fmt.Errorf("taking operation %s: %w", key.Name, err)
	}
	return o, action, nil
}

// obey carries out a user's requests, and aborts the run when the operation is no longer this pod's.
func (w Worker) obey(ctx context.Context, o *v1alpha1.OnecloudOperation, pause, cancel, abort context.CancelCauseFunc) {
	uid := o.UID
	obeyed := func(object client.Object) (bool, string) {
		now, there := kube.As[v1alpha1.OnecloudOperation](object)
		switch {
		case !there || now.UID != uid || now.Status.Worker == nil || now.Status.Worker.Pod != w.Pod:
			abort(errTaken)
			return true, ""
		case cancelled(now):
			cancel(errCancelled)
		case paused(now):
			pause(errPaused)
		}
		return false, ""
	}
	if !w.follow(ctx, o, obeyed) { // the watch has ended
		_ = kube.WaitFor(ctx, w.Client, o, obeyed, func(string) {}) // it ends with ctx
	}
}

// follow watches an operation from the version that this process has, which saves a list. It reports whether the condition held.
func (w Worker) follow(ctx context.Context, o *v1alpha1.OnecloudOperation, cond kube.Condition) bool {
	changes, err := w.Client.Watch(ctx, &v1alpha1.OnecloudOperationList{}, client.InNamespace(o.Namespace), client.MatchingFields{metav1.ObjectNameField: o.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: o.ResourceVersion}})
	if err != nil {
		return false
	}
	defer changes.Stop()
	for e := range changes.ResultChan() {
		now, is := e.Object.(*v1alpha1.OnecloudOperation)
		switch {
		case !is: // the version is too old, or the watch has ended
			return false
		case e.Type == watch.Deleted:
			now = nil
		}
		var object client.Object
		if now != nil {
			object = now
		}
		if done, _ := cond(object); done {
			return true
		}
	}
	return false
}

// patch returns the patch that writes the status. A worker's patch is rejected unless the worker owns the operation, and never changes the owner.
func (r *record) patch(before, after *v1alpha1.OnecloudOperation) (client.Patch, error) {
	if r.worker == "" {
		return client.MergeFrom(before), nil
	}
	was, err := fieldsOf(before.Status)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(after.Status)
	if err != nil {
		return nil, err
	}
	type change struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	all := []change{{"test", "/status/worker/pod", r.worker}}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if name != "worker" && !bytes.Equal(was[name], is[name]) {
			all = append(all, change{"add", "/status/" + name, is[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if name != "worker" && is[name] == nil {
			all = append(all, change{Op: "remove", Path: "/status/" + name})
		}
	}
	text, err := json.Marshal(all)
	return client.RawPatch(types.JSONPatchType, text), err
}

func fieldsOf(s v1alpha1.OnecloudOperationStatus) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out map[string]json.RawMessage
	return out, json.Unmarshal(text, &out)
}

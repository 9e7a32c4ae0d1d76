// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/internal/wait"
)

// Condition reports whether an object is as desired, and if not, why. obj is nil while it does not exist.
type Condition func(obj client.Object) (done bool, why string)

// WaitFor watches one object, named by obj, until cond holds. report receives each new reason why it does not. If ctx ends first, the error is a
// *wait.Error with the object and the last reason.
func WaitFor(ctx context.Context, c client.WithWatch, obj client.Object, cond Condition, report func(why string)) error {
	return waitFor(ctx, c, obj, nil, func(o client.Object, _ []corev1.Pod) (bool, string) { return cond(o) }, report)
}

// WaitGone watches one object until it no longer exists. why returns what delays its deletion.
func WaitGone(ctx context.Context, c client.WithWatch, obj client.Object, why func(client.Object) string, report func(why string)) error {
	return WaitFor(ctx, c, obj, func(o client.Object) (bool, string) {
		if o == nil {
			return true, ""
		}
		return false, why(o)
	}, report)
}

// WaitReady watches a Deployment, DaemonSet, StatefulSet, Node or CustomResourceDefinition, named by obj, until it is ready. Its pods show why it is not.
func WaitReady(ctx context.Context, c client.WithWatch, obj client.Object, report func(why string)) error {
	return waitReady(ctx, c, obj, Ready, report)
}

// StartLimit is how long the newest pod may usually be stuck before WaitStarted gives up.
const StartLimit = 3 * time.Minute

// longLimit is how long it may be stuck with progress: a registry that hangs keeps the kubelet pulling, and other pods may never rest.
const longLimit = 15 * time.Minute

// WaitStarted is WaitReady for a Deployment that needs nothing which is still being installed: it gives up if the newest pod stays Stuck for this
// long, later if there is progress in its namespace: an image is being pulled, or a node is added for it. If the image of ocadm cannot be pulled, the error
// is NoImage's.
func WaitStarted(ctx context.Context, c client.WithWatch, d *appsv1.Deployment, limit time.Duration, report func(why string)) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var stuck atomic.Pointer[corev1.Pod]
	after := func(limit time.Duration) *time.Timer {
		return time.AfterFunc(limit, func() {
			if p := stuck.Load(); p != nil {
				giveUp(cmp.Or(NoImage(p), error(wait.Expired(fmt.Sprintf("giving up: the pod has not been able to start for %.0f minutes", limit.Minutes())))))
			}
		})
	}
	soon, late := after(limit), after(longLimit)
	defer soon.Stop()
	defer late.Stop()
	go Activity(ctx, c, func(string) { soon.Reset(limit) }, client.InNamespace(d.Namespace))
	return waitReady(ctx, c, d, func(o client.Object, pods []corev1.Pod) (bool, string) {
		var now *corev1.Pod
		if d, ok := o.(*appsv1.Deployment); ok {
			sel, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			if mine := newestFirst(sel, pods); err == nil && len(mine) > 0 && Stuck(&mine[0]) {
				now = &mine[0]
			}
		}
		if was := stuck.Swap(now); was == nil && now != nil {
			soon.Reset(limit)
			late.Reset(longLimit)
		}
		return Ready(o, pods)
	}, report)
}

// WaitReadyOn watches the pod of a DaemonSet on one node until it is ready.
func WaitReadyOn(ctx context.Context, c client.WithWatch, obj *appsv1.DaemonSet, node string, report func(why string)) error {
	return waitReady(ctx, c, obj, ReadyOn(node), report)
}

func waitReady(ctx context.Context, c client.WithWatch, obj client.Object, judge func(client.Object, []corev1.Pod) (bool, string),
	report func(string)) error {
	typed, err := typedLike(c, obj)
	if err != nil {
		return err
	}
	var pods []client.ListOption
	switch typed.(type) {
	case *appsv1.Deployment, *appsv1.DaemonSet, *appsv1.StatefulSet:
		pods = []client.ListOption{client.InNamespace(obj.GetNamespace())}
	case *corev1.Node, *apiextensionsv1.CustomResourceDefinition:
	default:
		return fmt.Errorf("waiting for a %T is not supported", typed)
	}
	return waitFor(ctx, c, typed, pods, judge, report)
}

// typedLike returns an object of the Go type for obj's kind, with its name.
func typedLike(c client.Client, obj client.Object) (client.Object, error) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	typed, err := made[client.Object](c, gvk)
	if err != nil {
		return nil, err
	}
	typed.SetName(obj.GetName())
	typed.SetNamespace(obj.GetNamespace())
	return typed, nil
}

// waitFor watches the object and, with pods, those of its namespace, and evaluates the condition after each change of either.
func waitFor(ctx context.Context, c client.WithWatch, obj client.Object, pods []client.ListOption,
	judge func(client.Object, []corev1.Pod) (bool, string), report func(string),
) error {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	what := gvk.Kind + " " + client.ObjectKeyFromObject(obj).String()
	if obj.GetNamespace() == "" {
		what = gvk.Kind + " " + obj.GetName()
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	updates := make(chan contents)
	one := []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", obj.GetName())}}
	if obj.GetNamespace() != "" {
		one = append(one, client.InNamespace(obj.GetNamespace()))
	}
	go follow(watching, c, sourceObject, obj, updates, one...)
	if pods != nil {
		go follow(watching, c, sourcePods, &corev1.Pod{}, updates, pods...)
	}
	v, last := view{name: obj.GetName()}, ""
	for {
		select {
		case <-ctx.Done():
			return &wait.Error{What: what, Why: last, Err: context.Cause(ctx)}
		case u := <-updates:
			done, why := v.take(u, judge)
			if done {
				return nil
			}
			if why != "" && why != last {
				last = why
				report(why)
			}
		}
	}
}

const (
	sourceObject = iota
	sourcePods
)

// view holds the latest data from the two sources.
type view struct {
	name   string
	object client.Object
	pods   []corev1.Pod
}

func (v *view) take(u contents, judge func(client.Object, []corev1.Pod) (bool, string)) (bool, string) {
	if u.trouble != "" {
		return false, u.trouble
	}
	if u.source == sourcePods {
		v.pods = v.pods[:0]
		for _, o := range u.objects {
			if p, ok := o.(*corev1.Pod); ok {
				v.pods = append(v.pods, *p)
			}
		}
		if v.object == nil {
			return false, "" // the object was not read yet, or does not exist
		}
		return judge(v.object, v.pods)
	}
	v.object = nil
	for _, o := range u.objects {
		if o.GetName() == v.name { // a fake API server ignores the field selector
			v.object = o
		}
	}
	done, why := judge(v.object, v.pods)
	if !done && v.object == nil && why == "" {
		why = "it does not exist"
	}
	return done, why
}

// rawFrom returns options for a watch that starts at the resource version of a list.
func rawFrom(list client.ObjectList) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true}
}

// As converts an unstructured object into a typed one.
func As[T any](o client.Object) (*T, bool) {
	if t, ok := any(o).(*T); ok {
		return t, true
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	t := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
		return nil, false
	}
	return t, true
}

// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/internal/wait"
)

// retryDelay is the pause after a list or watch that the API server refused or cut off immediately.
const retryDelay = 500 * time.Millisecond

// contents holds the objects of a selection, or why they are unavailable at the moment.
type contents struct {
	source  int
	objects map[types.UID]client.Object
	trouble string
}

// Follow sends the complete set of selected objects, first initially and then after each change, until ctx ends.
func Follow(ctx context.Context, c client.WithWatch, like client.Object, out chan<- []client.Object, opts ...client.ListOption) {
	updates := make(chan contents)
	go follow(ctx, c, 0, like, updates, opts...)
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-updates:
			if u.trouble != "" {
				continue
			}
			select {
			case out <- slices.Collect(maps.Values(u.objects)):
			case <-ctx.Done():
				return
			}
		}
	}
}

// follow sends the complete set of selected objects after each change, until ctx ends. It restarts watches that end; while the API server does not
// answer, it sends the trouble.
func follow(ctx context.Context, c client.WithWatch, source int, like client.Object, out chan<- contents, opts ...client.ListOption) {
	for ctx.Err() == nil {
		began := time.Now()
		err := listAndWatch(ctx, c, source, like, out, opts...)
		refused := err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
		if refused {
			send(ctx, out, contents{source: source, trouble: trouble(err)})
		}
		if refused || time.Since(began) < retryDelay { // an API server may end every watch at once: after etcd was restored, all versions are too old for it
			_ = wait.Sleep(ctx, retryDelay)
		}
	}
}

func listAndWatch(ctx context.Context, c client.WithWatch, source int, like client.Object, out chan<- contents, opts ...client.ListOption) error {
	list, err := listOf(c, like)
	if err != nil {
		return err
	}
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	objects := map[types.UID]client.Object{}
	for _, i := range items {
		if o, ok := i.(client.Object); ok {
			objects[o.GetUID()] = o
		}
	}
	send(ctx, out, contents{source: source, objects: maps.Clone(objects)})
	w, err := c.Watch(ctx, list, append(opts, &client.ListOptions{Raw: rawFrom(list)})...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			o, ok := e.Object.(client.Object)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			if e.Type == watch.Deleted {
				delete(objects, o.GetUID())
			} else {
				objects[o.GetUID()] = o
			}
			send(ctx, out, contents{source: source, objects: maps.Clone(objects)})
		}
	}
}

func send(ctx context.Context, out chan<- contents, c contents) {
	select {
	case out <- c:
	case <-ctx.Done():
	}
}

func listOf(c client.Client, like client.Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(like, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", like, err)
	}
	gvk.Kind += "List"
	if _, ok := like.(runtime.Unstructured); ok {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(gvk)
		return l, nil
	}
	return made[client.ObjectList](c, gvk)
}

// made returns an empty object, or list, of a kind.
func made[T any](c client.Client, kind schema.GroupVersionKind) (out T, err error) {
	o, err := c.Scheme().New(kind)
	if err != nil {
		return out, fmt.Errorf("creating a %s: %w", kind.Kind, err)
	}
	out, ok := o.(T)
	if !ok {
		return out, fmt.Errorf("%s is not a %T", kind.Kind, &out)
	}
	return out, nil
}

// trouble formats an API server error in one line.
func trouble(err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return "the API server does not serve the kind yet"
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), errors.Is(err, context.DeadlineExceeded):
		return err.Error()
	}
	return "the API server does not answer: " + err.Error()
}

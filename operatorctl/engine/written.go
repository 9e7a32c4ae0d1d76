// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// belief is how long the answer to a write of ours is believed against a cache that does not show the object at all. A cache is behind by
// milliseconds, or for as long as its watch is broken; but an object that was made and deleted meanwhile it never shows. Against a cache that
// shows an older version it is believed until the cache has caught up: what was rendered from that version would be refused, or undo ours.
const belief = 30 * time.Second

// answer is what the API server answered to a write, and until when it is believed.
type answer struct {
	*unstructured.Unstructured
	until time.Time
}

// believed is the answer to our last write of an object, nil if there is none, or the cache had time enough to show the object and does not.
// cached tells whether it shows some version of it. The lock is held.
func (a *Applier) believed(key Key, cached bool) *unstructured.Unstructured {
	ours, there := a.written[key]
	if !there || a.Now().Before(ours.until) {
		return ours.Unstructured
	}
	if !cached {
		delete(a.written, key)
		return nil
	}
	ours.until = a.Now().Add(belief)
	a.written[key] = ours
	return ours.Unstructured
}

// Unseen is when the first of the answers in a namespace is not believed any more if the cache does not show it until then; zero if
// there is none. Nothing else may bring a pass at that time.
func (a *Applier) Unseen(namespace string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first time.Time
	for key, ours := range a.written {
		if key.Namespace == namespace && (first.IsZero() || ours.until.Before(first)) {
			first = ours.until
		}
	}
	return first
}

// Latest is Live for callers that have listed the cache already: cached is what they found, nil if nothing.
func (a *Applier) Latest(key Key, cached client.Object) client.Object {
	a.mu.Lock()
	ours := a.believed(key, cached != nil)
	a.mu.Unlock()
	if ours == nil || cached != nil && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()) {
		return cached
	}
	if o := a.typed(key, ours); o != nil {
		return o
	}
	return cached
}

// typed is an answer in the type of its kind, nil if it does not fit.
func (a *Applier) typed(key Key, ours *unstructured.Unstructured) client.Object {
	typed, err := a.Writer.Scheme().New(key.GVK)
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(ours.Object, typed) != nil {
		return nil
	}
	o, _ := typed.(client.Object)
	return o
}

func (a *Applier) remember(key Key, ours *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written[key] = answer{ours, a.Now().Add(belief)}
	delete(a.holds, key)
}

// Seen drops the answer to our own write once the cache has caught up with it; call it when a watch tells of the object.
func (a *Applier) Seen(key Key, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ours, there := a.written[key]; there && !Older(version, ours.GetResourceVersion()) {
		delete(a.written, key)
	}
}

// Forget drops what is remembered of an object; call it when a watch tells that the object was deleted.
func (a *Applier) Forget(key Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.written, key)
	delete(a.clean, key)
	delete(a.holds, key)
	delete(a.full, key)
}

// Overlay puts into live, a listing of the cache by namespace and a test, what was written and the cache has not seen yet.
func (a *Applier) Overlay(live map[Key]client.Object, namespace string, belongs func(client.Object) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.written {
		if key.Namespace != namespace {
			continue
		}
		cached, there := live[key]
		ours := a.believed(key, there)
		if ours == nil || !belongs(ours) {
			continue
		}
		if there && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()) {
			delete(a.written, key)
			continue
		}
		if o := a.typed(key, ours); o != nil {
			live[key] = o
		}
	}
}

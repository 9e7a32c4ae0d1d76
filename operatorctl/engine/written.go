// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Latest is Live for callers that have listed the cache already: cached is what they found, nil if nothing.
func (a *Applier) Latest(key Key, cached client.Object) client.Object {
	a.mu.Lock()
	ours := a.written[key]
	a.mu.Unlock()
	if ours == nil || cached != nil && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()) {
		return cached
	}
	typed, err := a.Writer.Scheme().New(key.GVK)
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(ours.Object, typed) != nil {
		return cached
	}
	o, ok := typed.(client.Object)
	if !ok {
		return cached
	}
	return o
}

func (a *Applier) remember(key Key, answer *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written[key] = answer
	delete(a.holds, key)
}

// Seen drops the answer to our own write once the cache has caught up with it; call it when a watch tells of the object.
func (a *Applier) Seen(key Key, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ours := a.written[key]; ours != nil && !Older(version, ours.GetResourceVersion()) {
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
func (a *Applier) Overlay(live map[Key]client.Object, scheme *runtime.Scheme, namespace string, belongs func(client.Object) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, ours := range a.written {
		if key.Namespace != namespace || !belongs(ours) {
			continue
		}
		cached, there := live[key]
		if there && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()) {
			delete(a.written, key)
			continue
		}
		typed, err := scheme.New(key.GVK)
		if err != nil {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(ours.Object, typed); err != nil {
			continue
		}
		if o, ok := typed.(client.Object); ok {
			live[key] = o
		}
	}
}

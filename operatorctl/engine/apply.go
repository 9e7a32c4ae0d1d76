// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager owns what the operator applies.
const FieldManager = "ocadm-operator"

// workers is how many requests are under way at once. Measured on two cores: more than 8 gains nothing (facts/operators.md 3.3).
const workers = 8

// Action says what an apply did to an object.
type Action string

// The actions.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Pruned     Action = "pruned"
)

// Change is what happened to one object. Where is the first field that differed.
type Change struct {
	Action Action
	Kind   string
	Name   string
	Where  string
}

// Key names an object.
type Key struct {
	GVK             schema.GroupVersionKind
	Namespace, Name string
}

// KeyOf an object whose GVK is set.
func KeyOf(o client.Object) Key {
	return Key{GVK: o.GetObjectKind().GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Applier brings objects to the cluster, and leaves alone what is there already: for an unchanged object it makes no request.
type Applier struct {
	// Writer sends patches and deletes.
	Writer client.Client
	// Reader is the cache.
	Reader client.Reader

	mu sync.Mutex
	// written are answers of the API server that the cache may not have seen yet.
	written map[Key]*unstructured.Unstructured
	// clean remembers, by resourceVersion, for which hash an object was found equal: it saves comparing it again.
	clean map[Key]seen
}

type seen struct{ version, hash string }

// NewApplier makes an Applier.
func NewApplier(w client.Client, r client.Reader) *Applier {
	return &Applier{Writer: w, Reader: r, written: map[Key]*unstructured.Unstructured{}, clean: map[Key]seen{}}
}

// Apply brings the objects to the cluster, several at once, and tells what it did to each, in the given order.
// All are tried; the error joins those that were refused.
func (a *Applier) Apply(ctx context.Context, objs []client.Object) ([]Change, error) {
	changes, errs := a.ApplyEach(ctx, objs)
	return changes, errors.Join(errs...)
}

// ApplyEach is Apply with one error (or nil) for each object.
func (a *Applier) ApplyEach(ctx context.Context, objs []client.Object) ([]Change, []error) {
	changes := make([]Change, len(objs))
	errs := make([]error, len(objs))
	var g errgroup.Group
	g.SetLimit(workers)
	for i, o := range objs {
		g.Go(func() error {
			changes[i], errs[i] = a.applyOne(ctx, o)
			return nil
		})
	}
	_ = g.Wait() // the functions return nil; their errors are in errs
	return changes, errs
}

func (a *Applier) applyOne(ctx context.Context, o client.Object) (Change, error) {
	key := KeyOf(o)
	change := Change{Kind: key.GVK.Kind, Name: key.Name}
	desired, hash, err := toApply(o)
	if err != nil {
		return change, fmt.Errorf("preparing %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	live, err := a.Live(ctx, o)
	if err != nil {
		return change, fmt.Errorf("reading %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	if live != nil {
		same, where := a.same(key, hash, desired, live)
		if same {
			change.Action = Unchanged
			return change, nil
		}
		change.Where = where
	}
	// Set by a caller who rendered from that version: the API server refuses the write if somebody else was faster.
	desired.SetResourceVersion(o.GetResourceVersion())
	err = a.Writer.Patch(ctx, desired, client.Apply, //nolint:staticcheck // typed apply configurations do not exist for rendered objects
		client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return change, fmt.Errorf("applying %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	a.remember(key, desired)
	change.Action = Configured
	if live == nil {
		change.Action = Created
	}
	return change, nil
}

// same tells whether live is what was applied under this hash and nobody changed it since.
func (a *Applier) same(key Key, hash string, desired *unstructured.Unstructured, live client.Object) (bool, string) {
	mark := seen{version: live.GetResourceVersion(), hash: hash}
	a.mu.Lock()
	known := a.clean[key] == mark
	a.mu.Unlock()
	if known {
		return true, ""
	}
	if live.GetAnnotations()[HashAnnotation] != hash {
		return false, "metadata.annotations." + HashAnnotation
	}
	l, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, ""
	}
	if ok, where := Holds(desired.Object, l); !ok {
		return false, where
	}
	a.mu.Lock()
	a.clean[key] = mark
	a.mu.Unlock()
	return true, ""
}

// Live returns the newest known state of an object: what the API server answered to our own last write if the cache is behind it,
// else what the cache has; nil if there is none.
func (a *Applier) Live(ctx context.Context, o client.Object) (client.Object, error) {
	key := KeyOf(o)
	cached, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", o)
	}
	err := a.Reader.Get(ctx, client.ObjectKeyFromObject(o), cached)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil {
		cached.GetObjectKind().SetGroupVersionKind(key.GVK)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ours := a.written[key]
	switch {
	case ours == nil && err != nil:
		return nil, nil //nolint:nilnil // "there is none" is an answer, documented above
	case ours == nil:
		return cached, nil
	case err == nil && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()):
		delete(a.written, key)
		return cached, nil
	}
	return ours, nil
}

// Latest is Live for callers that have listed the cache already: cached is what they found, nil if nothing.
func (a *Applier) Latest(o, cached client.Object) client.Object {
	key := KeyOf(o)
	a.mu.Lock()
	ours := a.written[key]
	a.mu.Unlock()
	if ours == nil || cached != nil && !Older(cached.GetResourceVersion(), ours.GetResourceVersion()) {
		return cached
	}
	typed, ok := o.DeepCopyObject().(client.Object)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(ours.Object, typed) != nil {
		return cached
	}
	return typed
}

// HashOf is the hash under which a rendered object is applied.
func HashOf(o client.Object) (string, error) {
	_, hash, err := toApply(o)
	return hash, err
}

func (a *Applier) remember(key Key, answer *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written[key] = answer
}

// Forget drops what is remembered of an object; call it when a watch tells that the object was deleted.
func (a *Applier) Forget(key Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.written, key)
	delete(a.clean, key)
}

// Delete deletes an object if it is there. Dependents go in the background.
func (a *Applier) Delete(ctx context.Context, o client.Object) error {
	key := KeyOf(o)
	a.Forget(key)
	err := a.Writer.Delete(ctx, o, client.PropagationPolicy("Background"))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	return nil
}

// Older compares resourceVersions, which the API defines as decimal numbers since Kubernetes 1.35 (KEP-5504).
func Older(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// toApply converts a rendered object to what is sent: no status, no server-set metadata, the hash of the rest as an annotation.
func toApply(o client.Object) (*unstructured.Unstructured, string, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, "", err
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	unstructured.RemoveNestedField(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(m, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(m, "metadata", "managedFields")
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate"}, {"spec", "jobTemplate", "spec", "template"}} {
		unstructured.RemoveNestedField(m, append(path, "metadata", "creationTimestamp")...)
	}
	hash, err := Hash(m)
	if err != nil {
		return nil, "", err
	}
	ann := maps.Clone(u.GetAnnotations())
	if ann == nil {
		ann = map[string]string{}
	}
	ann[HashAnnotation] = hash
	u.SetAnnotations(ann)
	return u, hash, nil
}

// Overlay puts into live, a listing of the cache by namespace and label, what was written and the cache has not seen yet.
func (a *Applier) Overlay(live map[Key]client.Object, scheme *runtime.Scheme, namespace, label, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, ours := range a.written {
		if key.Namespace != namespace || ours.GetLabels()[label] != value {
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

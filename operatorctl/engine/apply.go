// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/internal/lists"
)

// FieldManager is the field manager of what the operator applies.
const FieldManager = "ocadm-operator"

// workers is the number of concurrent requests. Measured with an API server on the same two cores: more than 8 gains nothing.
const workers = 8

// Action is what an apply did to an object.
type Action string

const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Pruned     Action = "pruned"
)

// Change is the result for one object. Where is the first field that differed.
type Change struct {
	Action Action
	Kind   string
	Name   string
	Where  string
	// Kept lists the fields that keep their live value though the rendered object has another one.
	Kept []Kept
	// Conflict reports that another client keeps reverting the object; nil if none does. It is set as long as that lasts, whatever Action is.
	Conflict *Refusal
	// Object is the object as written, in its Go type; nil if nothing was written.
	Object client.Object
}

// Kept is a field that keeps its live value. Reason is ReasonImmutable, ReasonAltered or ReasonAutoscaled.
type Kept struct{ Reason, Message string }

// Key identifies an object.
type Key struct {
	GVK             schema.GroupVersionKind
	Namespace, Name string
}

// KeyOf returns the key of an object whose GVK is set.
func KeyOf(o client.Object) Key {
	return Key{GVK: o.GetObjectKind().GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Applier applies objects to the cluster. It makes no request for an unchanged object.
type Applier struct {
	// Writer sends patches and deletes.
	Writer client.Client
	// Reader is the cache.
	Reader client.Reader
	// Now is the clock for retries.
	Now func() time.Time
	// Earlier is the field manager of the operator whose objects this one adopts. Take selects which of its fields to adopt; nil adopts all.
	Earlier string
	Take    func(Key) func(fieldpath.Path) bool

	records records
}

// growAgain is how long to wait before a rejected resize of a claim is retried: its StorageClass may have changed.
const growAgain = 10 * time.Minute

// writeTimeout limits one write. lastWord limits a write in progress when the operator is stopped: an API server with a slow disk may need seconds, and the
// whole stop may take seven.
const (
	writeTimeout = 30 * time.Second
	lastWord     = 5 * time.Second
)

// NewApplier returns an Applier.
func NewApplier(w client.Client, r client.Reader) *Applier {
	return &Applier{Writer: w, Reader: r, Now: time.Now, records: records{of: map[Key]record{}}}
}

// Apply applies the objects in parallel and returns one Change for each, in the given order. It tries all of them; the error joins all failures.
func (a *Applier) Apply(ctx context.Context, objs []client.Object) ([]Change, error) {
	changes, errs := a.ApplyEach(ctx, objs)
	return changes, errors.Join(errs...)
}

// ApplyEach is Apply with one error (or nil) for each object.
func (a *Applier) ApplyEach(ctx context.Context, objs []client.Object) ([]Change, []error) {
	changes := make([]Change, len(objs))
	errs := lists.Parallel(objs, workers, func(i int, o client.Object) (err error) {
		changes[i], err = a.applyOne(ctx, o)
		changes[i].Conflict = a.records.get(KeyOf(o)).drift.refusal(a.Now())
		return err
	})
	return changes, errs
}

// Known returns what Apply would for a live object in this version, if the records show that it matches what is applied under the hash. ok is false
// if only Apply can find out.
func (a *Applier) Known(key Key, version, hash string) (c Change, ok bool) {
	known, now := a.records.get(key), a.Now()
	kept, ok := known.isClean(version, hash, now)
	if !ok {
		return Change{}, false
	}
	return Change{Action: Unchanged, Kind: key.GVK.Kind, Name: key.Name, Kept: kept, Conflict: known.drift.refusal(now)}, true
}

func (a *Applier) applyOne(ctx context.Context, o client.Object) (Change, error) {
	key := KeyOf(o)
	change := Change{Kind: key.GVK.Kind, Name: key.Name}
	hash, err := HashOf(o)
	if err != nil {
		return change, fmt.Errorf("preparing %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	live, err := a.cached(ctx, key)
	if err != nil {
		return change, fmt.Errorf("reading %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	if live != nil {
		if err := terminating(live); err != nil {
			return change, &Refusal{Reason: ReasonTerminating, Err: fmt.Errorf("%s %w", key.GVK.Kind, err)}
		}
		if kept, ok := a.records.get(key).isClean(live.GetResourceVersion(), hash, a.Now()); ok {
			change.Action, change.Kept = Unchanged, kept
			return change, nil
		}
	}
	desired, err := toApply(o, hash)
	if err != nil {
		return change, fmt.Errorf("preparing %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	if live == nil {
		if r := a.records.get(key).hold.standing(hash, "", a.Now()); r != nil {
			return change, r
		}
		if !a.mayRepair(ctx, key, "") {
			return change, nil
		}
		return a.write(ctx, key, hash, o, desired, nil, change)
	}
	version := live.GetResourceVersion()
	l, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return change, fmt.Errorf("reading %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	if change.Kept, err = preserveImmutable(desired.Object, l, a.records.get(key).notToGrow(a.Now()) != hash); err != nil {
		return change, err
	}
	change.Kept = append(change.Kept, leaveScale(desired.Object, live)...)
	ours := live.GetAnnotations()[HashAnnotation] == hash
	same, where := a.holds(key, hash, desired.Object, l, &change)
	if ours && same {
		a.records.update(key, func(r *record) {
			r.clean, r.hold, r.full = seen{version: version, hash: hash, kept: change.Kept}, nil, r.notToGrow(a.Now())
		})
		change.Action = Unchanged
		return change, nil
	}
	if r := a.records.get(key).hold.standing(hash, version, a.Now()); r != nil {
		return change, r
	}
	if change.Where = where; !ours {
		change.Where = ".metadata.annotations." + HashAnnotation
	} else if !a.mayRepair(ctx, key, where) {
		return change, nil
	}
	return a.write(ctx, key, hash, o, desired, l, change)
}

// write applies desired; live is the object that it replaces, nil if there is none.
func (a *Applier) write(ctx context.Context, key Key, hash string, o client.Object, desired *unstructured.Unstructured, live map[string]any,
	change Change) (Change, error) {
	if err := ctx.Err(); err != nil {
		return change, err
	}
	// A graceful stop lets a write in progress finish: an API server that is interrupted while creating a Service may keep its port allocated for ten
	// minutes.
	ctx, cancel := outlasting(ctx)
	defer cancel()
	version, _, _ := unstructured.NestedString(live, "metadata", "resourceVersion")
	grown := grows(desired.Object, live)
	// Set by a caller that rendered from that version: the API server rejects the write if another client was faster.
	seen, err := o.GetResourceVersion(), error(nil)
	if live != nil && a.Earlier != "" {
		seen, err = a.adopt(ctx, key, &unstructured.Unstructured{Object: live}, seen)
	}
	sent := desired.DeepCopy().Object
	desired.SetResourceVersion(seen)
	if err == nil && rolled(desired.Object, live) {
		err = a.Writer.Patch(ctx, desired.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(recreate)), client.FieldOwner(FieldManager))
	}
	if err == nil {
		desired, err = a.send(ctx, key, desired, live == nil)
	}
	switch now := a.Now(); {
	case err == nil:
		a.records.update(key, func(r *record) {
			r.expected, r.until, r.hold = desired.GetResourceVersion(), now.Add(patience), nil
			r.altered = alterationOf(sent, desired.Object, hash, now)
			if grown {
				r.full = ""
			}
		})
		if change.Action = Configured; live == nil {
			change.Action = Created
		}
		change.Object, err = Typed(a.Writer.Scheme(), key.GVK, desired.Object)
		return change, err
	case grown && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)):
		a.records.update(key, func(r *record) { r.full, r.growAt = hash, now.Add(growAgain) })
		return a.applyOne(ctx, o)
	case apierrors.IsConflict(err): // the next reconcile reads and renders it again
		return change, fmt.Errorf("applying %s %q: %w", key.GVK.Kind, key.Name, err)
	default:
		var h *hold
		a.records.update(key, func(r *record) {
			r.hold = holdAfter(r.hold, hash, version, fmt.Errorf("applying %s %q: %w", key.GVK.Kind, key.Name, err), now)
			h = r.hold
		})
		return change, h.refusal
	}
}

// outlasting returns a context that ends lastWord after ctx, but at most writeTimeout from now.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWord, cancel) })
	return own, func() {
		stop()
		cancel()
	}
}

// cached returns the object in the cache, nil if there is none. It shares memory with the cache: do not modify it.
func (a *Applier) cached(ctx context.Context, key Key) (client.Object, error) {
	o, err := Typed(a.Writer.Scheme(), key.GVK, map[string]any{})
	if err != nil {
		return nil, err
	}
	if err := a.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, o, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	o.GetObjectKind().SetGroupVersionKind(key.GVK)
	return o, nil
}

// Typed converts the fields of an object to its Go type.
func Typed(scheme *runtime.Scheme, kind schema.GroupVersionKind, fields map[string]any) (client.Object, error) {
	typed, err := scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, typed); err != nil {
		return nil, err
	}
	o, ok := typed.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is not an object", kind.Kind)
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o, nil
}

// ApplyAs sets the hash under which an object is applied: that of the operator that rendered it.
func ApplyAs(o client.Object, hash string) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[HashAnnotation] = hash
	o.SetAnnotations(annotations)
}

// HashOf returns the hash under which a rendered object is applied. It covers everything but the kind and the resourceVersion.
func HashOf(o client.Object) (string, error) {
	if hash := o.GetAnnotations()[HashAnnotation]; hash != "" {
		return hash, nil
	}
	version := o.GetResourceVersion()
	o.SetResourceVersion("")
	defer o.SetResourceVersion(version)
	// Kubernetes types have a deterministic encoding that costs a tenth of JSON.
	if m, ok := o.(interface{ Marshal() ([]byte, error) }); ok {
		b, err := m.Marshal()
		if err != nil {
			return "", fmt.Errorf("hashing: %w", err)
		}
		return sum(b), nil
	}
	return Hash(o)
}

// Delete deletes an object if it exists, with background propagation.
func (a *Applier) Delete(ctx context.Context, key Key) error {
	a.records.drop(key)
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	o.SetGroupVersionKind(key.GVK)
	err := a.Writer.Delete(ctx, o, client.PropagationPolicy("Background"))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %q: %w", key.GVK.Kind, key.Name, err)
	}
	return nil
}

// Older reports whether resourceVersion a is older than b. It returns false if either is invalid.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// toApply converts a rendered object to what is sent: without status and server-set metadata, with the hash as an annotation.
func toApply(o client.Object, hash string) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	unstructured.RemoveNestedField(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(m, "metadata", "managedFields")
	ApplyAs(u, hash)
	return u, nil
}

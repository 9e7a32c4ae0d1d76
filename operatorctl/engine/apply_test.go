// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	webhook "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/test/require"
)

// bench is an Applier on a fake API server, with its own clock.
type bench struct {
	*Applier
	t      *testing.T
	api    client.WithWatch
	clock  time.Time
	writes int
	// answer returns the API server's error for a write, nil for success.
	answer error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.api = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().Build()
	c := interceptor.NewClient(b.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if opt := (&client.PatchOptions{}).ApplyOptions(opts); len(opt.DryRun) > 0 {
				return c.Get(ctx, client.ObjectKeyFromObject(o), o) // all that a dry run shows; the fake client does not support it
			}
			b.writes++
			if b.answer != nil {
				return b.answer
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	b.Applier = NewApplier(c, b.api)
	b.Now = func() time.Time { return b.clock }
	return b
}

// config is a rendered object.
func config(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance"},
		Data:       map[string]string{"option": value},
	}
}

func (b *bench) one(o client.Object) (Change, error) {
	b.t.Helper()
	changes, errs := b.ApplyEach(b.t.Context(), []client.Object{o})
	return changes[0], errs[0]
}

// meddle changes the object like a competing controller.
func (b *bench) meddle() {
	b.t.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(b.t, b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "onecloud", Name: "default-glance"}, cm))
	cm.Data["option"] = "theirs"
	require.NoError(b.t, b.api.Update(b.t.Context(), cm, client.FieldOwner("meddler")))
}

func TestConflictIsReportedAndNotFought(t *testing.T) {
	b := newBench(t)
	if c, err := b.one(config("ours")); err != nil || c.Action != Created {
		t.Fatal(c, err)
	}
	var last Change
	for range 3 * conflictBudget {
		b.meddle()
		var err error
		if last, err = b.one(config("ours")); err != nil {
			t.Fatal(err)
		}
		b.clock = b.clock.Add(100 * time.Millisecond)
	}
	if b.writes > conflictBudget+2 {
		t.Errorf("%d writes against a budget of %d", b.writes, conflictBudget)
	}
	f := last.Conflict
	if f == nil || f.Reason != ReasonConflict || !strings.Contains(f.Error(), `meddler changes data.option repeatedly`) || !f.Until.After(b.clock) {
		t.Fatalf("%+v", f)
	}
	// It is corrected now and then, at growing intervals, and stays reported.
	writes := b.writes
	for range 3 {
		b.clock = f.Until
		b.meddle()
		c, err := b.one(config("ours"))
		if err != nil || c.Action != Configured || c.Conflict == nil || c.Conflict.Until.Sub(b.clock) <= conflictPause {
			t.Fatalf("%+v %v %v", c, c.Conflict, err)
		}
		f = c.Conflict
	}
	if b.writes != writes+3 {
		t.Errorf("%d writes", b.writes-writes)
	}
	// Our own changes are applied immediately.
	if c, err := b.one(config("new")); err != nil || c.Action != Configured {
		t.Errorf("a change of ours: %+v %v", c, err)
	}
	// Without further changes, the conflict ends.
	for range 3 {
		if c, _ := b.one(config("new")); c.Conflict != nil {
			b.clock = c.Conflict.Until
		}
	}
	if c, err := b.one(config("new")); err != nil || c.Conflict != nil || c.Action != Unchanged {
		t.Errorf("afterwards: %+v %v %v", c, c.Conflict, err)
	}
}

// What an admission webhook changes in each write, such as the registry of an image, is neither written again nor a conflict. Another client's change of it
// is corrected, and so is everything once the webhook is gone.
func TestAdmissionIsNotFought(t *testing.T) {
	b := newBench(t)
	webhook := true
	b.Writer = interceptor.NewClient(b.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			b.writes++
			if u, is := o.(*unstructured.Unstructured); is && webhook {
				_ = unstructured.SetNestedField(u.Object, "mirror/ours", "data", "option")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	touch := func() { // like a new status
		t.Helper()
		require.NoError(t, b.api.Patch(t.Context(), config(""), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"at":"%d"}}}`, b.clock.Unix()))))
		b.clock = b.clock.Add(time.Second)
	}
	var last Change
	for range 2 * conflictBudget {
		var err error
		if last, err = b.one(config("ours")); err != nil || last.Conflict != nil {
			t.Fatalf("%v after %d writes: %v", err, b.writes, last.Conflict)
		}
		touch()
	}
	if b.writes != 1 || len(last.Kept) != 1 || last.Kept[0].Reason != ReasonAltered || !strings.Contains(last.Kept[0].Message, "data.option") {
		t.Errorf("%d writes, %+v", b.writes, last)
	}
	b.meddle()
	if c, err := b.one(config("ours")); err != nil || c.Action != Configured {
		t.Errorf("another client's change: %+v %v", c, err)
	}
	webhook, b.clock = false, b.clock.Add(conflictLast)
	touch()
	if c, err := b.one(config("ours")); err != nil || c.Action != Configured || len(c.Kept) != 0 {
		t.Errorf("without the webhook: %+v %v", c, err)
	}
}

func TestRepeatedDeletionIsAConflict(t *testing.T) {
	b := newBench(t)
	var last Change
	for range 2 * conflictBudget {
		last, _ = b.one(config("ours"))
		_ = b.api.Delete(t.Context(), config(""))
		b.Forget(KeyOf(config("")), "")
	}
	if last.Conflict == nil || !strings.Contains(last.Conflict.Error(), "deletes it repeatedly") || b.writes > conflictBudget+1 {
		t.Errorf("%v, %d writes", last.Conflict, b.writes)
	}
}

// The annotation on the object itself only works for workloads.
func TestConflictAdvisesAPauseThatWorks(t *testing.T) {
	b := newBench(t)
	for kind, of := range map[string]string{"Deployment": "annotate the object", "CronJob": "annotate the object", "Service": "of the cloud", "Secret": "of the cloud"} {
		key := Key{GVK: schema.GroupVersionKind{Version: "v1", Kind: kind}, Namespace: "onecloud", Name: "default-glance"}
		if text := b.describe(t.Context(), key, "").Error(); !strings.Contains(text, of) {
			t.Errorf("%s: %s", kind, text)
		}
	}
}

// Occasional changes by a person are no conflict.
func TestSlowDriftIsHealed(t *testing.T) {
	b := newBench(t)
	for range 5 * conflictBudget {
		if c, err := b.one(config("ours")); err != nil || c.Conflict != nil || c.Action == "" {
			t.Fatal(c, err)
		}
		b.meddle()
		b.clock = b.clock.Add(time.Minute)
	}
}

func TestRetryAfterRejectionDependsOnTheCause(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	for _, c := range []struct {
		name        string
		answer      error
		first, last time.Duration
	}{
		{"busy", errors.New("connection refused"), time.Second, time.Minute},
		{"too many requests", apierrors.NewTooManyRequests("slow down", 7), 7 * time.Second, time.Minute},
		{"quota", apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("exceeded quota")), 5 * time.Second, 5 * time.Minute},
		{"invalid", apierrors.NewInvalid(kind, "x", nil), time.Minute, 30 * time.Minute},
		{"policy", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: `configmaps "x" is forbidden: ` +
			"ValidatingAdmissionPolicy 'labels' with binding 'all' denied request: no owner"}}, 5 * time.Second, 5 * time.Minute},
		{"webhook", webhook.ToStatusErr("validate.kyverno.svc-fail", nil), 5 * time.Second, 5 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.answer = c.answer
			var r *Refusal
			var delay time.Duration
			for i := range 12 {
				_, err := b.one(config("ours"))
				if !errors.As(err, &r) || r.Reason != ReasonRefused || !errors.Is(err, c.answer) {
					t.Fatalf("%v", err)
				}
				if _, err := b.one(config("ours")); !errors.Is(err, c.answer) || b.writes != i+1 {
					t.Fatalf("asked again at once: %v, %d writes", err, b.writes)
				}
				if delay = r.Until.Sub(b.clock); i == 0 && delay != c.first {
					t.Errorf("first after %s, want %s", delay, c.first)
				}
				b.clock = r.Until
			}
			if delay != c.last {
				t.Errorf("last after %s, want %s", delay, c.last)
			}
			// A fix is not delayed.
			b.clock = b.clock.Add(-time.Second)
			b.answer = nil
			if c, err := b.one(config("fixed")); err != nil || c.Action != Created {
				t.Errorf("the fix: %+v %v", c, err)
			}
		})
	}
}

func TestConflictIsFoundInKeyedLists(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{
		{Manager: FieldManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"glance\"}":{"f:image":{}}}}}}}`)},
		{Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)},
		{Manager: "injector", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"glance\"}":{".":{},"f:image":{}}}}}}}`)},
		{Manager: "ports", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:ports":{"k:{\"port\":30292,\"protocol\":\"TCP\"}":{"f:targetPort":{}}}}}`)},
	}
	for where, want := range map[string]string{
		".spec.template.spec.containers[glance/].image": "injector",
		".spec.replicas":                       "other",
		".spec.ports[30292/TCP/].targetPort":   "ports",
		".spec.template.spec.containers[web/]": "",
		".spec.template":                       "injector",
	} {
		if got := OwnerOf(entries, where); got != want {
			t.Errorf("%s: %q, want %q", where, got, want)
		}
	}
}

func TestScaledBy(t *testing.T) {
	d := &appsv1.Deployment{}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Subresource: "status"}, {Manager: "kubectl", Subresource: "scale"}}
	if got := ScaledBy(d); got != "" {
		t.Errorf("kubectl scale counts as autoscaler: %q", got)
	}
	d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Subresource: "scale"})
	if d.ManagedFields = ScaleEntries(d.ManagedFields); len(d.ManagedFields) != 2 || ScaledBy(d) != "kube-controller-manager" {
		t.Errorf("%v", d.ManagedFields)
	}
}

func TestWriteCompletesAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		write, done := outlasting(ctx)
		defer done()
		stop()
		time.Sleep(lastWord - time.Nanosecond)
		synctest.Wait()
		if err := write.Err(); err != nil {
			t.Fatalf("a write that was begun was cut off: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(write.Err(), context.Canceled) {
			t.Errorf("a write goes on after the stop: %v", write.Err())
		}
		quick, done := outlasting(ctx)
		done()
		synctest.Wait()
		if quick.Err() == nil {
			t.Error("a write that came to its end is still open")
		}
		long, done := outlasting(t.Context())
		defer done()
		time.Sleep(writeTimeout)
		synctest.Wait()
		if !errors.Is(long.Err(), context.DeadlineExceeded) {
			t.Errorf("a write that nobody stops: %v", long.Err())
		}
	})
}

// A rejected resize of a claim is retried after a while, though nothing about the claim has changed: its StorageClass may have.
func TestRejectedGrowthIsRetried(t *testing.T) {
	b := newBench(t)
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance"},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
		}
	}
	size := func(want string, writes int) {
		t.Helper()
		live := &corev1.PersistentVolumeClaim{}
		require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(claim("1G")), live))
		if got := live.Spec.Resources.Requests.Storage().String(); got != want || b.writes != writes {
			t.Errorf("its size is %s after %d writes, want %s after %d", got, b.writes, want, writes)
		}
	}
	rigid, large := true, "20G"
	b.Writer = interceptor.NewClient(b.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			b.writes++
			raw, err := p.Data(o)
			if err == nil && rigid && strings.Contains(string(raw), `"storage":"`+large+`"`) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, o.GetName(), errors.New("its class does not allow it"))
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	apply := func(to string) {
		t.Helper()
		if _, err := b.one(claim(to)); err != nil {
			t.Fatal(err)
		}
	}
	apply("10G")
	apply("20G")
	size("10G", 3)
	apply("20G")
	b.clock = b.clock.Add(growAgain - time.Second)
	apply("20G")
	size("10G", 3)
	b.clock = b.clock.Add(time.Second)
	apply("20G")
	apply("20G")
	size("10G", 4)
	rigid = false
	b.clock = b.clock.Add(growAgain)
	apply("20G")
	size("20G", 5)
	b.clock = b.clock.Add(growAgain)
	apply("20G")
	apply("20G")
	size("20G", 5)

	// Another client resizes it: the applier compares it once, not in every reconcile from then on.
	rigid, large = true, "30G"
	apply("30G")
	size("20G", 7)
	require.NoError(t, b.api.Patch(t.Context(), claim("30G"), client.Merge, client.FieldOwner("a person")))
	b.clock = b.clock.Add(growAgain)
	apply("30G")
	size("30G", 7)
	live := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(claim("1G")), live))
	if hash, err := HashOf(claim("30G")); err != nil || hash != live.Annotations[HashAnnotation] {
		t.Fatal(hash, err)
	} else if _, known := b.Known(KeyOf(claim("30G")), live.ResourceVersion, hash); !known {
		t.Error("it is looked at every time")
	}
}

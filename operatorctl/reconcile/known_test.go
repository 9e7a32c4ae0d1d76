// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// writes records every write to the objects of a cloud.
func writes(to *[]string) interceptor.Funcs {
	var mu sync.Mutex // the operator writes concurrently
	note := func(verb string, o client.Object) {
		if o.GetObjectKind().GroupVersionKind().Kind == v1alpha1.Kind {
			return // the fake client has no schema for it: defaults never look written
		}
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, fmt.Sprintf("%s %T %s", verb, o, o.GetName()))
	}
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			note("patch "+o.GetObjectKind().GroupVersionKind().Kind, o)
			return c.Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note("create", o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			note("update", o)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			note("delete", o)
			return c.Delete(ctx, o, opts...)
		},
	}
}

// cold reconciles with a newly started operator, and returns its writes.
func (b *bench) cold() []string {
	b.t.Helper()
	var wrote []string
	r, err := New(interceptor.NewClient(b.api, writes(&wrote)), b.api, events.NewFakeRecorder(1000), Options{
		Log: slog.New(slog.DiscardHandler), Connections: b.r.options.Connections,
	})
	require.NoError(b.t, err)
	r.setClock(b.r.reads.now)
	for range 2 {
		if _, err := r.Reconcile(b.t.Context(), request()); err != nil {
			b.t.Fatal(err)
		}
	}
	return wrote
}

// Caches between reconciles are only an optimization: whatever changes, an operator with empty caches finds nothing left to do.
func TestRememberingChangesNothing(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	cloud := func(spec string, generation int) func() error {
		return func() error {
			return edit(t, &v1alpha1.OnecloudCluster{}, "default", fmt.Sprintf(`{"metadata":{"generation":%d},"spec":%s}`, generation, spec))(b.api)
		}
	}
	object := func(o client.Object, name, patch string) func() error {
		return func() error { return edit(t, o, name, patch)(b.api) }
	}
	remove := func(o client.Object, name string) func() error {
		return func() error {
			o.SetNamespace(cloudKey.Namespace)
			o.SetName(name)
			return b.api.Delete(t.Context(), o)
		}
	}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"nothing", func() error { return nil }},
		{"a service switched off", cloud(`{"glance":{"disable":true}}`, 2)},
		{"and on", cloud(`{"glance":{"disable":false}}`, 3)},
		{"another release", cloud(`{"version":"v4.0.5"}`, 4)},
		{"another image", cloud(`{"webconsole":{"image":"registry.example.com/own/webconsole:1"}}`, 5)},
		{"a load balancer", cloud(`{"loadBalancerEndpoint":"10.0.0.9"}`, 6)},
		{"another edition", object(&v1alpha1.OnecloudCluster{}, "default", `{"metadata":{"annotations":{"onecloud.yunion.io/edition":"ee"}}}`)},
		{"an option", object(&corev1.ConfigMap{}, "default-logger", `{"data":{"action_log_exceed_count":"10"}}`)},
		{"an option that is wrong", object(&corev1.ConfigMap{}, "default-logger", `{"data":{"action_log_exceed_cuont":"10"}}`)},
		{"accepted all the same", object(&corev1.ConfigMap{}, "default-logger", `{"metadata":{"annotations":{"onecloud.yunion.io/accept-options":"action_log_exceed_cuont"}}}`)},
		{"removed", object(&corev1.ConfigMap{}, "default-logger", `{"data":{"action_log_exceed_cuont":null}}`)},
		{"a Service edited", object(&corev1.Service{}, "default-glance", `{"spec":{"selector":{"app":"other"}}}`)},
		{"a Service deleted", remove(&corev1.Service{}, "default-glance")},
		{"a file edited", object(&corev1.Secret{}, "default-glance-config", `{"data":{"glance.conf":"YQ=="}}`)},
		{"a ConfigMap deleted", remove(&corev1.ConfigMap{}, "default-glance")},
		{"a password edited", object(&corev1.Secret{}, "default-credentials", `{"data":{"glance.database-password":"b3RoZXItcGFzc3dvcmQ="}}`)},
		{"a password lost", object(&corev1.Secret{}, "default-credentials", `{"data":{"glance.account-password":null}}`)},
		{"certificates edited", object(&corev1.Secret{}, "default-certs", `{"data":{"service.crt":null}}`)},
		{"certificates deleted", remove(&corev1.Secret{}, "default-etcd-peer")},
		{"all certificates deleted", remove(&corev1.Secret{}, "default-certs")},
		{"certificates grown old", func() error { b.clock = b.clock.Add(300 * 24 * time.Hour); return nil }},
	} {
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for range 4 {
			b.reconcile()
		}
		if wrote := b.cold(); len(wrote) > 0 {
			t.Errorf("%s: an operator that remembers nothing wrote %q", c.name, wrote)
		}
		if u := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionUpdateAvailable); u == nil || u.Status != "False" {
			t.Errorf("%s: the same operator has an update: %+v", c.name, u)
		}
	}
	s := &corev1.Secret{}
	if err := b.api.Get(t.Context(), types.NamespacedName{Namespace: "onecloud", Name: "default-glance-config"}, s); err != nil || len(s.Data["glance.conf"]) < 100 {
		t.Errorf("glance's file is %d bytes: %v", len(s.Data["glance.conf"]), err)
	}
}

// A reconcile without news neither renders nor plans.
func TestUnchangedCloudIsRecalled(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	for range 6 { // the fake client needs a few until the defaults have their owner
		b.reconcile()
	}
	m := b.r.reads.clouds.of[cloudKey]
	if !m.memos.desired.valid || !m.memos.issued.valid {
		t.Fatalf("not remembered: desired %t, certificates %t", m.memos.desired.valid, m.memos.issued.valid)
	}
	before := m.memos.desired.value
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"metadata":{"annotations":{"somebody/note":"seen"}}}`)(b.api))
	b.reconcile()
	if m.memos.desired.value != before {
		t.Error("planned again")
	}
	b.r.Rest(t.Context())
	if m.memos.desired.valid || m.memos.issued.valid || m.written != nil {
		t.Error("kept while at rest")
	}
	b.reconcile()
	if m.memos.desired.value == before {
		t.Error("not planned again after a rest")
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// An unchanged cloud is reconciled without a request: everything is read from the cache. That also holds for a newly started operator.
func TestUnchangedCloudCostsNoRequest(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	for range 6 { // the fake client needs a few until the defaults have their owner
		b.reconcile()
	}
	var asked []string
	direct := interceptor.NewClient(b.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked = append(asked, fmt.Sprintf("get %T %s", o, key))
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			asked = append(asked, fmt.Sprintf("list %T", list))
			return c.List(ctx, list, opts...)
		},
	})
	r, err := New(interceptor.NewClient(b.api, writes(&asked)), direct, events.NewFakeRecorder(1000), Options{
		Log: slog.New(slog.DiscardHandler), Connections: b.r.options.Connections,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.setClock(b.r.reads.now)
	for range 2 {
		if _, err := r.Reconcile(t.Context(), request()); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
}

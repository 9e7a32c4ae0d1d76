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

// A cloud that has not changed is looked at without a request: what is read comes from the cache, and nothing goes past it. An operator that has
// just started asks nothing either.
func TestUnchangedCloudCostsNoRequest(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	for range 6 { // the client in memory needs some until the defaults have their owner
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

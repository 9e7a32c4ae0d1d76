// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/test/require"
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
	require.NoError(t, err)
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

// A new operator that renders exactly the release does not render it a second time from the inputs of the release. Any difference is found.
func TestRendersTheRelease(t *testing.T) {
	b := smallBench(t)
	for what, change := range map[string]func(*State, *Desired){
		"nothing": nil,
		"a new component": func(s *State, _ *Desired) {
			older := *s.Releases.current
			older.Catalog, s.Releases.current = older.Catalog[1:], &older
		},
		"an object":              func(_ *State, d *Desired) { d.component("glance").wants[0].hash = "other" },
		"a lost object":          func(_ *State, d *Desired) { d.component("glance").wants = d.component("glance").wants[1:] },
		"a disabled component":   func(_ *State, d *Desired) { d.component("glance").wants = nil },
		"a broken component":     func(_ *State, d *Desired) { d.component("glance").err = errors.New("broken") },
		"a default":              func(_ *State, d *Desired) { d.Defaults.SetName("other") },
		"an effect":              func(_ *State, d *Desired) { d.Effects[0].Hash = "other" },
		"an effect of a release": func(_ *State, d *Desired) { d.release.calm["new"] = "hash" },
	} {
		t.Run(what, func(t *testing.T) {
			m := &cloud{effects: effects.NewMemory()}
			s, err := b.r.reads.gather(t.Context(), m, cloudKey)
			require.NoError(t, err)
			if s, err = b.r.acts.prepare(t.Context(), m, s, planPreparation(s)); err != nil {
				t.Fatal(err)
			}
			passwords, names := secrets.Split(s.Secrets.credentials)
			d, err := b.r.draft(t.Context(), m, s, passwords, names)
			require.NoError(t, err)
			if change != nil {
				change(&s, d)
			}
			if equal, err := rendersRelease(s, d, b.r.acts.catalog.names); err != nil || equal != (change == nil) {
				t.Errorf("%t, %v", equal, err)
			}
		})
	}
}

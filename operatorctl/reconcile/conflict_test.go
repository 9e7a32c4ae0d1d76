// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// A cache whose watch is broken shows an old version for a while: each write is a conflict. The next reconcile comes soon, but not again and again.
func TestLastingConflictIsNoHotLoop(t *testing.T) {
	lasts := true
	b := newBench(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if lasts && o.GetName() == "default-region" && o.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, o.GetName(), errors.New("it was changed"))
		}
		return c.Patch(ctx, o, p, opts...)
	}}, newCloud())
	var total time.Duration
	const times = 12
	for i := range times {
		after := b.reconcile().RequeueAfter
		if i == 0 && after > 100*time.Millisecond || after > 10*time.Second {
			t.Errorf("conflict %d is repeated after %s", i+1, after)
		}
		total += after
		b.clock = b.clock.Add(after)
	}
	if total < 20*time.Second {
		t.Errorf("%d reconciles in %s", times, total)
	}
	lasts = false
	b.reconcile()
	b.component("region") // it has gone on
	lasts = true
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"regionServer":{"dnsDomain":"cloud.example.com"}}}`)(b.api))
	if after := b.reconcile().RequeueAfter; after > 100*time.Millisecond {
		t.Errorf("a later conflict is repeated after %s", after)
	}
}

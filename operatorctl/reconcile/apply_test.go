// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/status"
)

// A failed request causes no watch event: the reconcile itself must schedule a retry, and not wait for the audit.
func TestRejectedObjectIsRetried(t *testing.T) {
	broken, tried := true, 0
	funcs := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if broken && o.GetObjectKind().GroupVersionKind().Kind == "Service" && o.GetName() == "default-glance" {
			tried++
			return errors.New("the API server is busy")
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	b := newBench(t, funcs, newCloud())
	b.reconcile()
	if s := b.component("glance"); s.State != v1alpha1.Degraded || !strings.Contains(s.Message, "busy") {
		t.Fatalf("%s: %s", s.State, s.Message)
	}
	if tried != 1 {
		t.Fatalf("tried %d times", tried)
	}
	if res := b.reconcile(); tried != 1 || res.RequeueAfter > time.Second {
		t.Errorf("tried %d times at once, the next pass comes after %s", tried, res.RequeueAfter)
	}
	b.clock = b.clock.Add(time.Second)
	if b.reconcile(); tried != 2 {
		t.Errorf("tried %d times", tried)
	}
	broken = false
	b.clock = b.clock.Add(2 * time.Second)
	b.reconcile()
	if s := b.component("glance"); s.State == v1alpha1.Degraded {
		t.Fatalf("still %s: %s", s.State, s.Message)
	}
	for refusals, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := retryDelay(refusals); got != want*time.Second {
			t.Errorf("tried again after %s, want %d s", got, want)
		}
	}
}

// While the database is down, a fix of a component with an existing schema must be applied.
func TestFailedAuditDoesNotDelayAFix(t *testing.T) {
	e := effects.Effect{Key: "database/glance", Component: "glance", Hash: "1", Stage: effects.Before}
	d, c := &Desired{Effects: []effects.Effect{e}}, &target{Resolved: component.Resolved{Component: component.Component{Name: "glance"}}}
	s := State{Cloud: newCloud(), Done: &outcome{Effects: map[string]effects.Outcome{e.Key: {Effect: e, State: effects.Failed}}}}
	if done(s, d, c, effects.Before, true) {
		t.Error("a workload is made before its database")
	}
	s.Cloud.Status.Effects = map[string]string{"database/glance": "1"}
	if !done(s, d, c, effects.Before, true) {
		t.Error("a database that was made and cannot be verified now holds up the workload")
	}
}

// However slow the API server is, a reconcile checks the effects: nothing else would trigger the next one.
func TestSlowAPIServerDoesNotDelayEffects(t *testing.T) {
	var late atomic.Int64
	b := newBench(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		late.Add(int64(2 * advanceFor))
		return c.Patch(ctx, o, p, opts...)
	}}, newCloud())
	b.r.setClock(func() time.Time { return b0.Add(time.Duration(late.Load())) })
	b.reconcile()
	if s := b.component("keystone"); s.Reason != status.ReasonEffectPending {
		t.Errorf("keystone is %s %s: %s", s.State, s.Reason, s.Message)
	}
}

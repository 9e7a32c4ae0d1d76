// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// lasting returns the duration of a fault that shows only over time: long if everything is tested, otherwise short.
func lasting(short, long time.Duration) time.Duration {
	if os.Getenv("OCADM_SWEEP") != "" {
		return long
	}
	return short
}

// install creates a cloud for a test, with an operator that runs until the test's end.
func (w *faulty) install(t *testing.T, cr *v1alpha1.OnecloudCluster, options ...func(*operatorctl.Options)) *operator {
	t.Helper()
	o := w.run(t, options...)
	began, _ := passes(t)
	w.In(t).Create(cr)
	w.untilReady(t, o, began)
	return o
}

// run starts an operator that runs until the test's end.
func (w *faulty) run(t *testing.T, options ...func(*operatorctl.Options)) *operator {
	t.Helper()
	o := w.start(t, nil, options...)
	t.Cleanup(func() { o.stop(t) })
	return o
}

// audits sets the interval at which the operator verifies databases and services.
func audits(every time.Duration) func(*operatorctl.Options) {
	return func(o *operatorctl.Options) { o.Audit = every }
}

// untilSays waits until a component has the given state, and its message contains every text.
func (w *faulty) untilSays(t testing.TB, o *operator, name string, state v1alpha1.State, texts ...string) {
	t.Helper()
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		c := env.Component(cr, name)
		return c.State == state && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(c.Message, s) }), env.States(cr)
	})
}

// are checks that components are in a state.
func (w *faulty) are(t testing.TB, state v1alpha1.State, names ...string) {
	t.Helper()
	if others := notIn(w.In(t).TryCloud(), state, names); others != "" {
		t.Error(others)
	}
}

// untilAre waits until components are in a state. One whose workload was edited is Progressing until the cluster has rolled out the repair.
func (w *faulty) untilAre(t testing.TB, o *operator, state v1alpha1.State, names ...string) {
	t.Helper()
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		others := notIn(cr, state, names)
		return others == "", others
	})
}

// notIn returns the components that are in another state.
func notIn(cr *v1alpha1.OnecloudCluster, state v1alpha1.State, names []string) string {
	var out []string
	for _, n := range names {
		if c := env.Component(cr, n); c.State != state {
			out = append(out, fmt.Sprintf("%s is %s (%s: %s), not %s", n, c.State, c.Reason, c.Message, state))
		}
	}
	return strings.Join(out, "; ")
}

// untilThere waits until an object is as wanted.
func (w *faulty) untilThere(t testing.TB, op *operator, o client.Object, name string, cond kube.Condition) {
	t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	deadline := time.Now().Add(env.Patience)
	for {
		fresh, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T is no object", o)
		}
		why := "it is not there"
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), fresh); err == nil {
			if ok, why = cond(fresh); ok {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s\n%s\n%s", name, why, env.States(w.In(t).TryCloud()), op.tail(30))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sql runs a statement as the administrator of the database server.
func (w *faulty) sql(t testing.TB, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root:%s@tcp(%s)/?interpolateParams=true", w.DB.RootPassword, w.DB.Addr()))
	require.NoError(t, err)
	defer db.Close()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// untilTold waits for an event about the cloud whose note contains a text.
func (w *faulty) untilTold(t testing.TB, o *operator, reason, text string) {
	t.Helper()
	deadline := time.Now().Add(env.Patience)
	for {
		var list eventsv1.EventList
		require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(namespace)))
		for _, e := range list.Items {
			if e.Regarding.UID == w.In(t).TryCloud().UID && e.Reason == reason && strings.Contains(e.Note, text) && e.Type == corev1.EventTypeWarning {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no event %s with %q\n%s", reason, text, o.tail(12))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// atMost checks a number of requests against a limit: an initial number plus a rate per second of the fault.
func atMost(t testing.TB, what string, have, once int, perSecond float64, lasted time.Duration) {
	t.Helper()
	limit := once + int(perSecond*lasted.Seconds())
	t.Logf("%s: %d in %s (limit %d)", what, have, lasted.Round(100*time.Millisecond), limit)
	if have > limit {
		t.Errorf("%d %s in %s, want at most %d", have, what, lasted.Round(100*time.Millisecond), limit)
	}
}

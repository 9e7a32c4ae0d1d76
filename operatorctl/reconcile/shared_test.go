// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/test/require"
)

// Database names are the same in every cloud: a second cloud on a server would take over, and might drop, those of the first.
func TestSecondCloudOnADatabaseServerIsRefused(t *testing.T) {
	first, second := newCloud(), newCloud()
	first.CreationTimestamp = metav1.NewTime(b0)
	second.CreationTimestamp = metav1.NewTime(b0.Add(time.Hour))
	second.Namespace, second.UID = "other", "another"
	b := newBench(t, interceptor.Funcs{}, second, first)
	req := request()
	req.Namespace = "other"
	_, err := b.r.Reconcile(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), "onecloud/default") || !strings.Contains(err.Error(), "db.example.com") {
		t.Fatalf("%v", err)
	}
	if err := b.api.Get(t.Context(), types.NamespacedName{Namespace: "other", Name: "default-credentials"}, &corev1.Secret{}); err == nil {
		t.Error("something was made for it")
	}
	b.reconcile() // the first one is not affected
	require.NoError(t, b.api.Delete(t.Context(), first))
	cr := b.cloud()
	cr.Finalizers = nil
	require.NoError(t, b.api.Update(t.Context(), cr))
	if _, err := b.r.Reconcile(t.Context(), req); err != nil {
		t.Errorf("after the first one is gone: %v", err)
	}
}

// A clock that was ahead when the first cloud was created does not make the second one its predecessor.
func TestFirstCloudOfAClockAhead(t *testing.T) {
	first, second := newCloud(), newCloud()
	first.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(b0.Add(8*time.Hour)), metav1.NewTime(b0)
	second.Namespace, second.UID = "other", "another"
	b := newBench(t, interceptor.Funcs{}, first)
	b.reconcile()
	require.NoError(t, b.api.Create(t.Context(), second))
	b.reconcile() // fails if it is refused
	req := request()
	req.Namespace = "other"
	if _, err := b.r.Reconcile(t.Context(), req); err == nil || !strings.Contains(err.Error(), "onecloud/default") {
		t.Fatal(err)
	}
}

// The same applies to ClickHouse; a name without a dot is a different server in another namespace.
func TestSecondCloudOnAClickHouseServerIsRefused(t *testing.T) {
	for host, shared := range map[string]bool{"ch.example.com": true, "columns": false} {
		first, second := newCloud(), newCloud()
		first.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(b0), metav1.NewTime(b0.Add(time.Hour))
		second.Namespace, second.UID = "other", "another"
		second.Spec.MySQL.Host = "another.example.com"
		first.Spec.Clickhouse.Host, second.Spec.Clickhouse.Host, second.Spec.Clickhouse.Port = host, host, 9000
		b := newBench(t, interceptor.Funcs{}, second, first)
		req := request()
		req.Namespace = "other"
		if _, err := b.r.Reconcile(t.Context(), req); (err != nil && strings.Contains(err.Error(), "spec.clickhouse")) != shared {
			t.Errorf("%s: %v", host, err)
		}
	}
}

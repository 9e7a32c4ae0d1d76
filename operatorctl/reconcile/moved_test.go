// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// The record of a database in ClickHouse counts for the server that it was made on: on another one, ownership is checked again.
func TestRecordOfAnotherClickHouseServer(t *testing.T) {
	at := func(host string) map[string]string {
		return map[string]string{"region": "region0", "clickhouse.host": host, "clickhouse.port": "9000"}
	}
	for _, c := range []struct {
		about  string
		fixed  map[string]string
		server v1alpha1.DatabaseServer
		counts bool
	}{
		{"the same server", at("one"), v1alpha1.DatabaseServer{Host: "one"}, true},
		{"the same server, with its port", at("one"), v1alpha1.DatabaseServer{Host: "one", Port: 9000}, true},
		{"no server is known", nil, v1alpha1.DatabaseServer{Host: "one"}, true},
		{"another server", at("one"), v1alpha1.DatabaseServer{Host: "two"}, false},
		{"another port", at("one"), v1alpha1.DatabaseServer{Host: "one", Port: 9001}, false},
		{"no server any more", at("one"), v1alpha1.DatabaseServer{}, false},
		{"no server before", map[string]string{"region": "region0"}, v1alpha1.DatabaseServer{Host: "two"}, false},
	} {
		cr := newCloud()
		cr.Spec.Clickhouse, cr.Status.Fixed = c.server, c.fixed
		cr.Status.Effects = map[string]string{"clickhouse/glance": "x", "database/glance": "y"}
		if on := onRecord(cr); (on["clickhouse/glance"] != "") != c.counts || on["database/glance"] != "y" {
			t.Errorf("%s: %v", c.about, on)
		}
	}
}

// A cloud that leaves a ClickHouse server forgets what it made there in the same write in which it forgets the server.
func TestLeavingAClickHouseServer(t *testing.T) {
	cr := newCloud()
	cr.Spec.Clickhouse.Host = "one.example.com"
	b := newBench(t, interceptor.Funcs{}, cr)
	b.reconcile()
	made := b.cloud()
	if made.Status.Effects == nil {
		made.Status.Effects = map[string]string{}
	}
	made.Status.Effects["clickhouse/glance"] = "x"
	require.NoError(t, b.api.Status().Update(t.Context(), made))
	b.reconcile()
	if s := b.cloud().Status; s.Effects["clickhouse/glance"] != "x" || s.Fixed["clickhouse.host"] != "one.example.com" {
		t.Fatalf("the record of the present server is gone: %v", s.Effects)
	}
	for _, host := range []string{"", "two.example.com"} {
		now := b.cloud()
		now.Spec.Clickhouse.Host = host
		require.NoError(t, b.api.Update(t.Context(), now))
		b.reconcile()
		if s := b.cloud().Status; s.Effects["clickhouse/glance"] != "" || s.Fixed["clickhouse.host"] != host {
			t.Errorf("with server %q: %v, %v", host, s.Effects, s.Fixed)
		}
	}
}

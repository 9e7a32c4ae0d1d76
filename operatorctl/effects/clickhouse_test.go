// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/clickhouse"
	"yunion.io/x/ocadm/operatorctl/component"
	fakeclickhouse "yunion.io/x/ocadm/test/fakecloud/clickhouse"
	"yunion.io/x/ocadm/test/require"
)

func TestClickHouseIsPlannedWhereItIsUsed(t *testing.T) {
	cluster, order := everything()
	planned := func(server v1alpha1.DatabaseServer, password string) map[string]string {
		cluster.Spec = &component.Spec{Clickhouse: server}
		out := map[string]string{}
		for _, e := range Plan(Input{Cluster: cluster, Order: order, Credentials: component.Credentials{component.ClickHousePassword("glance"): password}}) {
			if strings.HasPrefix(e.Key, "clickhouse/") {
				if out[e.Key] = e.Hash; e.Target != ClickHouse || e.Stage != Before || len(e.Needs) > 0 {
					t.Errorf("%+v", e)
				}
			}
		}
		return out
	}
	if got := planned(v1alpha1.DatabaseServer{Username: "u", Password: "p"}, "x"); len(got) > 0 {
		t.Errorf("without a server: %v", got)
	}
	first := planned(v1alpha1.DatabaseServer{Host: "ch"}, "x")
	for _, name := range []string{"keystone", "region", "glance", "meter", "extdb"} {
		if first["clickhouse/"+name] == "" {
			t.Errorf("nothing is planned for %s", name)
		}
	}
	// It uses region's.
	if _, there := first["clickhouse/scheduledtask"]; there {
		t.Error("a component without a database of its own is to get one")
	}
	for what, again := range map[string]map[string]string{
		"the administrator's": planned(v1alpha1.DatabaseServer{Host: "ch", Username: "u", Password: "p"}, "x"),
		"the account's":       planned(v1alpha1.DatabaseServer{Host: "ch"}, "y"),
	} {
		if changed := again["clickhouse/glance"] != first["clickhouse/glance"]; changed != (what == "the account's") {
			t.Errorf("another password of %s: changed %v", what, changed)
		}
	}
}

// The password may be in a user's Secret and be rotated there. The error about a wrong one does not contain it.
func TestRotatedClickHousePasswordIsReloaded(t *testing.T) {
	s := fakeclickhouse.Start(t)
	password, reads := s.AdminPassword, 0
	a := access(t, 30357)
	a.ClickHouse = v1alpha1.DatabaseServer{Host: s.Addr().IP.String(), Port: int32(s.Addr().Port), PasswordSecretRef: &v1alpha1.SecretKeyRef{Name: "ch", Key: "password"}}
	a.Secret = func(context.Context, string, string) (string, error) { reads++; return password, nil }
	conns := NewConnections(Options{})
	defer conns.Close()
	clients := conns.For(a)
	for range 3 {
		if _, _, err := clients.ClickHouse(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 1 || s.Logins() != 1 {
		t.Errorf("the Secret was read %d times in one pass, and %d connections made", reads, s.Logins())
	}
	password = "wrong-Pa55word"
	clients = conns.For(a)
	_, _, err := clients.ClickHouse(t.Context())
	if !clients.Denied(err) || clients.Down(err) || strings.Contains(err.Error(), password) {
		t.Errorf("with another password: %v", err)
	}
	gone := errors.New("not found")
	a.Secret = func(context.Context, string, string) (string, error) { return "", gone }
	if _, _, err := conns.For(a).ClickHouse(t.Context()); !errors.Is(err, gone) {
		t.Errorf("without the Secret: %v", err)
	}
	s.Pause()
	a.Secret = func(context.Context, string, string) (string, error) { return s.AdminPassword, nil }
	clients = conns.For(a)
	if _, _, err := clients.ClickHouse(t.Context()); !clients.Down(err) || clickhouse.ClassOf(err) != clickhouse.Unreachable {
		t.Errorf("a server that is gone: %v", err)
	}
	if slices.ContainsFunc(s.Statements(), func(q string) bool { return strings.Contains(q, s.AdminPassword) }) {
		t.Error("a password was sent in a statement")
	}
}

// An existing database on the server is neither used nor changed before a user allows it; a recorded one is corrected.
func TestForeignClickHouseDatabase(t *testing.T) {
	s := fakeclickhouse.Start(t)
	byHand := strings.Repeat("0", 64)
	made := func(statements ...string) {
		for _, q := range statements {
			if _, x := s.Run(fakeclickhouse.AdminUser, q); x != nil {
				t.Fatal(x)
			}
		}
	}
	made("CREATE DATABASE IF NOT EXISTS `glance`", "CREATE USER `glance` IDENTIFIED WITH sha256_hash BY '"+byHand+"'")
	cluster, order := everything()
	cluster.Namespace, cluster.Name, cluster.Spec = "onecloud", "default", &component.Spec{Clickhouse: v1alpha1.DatabaseServer{Host: "ch"}}
	a := access(t, 30357)
	a.ClickHouse = v1alpha1.DatabaseServer{Host: s.Addr().IP.String(), Port: int32(s.Addr().Port), Password: s.AdminPassword}
	conns := NewConnections(Options{})
	defer conns.Close()
	do := func(recorded map[string]string, adopt string) error {
		in := Input{Cluster: cluster, Order: order, Credentials: component.Credentials{component.ClickHousePassword("glance"): "ours"}, Recorded: recorded, Adopt: ParseAdoption(adopt)}
		plan := Plan(in)
		i := slices.IndexFunc(plan, func(e Effect) bool { return e.Key == "clickhouse/glance" })
		_, err := plan[i].Do(t.Context(), conns.For(a))
		return err
	}
	touched := func() bool {
		return slices.ContainsFunc(s.Statements(), func(q string) bool {
			return strings.HasPrefix(q, "ALTER USER") || strings.HasPrefix(q, "GRANT") || strings.HasPrefix(q, "DROP")
		})
	}
	err := do(nil, "")
	if err == nil || !strings.Contains(err.Error(), "kubectl -n onecloud annotate --overwrite oc default "+v1alpha1.AnnotationAdoptDatabases+"=glance") {
		t.Fatalf("got %v", err)
	}
	require.NoError(t, DropClickHouse(t.Context(), conns.For(a), cluster.Components["glance"].Component, component.Credentials{component.ClickHousePassword("glance"): "ours"}))
	if touched() {
		t.Fatalf("what is not ours was changed: %q", s.Statements())
	}
	if err := do(nil, "glance"); err != nil {
		t.Fatalf("adopted: %v", err)
	}
	if err := do(nil, ""); err != nil {
		t.Errorf("once it takes our password: %v", err)
	}
	made("ALTER USER `glance` IDENTIFIED WITH sha256_hash BY '" + byHand + "'")
	if err := do(map[string]string{"clickhouse/glance": "x"}, ""); err != nil {
		t.Errorf("on record: %v", err)
	}
	require.NoError(t, DropClickHouse(t.Context(), conns.For(a), cluster.Components["glance"].Component, component.Credentials{component.ClickHousePassword("glance"): "ours"}))
	if rows, _ := s.Run(fakeclickhouse.AdminUser, "SELECT name FROM system.databases"); slices.ContainsFunc(rows, func(r []string) bool { return r[0] == "glance" }) {
		t.Error("the database of the cloud was not dropped")
	}
}

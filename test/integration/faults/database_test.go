// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/instant"
	"yunion.io/x/ocadm/test/require"
)

// dbUser is an administrator without the privileges that would let it write to a read-only or full server.
const dbUser, dbPassword = "cloudadmin", "Cloudadmin-password"

func (w *faulty) administrator(t testing.TB) {
	t.Helper()
	w.sql(t, "CREATE USER ?@'%' IDENTIFIED BY ?", dbUser, dbPassword)
	w.sql(t, "GRANT ALTER, ALTER ROUTINE, CREATE, CREATE ROUTINE, CREATE TEMPORARY TABLES, CREATE USER, CREATE VIEW, DELETE, DELETE HISTORY, DROP, EVENT, "+
		"EXECUTE, INDEX, INSERT, LOCK TABLES, REFERENCES, SELECT, SHOW VIEW, TRIGGER, UPDATE ON *.* TO ?@'%' WITH GRANT OPTION", dbUser)
}

func (w *faulty) withAdministrator() *v1alpha1.OnecloudCluster {
	cr := w.minimal()
	cr.Spec.MySQL.Username, cr.Spec.MySQL.Password = dbUser, dbPassword
	return cr
}

// TestDatabaseOnInstall checks that an unusable database holds up only the components that need it, with a reason. The operator tries it at most a
// few times a second, and the installation continues when it becomes usable.
func TestDatabaseOnInstall(t *testing.T) {
	refused := func(context.Context) error { return instant.Refused("database") }
	for _, fault := range []struct {
		name         string
		begin, end   func(*testing.T, *faulty, *operator)
		says         string
		cr           func(*faulty) *v1alpha1.OnecloudCluster
		dials, calls float64 // each second
	}{
		{
			name:  "is down",
			begin: func(_ *testing.T, _ *faulty, o *operator) { o.breaks(nil, refused, nil) },
			end:   func(_ *testing.T, _ *faulty, o *operator) { o.heals() },
			says:  "connection refused", dials: 5, calls: 1,
		},
		{
			name:  "is read-only",
			begin: func(t *testing.T, w *faulty, _ *operator) { w.sql(t, "SET GLOBAL read_only = ON") },
			end:   func(t *testing.T, w *faulty, _ *operator) { w.sql(t, "SET GLOBAL read_only = OFF") },
			says:  "read-only", dials: 5, calls: 20,
		},
		{
			name: "refuses the password",
			cr: func(w *faulty) *v1alpha1.OnecloudCluster {
				cr := w.withAdministrator()
				cr.Spec.MySQL.Password = "another"
				return cr
			},
			begin: func(*testing.T, *faulty, *operator) {},
			end: func(t *testing.T, w *faulty, _ *operator) {
				w.In(t).Edit(`{"spec":{"mysql":{"password":"` + dbPassword + `"}}}`)
			},
			says: "Access denied for user", dials: 5, calls: 5,
		},
		{
			name: "takes no more connections",
			begin: func(t *testing.T, w *faulty, _ *operator) {
				w.sql(t, "ALTER USER ?@'%' WITH MAX_USER_CONNECTIONS 1", dbUser)
				w.hold(t)
			},
			end: func(t *testing.T, w *faulty, _ *operator) {
				w.sql(t, "ALTER USER ?@'%' WITH MAX_USER_CONNECTIONS 0", dbUser)
			},
			says: "max_user_connections", dials: 5, calls: 5,
		},
	} {
		t.Run(fault.name, func(t *testing.T) {
			w := use(t)
			w.administrator(t)
			t.Cleanup(func() { w.sql(t, "SET GLOBAL read_only = OFF") })
			o := w.run(t)
			cr := w.withAdministrator()
			if fault.cr != nil {
				cr = fault.cr(w)
			}
			fault.begin(t, w, o)
			before, began := o.has(), time.Now()
			w.In(t).Create(cr)
			for _, c := range []string{"keystone", "yunionconf"} {
				w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
					s := env.Component(cr, c)
					return strings.Contains(s.Message, fault.says) && (s.State == v1alpha1.Waiting || s.State == v1alpha1.Degraded), env.States(cr)
				})
			}
			for _, c := range []string{"web"} {
				w.untilSays(t, o, c, v1alpha1.Available)
			}
			time.Sleep(lasting(2*time.Second, time.Minute))
			asked, lasted := o.has().minus(before), time.Since(began)
			atMost(t, "connections", asked.dials, 16, fault.dials, lasted)
			atMost(t, "statements", asked.sql, 40, fault.calls, lasted)
			atMost(t, "requests to the API server", asked.requests, 120, 4, lasted)
			fault.end(t, w, o)
			w.untilReady(t, o, -1)
			w.saysNothingOf(t, dbPassword)
		})
	}
}

// hold opens a connection of the administrator until the test's end.
func (w *faulty) hold(t *testing.T) {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/", dbUser, dbPassword, w.DB.Addr()))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	if _, err := db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// saysNothingOf checks that a secret is not in what users read.
func (w *faulty) saysNothingOf(t testing.TB, secret string) {
	t.Helper()
	cr := w.In(t).TryCloud()
	if text := fmt.Sprint(cr.Status); strings.Contains(text, secret) {
		t.Error("the status contains a secret")
	}
}

// TestDatabaseOfRunningCloud checks that the audit detects what happens to the database of a running cloud, reports it, and repairs it if possible.
// The workloads are not changed.
func TestDatabaseOfRunningCloud(t *testing.T) {
	w := use(t)
	w.administrator(t)
	o := w.install(t, w.withAdministrator(), audits(time.Second))
	generations := w.generations(t)
	credentials := w.secrets(t)
	password := func(name string) string { return credentials["default-credentials/"+name] }

	t.Run("goes away", func(t *testing.T) {
		o.breaks(nil, func(context.Context) error { return instant.Refused("database") }, nil)
		w.untilSays(t, o, "glance", v1alpha1.Waiting, "database/glance", "connection refused")
		w.drift(t, "default-web") // the others are maintained meanwhile
		w.untilHealed(t, o, "default-web")
		w.untilAre(t, o, v1alpha1.Available, "web", "etcd", "host-deployer")
		o.heals()
		w.untilReady(t, o, -1)
	})
	t.Run("hangs", func(t *testing.T) {
		end, dialled := make(chan struct{}), make(chan struct{}, 100)
		release := sync.OnceFunc(func() { close(end) })
		defer release()
		o.breaks(nil, func(context.Context) error {
			dialled <- struct{}{}
			<-end // whatever its deadline: an operator that waited for it would heal nothing
			return instant.Refused("database")
		}, nil)
		<-dialled
		for range 2 { // and again
			w.drift(t, "default-web")
			w.untilHealed(t, o, "default-web")
		}
		release()
		o.heals()
		w.untilReady(t, o, -1)
	})
	t.Run("loses a schema", func(t *testing.T) {
		w.sql(t, "DROP DATABASE glance")
		w.untilTold(t, o, "Repaired", "database/glance")
		w.untilReady(t, o, -1)
		if all, err := w.root.Databases(t.Context()); err != nil || !slices.Contains(all, "glance") {
			t.Errorf("databases %q, %v", all, err)
		}
	})
	t.Run("loses an account", func(t *testing.T) {
		w.sql(t, "DROP USER 'yunionconf'@'%', 'yunionconf'@'127.0.0.1', 'yunionconf'@'::1'")
		w.untilTold(t, o, "Repaired", "database/yunionconf")
		w.untilReady(t, o, -1)
		w.login(t, "yunionconf", password("yunionconf.database-password"))
	})
	t.Run("has another password", func(t *testing.T) {
		w.sql(t, "ALTER USER 'yunioncloud'@'127.0.0.1' IDENTIFIED BY 'edited-by-hand'")
		w.untilTold(t, o, "Repaired", "database/region")
		w.untilReady(t, o, -1)
		w.login(t, "yunioncloud", password("region.database-password"))
	})
	now := w.generations(t)
	delete(now, "web") // that is the one that was changed by hand
	delete(generations, "web")
	if !maps.Equal(now, generations) {
		t.Errorf("workloads were changed: %v, before %v", now, generations)
	}
}

func (w *faulty) login(t testing.TB, user, password string) {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/", user, password, w.DB.Addr()))
	require.NoError(t, err)
	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("logging in as %s: %v", user, err)
	}
}

// TestDatabasePasswordInSecret uses a Secret for the administrator's password that does not exist, then lacks the key, then is complete.
func TestDatabasePasswordInSecret(t *testing.T) {
	w := use(t)
	w.administrator(t)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = namespace, "database"
	t.Cleanup(func() { _ = client.IgnoreNotFound(w.Client.Delete(context.WithoutCancel(t.Context()), secret)) })
	cr := w.withAdministrator()
	cr.Spec.MySQL.Password, cr.Spec.MySQL.PasswordSecretRef = "", &v1alpha1.SecretKeyRef{Name: "database", Key: "password"}
	o := w.run(t, func(*operatorctl.Options) {})
	w.In(t).Create(cr)
	w.untilSays(t, o, "keystone", v1alpha1.Degraded, `secrets "database" not found`)
	w.untilSays(t, o, "web", v1alpha1.Available)
	secret.StringData = map[string]string{"other": "x"}
	require.NoError(t, w.Client.Create(t.Context(), secret))
	w.untilSays(t, o, "keystone", v1alpha1.Degraded, `Secret onecloud/database has no key "password"`)
	secret.StringData = map[string]string{"password": dbPassword}
	require.NoError(t, w.Client.Update(t.Context(), secret))
	w.untilReady(t, o, -1)
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/clickhouse"
	"yunion.io/x/ocadm/operatorctl"
	fakeclickhouse "yunion.io/x/ocadm/test/fakecloud/clickhouse"
	"yunion.io/x/ocadm/test/require"
)

// clickhouseEnv is an environment with a ClickHouse server, played by package test/fakecloud, and an operator that reaches it.
type clickhouseEnv struct {
	*faulty
	server *fakeclickhouse.Server
}

func withClickHouse(t *testing.T) *clickhouseEnv {
	return &clickhouseEnv{faulty: use(t), server: fakeclickhouse.Start(t)}
}

// direct bypasses, for ClickHouse, the dialer of the database, which counts and breaks connections.
func (c *clickhouseEnv) direct(o *operatorctl.Options) {
	usual, at := o.Dial, c.server.Addr().String()
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == at {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		return usual(ctx, network, address)
	}
}

func (c *clickhouseEnv) minimal() *v1alpha1.OnecloudCluster {
	cr := c.faulty.minimal()
	at := c.server.Addr()
	cr.Spec.Clickhouse = v1alpha1.DatabaseServer{Host: at.IP.String(), Port: int32(at.Port), Password: c.server.AdminPassword}
	return cr
}

// made returns the databases on the server that are not its own.
func (c *clickhouseEnv) made(t testing.TB) []string {
	t.Helper()
	rows, x := c.server.Run(fakeclickhouse.AdminUser, "SELECT name FROM system.databases")
	if x != nil {
		t.Fatal(x.Message)
	}
	var out []string
	for _, r := range rows[1:] {
		if !slices.Contains([]string{"system", "default", "INFORMATION_SCHEMA", "information_schema"}, r[0]) {
			out = append(out, r[0])
		}
	}
	return out
}

// by changes the server by hand.
func (c *clickhouseEnv) by(t testing.TB, statement string) {
	t.Helper()
	if _, x := c.server.Run(fakeclickhouse.AdminUser, statement); x != nil {
		t.Fatal(x.Message)
	}
}

// logins tries every account with the password that its component is configured with.
func (c *clickhouseEnv) logins(t testing.TB) {
	t.Helper()
	at := c.server.Addr()
	admin := clickhouse.Open(clickhouse.Config{Host: at.IP.String(), Port: at.Port, Password: c.server.AdminPassword})
	t.Cleanup(func() { _ = admin.Close() })
	passwords := c.secrets(t)
	for comp, account := range map[string]string{"keystone": "keystone", "region": "yunioncloud", "glance": "glance"} {
		acc := clickhouse.Account{User: account, Password: passwords["default-credentials/"+comp+".clickhouse-password"], Database: account}
		if err := admin.VerifyAccount(t.Context(), acc); err != nil {
			t.Errorf("%s: %v", comp, err)
		}
		var file corev1.Secret
		c.In(t).Get(&file, "default-"+comp+"-config")
		if dsn := fmt.Sprintf("clickhouse: tcp://%s?database=%s&", at, account); !strings.Contains(string(file.Data[comp+".conf"]), dsn) ||
			!strings.Contains(string(file.Data[comp+".conf"]), acc.Password) {
			t.Errorf("%s is not configured with %q and that password", comp, dsn)
		}
	}
}

// TestClickHouse checks that a cloud with a ClickHouse server gets databases and accounts there, and that changes to them are reported and repaired where possible.
func TestClickHouse(t *testing.T) {
	c := withClickHouse(t)
	c.server.Pause()
	cr := c.minimal()
	o := c.run(t, c.direct, audits(time.Second))
	c.In(t).Create(cr)
	// Keystone has a schema there, and nearly all components wait for keystone. The others are created.
	c.untilSays(t, o, "keystone", v1alpha1.Waiting, "clickhouse/keystone", "connection refused")
	c.untilSays(t, o, "web", v1alpha1.Available)
	require.NoError(t, c.server.Resume(t.Context()))
	c.untilReady(t, o, -1)
	if got := c.made(t); !slices.Equal(got, []string{"glance", "keystone", "yunioncloud"}) {
		t.Errorf("databases %q", got)
	}
	c.logins(t)
	generations := c.generations(t)

	t.Run("goes away", func(t *testing.T) {
		c.server.Pause()
		c.untilSays(t, o, "glance", v1alpha1.Waiting, "clickhouse/glance", "connection refused")
		c.are(t, v1alpha1.Available, "yunionconf", "web", "etcd", "host-deployer")
		require.NoError(t, c.server.Resume(t.Context()))
		c.untilReady(t, o, -1)
	})
	t.Run("loses a database", func(t *testing.T) {
		c.by(t, "DROP DATABASE IF EXISTS `glance`")
		c.untilTold(t, o, "Repaired", "clickhouse/glance")
		if got := c.made(t); !slices.Contains(got, "glance") {
			t.Errorf("databases %q", got)
		}
	})
	t.Run("loses an account", func(t *testing.T) {
		c.by(t, "DROP USER IF EXISTS `keystone`")
		c.untilTold(t, o, "Repaired", "clickhouse/keystone")
		c.logins(t)
	})
	t.Run("has another password, and a grant less", func(t *testing.T) {
		c.by(t, "ALTER USER `yunioncloud` IDENTIFIED WITH sha256_hash BY '"+strings.Repeat("0", 64)+"'")
		c.by(t, "REVOKE INSERT ON `yunioncloud`.* FROM `yunioncloud`")
		c.untilTold(t, o, "Repaired", "clickhouse/region")
		c.logins(t)
	})
	t.Run("refuses the administrator", func(t *testing.T) {
		const next = "Another-admin-Pa55word"
		c.server.SetAdminPassword(next)
		c.server.Pause() // open connections stay open
		require.NoError(t, c.server.Resume(t.Context()))
		c.untilSays(t, o, "glance", v1alpha1.Degraded, "clickhouse/glance", "Authentication failed")
		c.are(t, v1alpha1.Available, "yunionconf", "web", "etcd")
		before := c.server.Logins()
		time.Sleep(lasting(2*time.Second, time.Minute))
		if n := c.server.Logins() - before; n > 10 {
			t.Errorf("%d attempts in two seconds", n)
		}
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name, secret.StringData = namespace, "columns", map[string]string{"password": next}
		require.NoError(t, c.Client.Create(t.Context(), secret))
		t.Cleanup(func() { _ = client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(t.Context()), secret)) })
		c.In(t).Edit(`{"spec":{"clickhouse":{"password":null,"passwordSecretRef":{"name":"columns","key":"password"}}}}`)
		c.untilReady(t, o, -1)
		for _, password := range []string{next, cr.Spec.Clickhouse.Password} {
			c.saysNothingOf(t, password)
			if strings.Contains(o.log.String(), password) {
				t.Error("the operator's log contains a secret")
			}
		}
	})
	if now := c.generations(t); !maps.Equal(now, generations) {
		t.Errorf("workloads were changed: %v, before %v", now, generations)
	}
	for name, secret := range c.secrets(t) {
		if !strings.HasSuffix(name, ".clickhouse-password") {
			continue
		}
		for _, s := range append(c.server.Statements(), o.log.String(), fmt.Sprint(c.In(t).TryCloud().Status)) {
			if strings.Contains(s, secret) {
				t.Errorf("%s is in a statement, a log or the status", name)
			}
		}
	}
	t.Run("keeps all when the cloud goes", func(t *testing.T) {
		c.remove(t)
		c.untilGone(t, o)
		if got := c.made(t); len(got) != 3 {
			t.Errorf("databases %q", got)
		}
	})
	t.Run("loses all when the cloud is to take its data along", func(t *testing.T) {
		again := c.minimal()
		again.Spec.DeletionPolicy = v1alpha1.Delete
		c.In(t).Create(again)
		c.untilReady(t, o, -1)
		c.logins(t)
		c.remove(t)
		c.untilGone(t, o)
		if got := c.made(t); len(got) != 0 {
			t.Errorf("databases %q are left", got)
		}
		if rows, _ := c.server.Run(fakeclickhouse.AdminUser, "SELECT name FROM system.users"); len(rows) != 2 {
			t.Errorf("accounts %q are left", rows)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// access returns the access to a cloud whose identity service listens on the given port.
func access(t *testing.T, port int32) Access {
	t.Helper()
	ca, err := pki.NewCA(time.Now(), "test", nil)
	require.NoError(t, err)
	return Access{
		Cluster: component.Cluster{Name: "default", Namespace: "onecloud", Components: map[string]component.Resolved{identityName: {
			Enabled: true, NodePorts: map[string]int32{"admin": port},
			Component: component.Component{Name: identityName, Service: &component.Service{Ports: []component.Port{{Name: "admin", Port: 30357}}}},
		}}},
		Credentials: component.Credentials{component.BootstrapPassword: "x"}, CAPEM: ca.CertPEM(),
	}
}

// The CR sets the port, which may change while the operator runs.
func TestIdentityIsReachedAtItsPresentPort(t *testing.T) {
	var dialled string
	conns := NewConnections(Options{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = address
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}})
	defer conns.Close()
	a := access(t, 30357)
	for _, port := range []int32{30357, 31357} {
		a.Cluster.Components[identityName].NodePorts["admin"] = port
		id, err := conns.For(a).Identity(t.Context())
		require.NoError(t, err)
		if _, err := id.ListServices(t.Context()); err == nil {
			t.Fatal("a refused connection answers")
		}
		if _, got, _ := net.SplitHostPort(dialled); got != map[int32]string{30357: "30357", 31357: "31357"}[port] {
			t.Errorf("dialled %s, want port %d", dialled, port)
		}
	}
}

// The administrator's password may be in a user's Secret and be rotated there. The operator must not keep the old one.
func TestRotatedDatabasePasswordIsReloaded(t *testing.T) {
	db := mariadb.Require(t, mariadb.Options{})
	password, reads := db.RootPassword, 0
	a := access(t, 30357)
	a.MySQL = v1alpha1.DatabaseServer{Host: db.Host, Port: int32(db.Port), Username: "root", PasswordSecretRef: &v1alpha1.SecretKeyRef{Name: "db", Key: "password"}}
	a.Secret = func(context.Context, string, string) (string, error) { reads++; return password, nil }
	conns := NewConnections(Options{})
	defer conns.Close()
	pass := conns.For(a)
	for range 3 {
		if _, err := pass.MySQL(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 1 {
		t.Errorf("the Secret was read %d times in one pass", reads)
	}
	password = "wrong"
	_, err := conns.For(a).MySQL(t.Context())
	if mysql.ClassOf(err) != mysql.AccessDenied {
		t.Errorf("the new password is not used: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), db.RootPassword) {
		t.Error("the error contains a password")
	}
	password = db.RootPassword
	if _, err := conns.For(a).MySQL(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server may demand that passwords have a sign, by the defaults of its policy. A probe has tried one, so the passwords of the services need one, too.
func TestGeneratedPasswordsPassPolicies(t *testing.T) {
	db := mariadb.Require(t, mariadb.Options{})
	policy := "INSTALL SONAME 'simple_password_check'"
	if db.MySQL {
		policy = "INSTALL COMPONENT 'file://component_validate_password'"
	}
	if _, err := db.Execute(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	a, err := mysql.Open(t.Context(), mysql.Config{Host: db.Host, Port: db.Port, User: "root", Password: db.RootPassword, Owner: mysql.Owner{ID: "a"}})
	require.NoError(t, err)
	defer a.Close()
	password, err := secrets.Password(24)
	require.NoError(t, err)
	if _, err := a.EnsureAccount(t.Context(), nil, mysql.Account{User: "glance", Password: password, Database: "glance"}); err != nil {
		t.Error(err)
	}
}

// A database that hangs must not block requests to the identity service.
func TestHangingDatabaseDelaysNothingElse(t *testing.T) {
	dialling, release := make(chan struct{}), make(chan struct{})
	conns := NewConnections(Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(dialling)
		<-release
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}})
	a := access(t, 30357)
	a.MySQL = v1alpha1.DatabaseServer{Host: "db", Username: "root", Password: "x"}
	clients := conns.For(a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = clients.MySQL(t.Context()) // it fails, which does not matter here
	}()
	<-dialling
	asked := make(chan error, 1)
	go func() {
		_, err := clients.Identity(t.Context())
		asked <- err
	}()
	select {
	case err := <-asked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the identity service is not asked while the database hangs")
	}
	close(release)
	<-done
}

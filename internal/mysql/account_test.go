// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// The password of a service does not expire, whatever the server's policy is.
func TestPasswordDoesNotExpire(t *testing.T) {
	a := open(t, root(t))
	acc := Account{User: "lasting", Password: "x", Database: "lasting"}
	run(t, a, "SET GLOBAL default_password_lifetime = 1", "FLUSH PRIVILEGES")
	defer run(t, a, "SET GLOBAL default_password_lifetime = 0")
	old := "UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '$.password_last_changed', 1) WHERE User = 'lasting'"
	if server.MySQL {
		old = "UPDATE mysql.user SET password_last_changed = '2001-01-01' WHERE User = 'lasting'"
	}
	for range 2 { // a new one, and one with another password
		if _, err := a.EnsureAccount(t.Context(), nil, acc); err != nil {
			t.Fatal(err)
		}
		run(t, a, old, "FLUSH PRIVILEGES")
		if err := a.VerifyAccount(t.Context(), Account{User: acc.User, Password: acc.Password}); err != nil {
			t.Error(err)
		}
		acc.Password = "y"
		run(t, a, "ALTER USER lasting@`127.0.0.1` PASSWORD EXPIRE DEFAULT")
	}
}

// The accounts of a server can be copied with its roles.
func TestAccountsWithRoles(t *testing.T) {
	a := open(t, root(t))
	if server.MySQL {
		t.Skip("only the embedded database is copied like this")
	}
	run(t, a, "CREATE DATABASE shop", "CREATE ROLE reader", "GRANT SELECT ON shop.* TO reader", "CREATE USER ann@`%` IDENTIFIED BY 'x'", "GRANT reader TO ann@`%`",
		"SET DEFAULT ROLE reader FOR ann@`%`", "GRANT SHOW DATABASES ON *.* TO PUBLIC")
	defer run(t, a, "DROP ROLE reader", "DELETE FROM mysql.global_priv WHERE User = 'PUBLIC'", "FLUSH PRIVILEGES")
	before, err := a.AccountStatements(t.Context())
	require.NoError(t, err)
	run(t, a, "DROP ROLE reader", "DROP USER ann@`%`", "REVOKE SHOW DATABASES ON *.* FROM PUBLIC")
	for range 2 {
		require.NoError(t, a.MakeAccounts(t.Context(), before))
	}
	if after, err := a.AccountStatements(t.Context()); err != nil || !slices.Equal(before, after) {
		t.Errorf("%v\n%v %v", before, after, err)
	}
	if err := a.VerifyAccount(t.Context(), Account{User: "ann", Password: "x", Database: "shop"}); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// owned opens an Admin for a cloud on the shared server.
func owned(t *testing.T, id string, adopt Adoption) *Admin {
	cfg := root(t)
	cfg.Owner, cfg.Adopt = Owner{ID: id, Namespace: "ns-" + id, Name: "cloud-" + id}, adopt
	return open(t, cfg)
}

// ensureAll does what the operator does: one snapshot, one claim, then each database and account.
func ensureAll(t *testing.T, a *Admin, wants ...Want) error {
	t.Helper()
	snap, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Claim(t.Context(), snap, wants...))
	var errs []error
	for _, w := range wants {
		for _, d := range w.Databases {
			_, err := a.EnsureDatabase(t.Context(), snap, d)
			w.Account.Database = d
			if err == nil {
				_, err = a.EnsureAccount(t.Context(), snap, w.Account)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func want(name, password string) Want {
	return Want{Account: Account{User: name, Password: password}, Databases: []string{name}}
}

// What exists without a marker is left alone: not used, given a password, granted on, or dropped.
func TestForeignIsLeftAlone(t *testing.T) {
	hand := open(t, root(t))
	run(t, hand, "CREATE DATABASE own_a", "CREATE TABLE own_a.t (id INT)", "CREATE USER own_a@`%` IDENTIFIED BY 'by hand'",
		"GRANT ALL ON `own\\_a`.* TO own_a@`%`", "CREATE DATABASE own_b", "CREATE USER own_c@`%` IDENTIFIED BY 'by hand'")
	a := owned(t, "one", Adoption{})
	wants := []Want{want("own_a", "made"), want("own_b", "made"), want("own_c", "made"), want("own_new", "made")}
	err := ensureAll(t, a, wants...)
	if ClassOf(err) != Foreign {
		t.Fatalf("got %v", err)
	}
	if e, ok := errors.AsType[*NotOurs](err); !ok || !slices.Equal(e.Names, []string{"own_a", "own_b", "own_c"}) || e.Owner.ID != "" {
		t.Errorf("got %+v", e)
	}
	if err := hand.VerifyAccount(t.Context(), Account{User: "own_a", Password: "by hand", Database: "own_a"}); err != nil {
		t.Errorf("the account made by hand has changed: %v", err)
	}
	if err := hand.VerifyAccount(t.Context(), Account{User: "own_c", Password: "by hand"}); err != nil {
		t.Errorf("the account made by hand has changed: %v", err)
	}
	databases, accounts, err := a.Owned(t.Context())
	if err != nil || !slices.Equal(databases, []string{"own_new"}) || !slices.Equal(accounts, []string{"own_new"}) {
		t.Errorf("owned: %v, %v, %v", databases, accounts, err)
	}
	require.NoError(t, a.DropOwned(t.Context()))
	names, err := a.Databases(t.Context())
	if err != nil || !slices.Contains(names, "own_a") || !slices.Contains(names, "own_b") || slices.Contains(names, "own_new") {
		t.Errorf("left: %v, %v", names, err)
	}
	// On request, it adopts what was named, and nothing else.
	a = owned(t, "one", Adoption{Names: []string{"own_a"}})
	require.NoError(t, ensureAll(t, a, wants[0]))
	if err := ensureAll(t, a, wants[1]); ClassOf(err) != Foreign {
		t.Errorf("another than the one named: %v", err)
	}
	if err := hand.VerifyAccount(t.Context(), Account{User: "own_a", Password: "made", Database: "own_a"}); err != nil {
		t.Errorf("adopted: %v", err)
	}
	// Once marked, no request is needed.
	if err := ensureAll(t, owned(t, "one", Adoption{}), wants[0]); err != nil {
		t.Error(err)
	}
}

// An account is recognized although a server pads its name with spaces.
func TestForeignIsLeftAloneByName(t *testing.T) {
	a := open(t, root(t))
	run(t, a, "SET GLOBAL sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'")
	defer run(t, a, "SET GLOBAL sql_mode = DEFAULT")
	t.Run("padded", TestForeignIsLeftAlone)
}

// Two clouds on one server do not take each other's databases, even if they know each other's passwords.
func TestOtherCloudIsRefused(t *testing.T) {
	w := want("own_a", "same password")
	first := owned(t, "one", Adoption{})
	require.NoError(t, ensureAll(t, first, w))
	second := owned(t, "two", Adoption{Names: []string{"own_a"}})
	err := ensureAll(t, second, w)
	if ClassOf(err) != Foreign || !strings.Contains(err.Error(), "ns-one/cloud-one/one") {
		t.Fatalf("got %v", err)
	}
	require.NoError(t, second.DropOwned(t.Context()))
	if err := ensureAll(t, first, w); err != nil {
		t.Errorf("the first cloud: %v", err)
	}
	// A user who knows that the other cloud is gone may allow it.
	second = owned(t, "two", Adoption{From: []string{"ns-one/cloud-one/one"}})
	if err := ensureAll(t, second, w); err != nil {
		t.Error(err)
	}
	if err := ensureAll(t, first, w); ClassOf(err) != Foreign || !strings.Contains(err.Error(), "ns-two/cloud-two/two") {
		t.Errorf("the first cloud, afterwards: %v", err)
	}
}

// What an earlier release created, or was adopted with its password, belongs to the cloud: its own password works.
func TestOwnPasswordProves(t *testing.T) {
	hand := open(t, root(t))
	run(t, hand, "CREATE DATABASE own_a", "CREATE DATABASE own_more", "CREATE USER own_a@`%` IDENTIFIED BY 'ours'", "GRANT ALL ON `own\\_a`.* TO own_a@`%`")
	a := owned(t, "one", Adoption{})
	w := want("own_a", "ours")
	// The login does not prove a database that this account may not use.
	both := w
	both.Databases = []string{"own_a", "own_more"}
	if err := ensureAll(t, a, both); ClassOf(err) != Foreign {
		t.Errorf("got %v", err)
	}
	if databases, accounts, _ := a.Owned(t.Context()); len(databases)+len(accounts) > 0 {
		t.Errorf("claimed %v, %v", databases, accounts)
	}
	require.NoError(t, ensureAll(t, a, w))
	run(t, hand, "DROP DATABASE own_a", "DROP USER own_a@`%`")
	if err := ensureAll(t, a, w); err != nil {
		t.Errorf("what is marked is made again: %v", err)
	}
}

// Without an owner nothing is created, changed or dropped.
func TestNoOwner(t *testing.T) {
	cfg := root(t)
	cfg.Owner = Owner{}
	a := open(t, cfg)
	if _, err := a.EnsureDatabase(t.Context(), nil, "own_x"); ClassOf(err) != Refused {
		t.Errorf("creating: %v", err)
	}
	if err := a.DropOwned(t.Context()); ClassOf(err) != Refused {
		t.Errorf("dropping: %v", err)
	}
}

// One statement claims everything for a cloud.
func TestClaimIsOneStatement(t *testing.T) {
	a, verbs := counted(t)
	snap, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	clear(verbs)
	require.NoError(t, a.Claim(t.Context(), snap, want("own_a", "x"), want("own_b", "x"), want("own_c", "x")))
	if got := writes(verbs); !slices.Equal(got, []string{"CREATE DATABASE 1", "CREATE TABLE 1", "INSERT 1"}) || verbs["SELECT"] > 0 {
		t.Errorf("sent %v", verbs)
	}
}

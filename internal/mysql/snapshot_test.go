// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// One snapshot is enough for everything that is created or exists already.
func TestSnapshotServesAll(t *testing.T) {
	a, verbs := counted(t)
	var accounts []Account
	for i := range 5 {
		name := fmt.Sprintf("snap_%d", i)
		accounts = append(accounts, Account{User: name, Password: "pw-" + name, Database: name})
	}
	accounts = append(accounts, Account{User: "snap_0", Password: "pw-snap_0", Database: "snap_more"}) // a second database of an account
	ensure := func() (changed int) {
		t.Helper()
		snap, err := a.Snapshot(t.Context())
		require.NoError(t, err)
		for _, acc := range accounts {
			made, err := a.EnsureDatabase(t.Context(), snap, acc.Database)
			require.NoError(t, err)
			granted, err := a.EnsureAccount(t.Context(), snap, acc)
			require.NoError(t, err)
			if made || granted {
				changed++
			}
			if err := a.VerifyAccount(t.Context(), acc); err != nil {
				t.Error(err)
			}
			verbs["SELECT"]-- // that was a query of the test
		}
		return changed
	}
	if n := ensure(); n != len(accounts) {
		t.Errorf("made %d of %d", n, len(accounts))
	}
	looks := func() int { return verbs["SELECT"] + verbs["SHOW GRANTS"] }
	if n := looks(); n > 4+3 { // databases, accounts, owners, grants; and those of the account that gets a second database
		t.Errorf("making %d databases took %d looks: %v", len(accounts), n, verbs)
	}
	clear(verbs)
	if n := ensure(); n != 0 || len(writes(verbs)) > 0 {
		t.Errorf("nothing to do: changed %d, sent %v", n, verbs)
	}
	// It logs in to each account once: no table shows whether the server uses it for the login.
	if got := slices.Sorted(maps.Keys(verbs)); !slices.Equal(got, []string{"SELECT"}) || verbs["SELECT"] != 4+5 {
		t.Errorf("looking took %v", verbs)
	}
}

// Anything that others created or dropped since the snapshot causes no error, and the next snapshot finds it.
func TestSnapshotIsOld(t *testing.T) {
	a := open(t, root(t))
	acc := Account{User: "snap_old", Password: "pw-snap_old", Database: "snap_old"}
	before, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	run(t, a, "CREATE DATABASE snap_old", "CREATE USER snap_old@`%` IDENTIFIED BY 'by hand'")
	both := func(s *Snapshot) {
		t.Helper()
		if _, err := a.EnsureDatabase(t.Context(), s, acc.Database); err != nil {
			t.Fatal(err)
		}
		if _, err := a.EnsureAccount(t.Context(), s, acc); err != nil {
			t.Fatal(err)
		}
	}
	both(before)
	if err := a.VerifyAccount(t.Context(), acc); err != nil {
		t.Error(err)
	}
	run(t, a, "DROP DATABASE snap_old", "DROP USER snap_old@`%`")
	both(nil)
	if err := a.VerifyAccount(t.Context(), acc); err != nil {
		t.Error(err)
	}
}

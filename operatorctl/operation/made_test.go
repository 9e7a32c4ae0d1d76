// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/mariadb"
)

// What has a database or an account counts as there, whoever made it.
func TestWithoutDatabase(t *testing.T) {
	all := []component.Component{
		{Name: "none"}, {Name: "new", Database: &component.Database{Name: "new"}}, {Name: "there", Database: &component.Database{Name: "There"}},
		{Name: "half", Database: &component.Database{Name: "half", More: []string{"more"}}},
		{Name: "account", Database: &component.Database{Name: "a", User: "b"}}, {Name: "other", Database: &component.Database{Name: "c", User: "d"}},
	}
	got := withoutDatabase(all, []string{"there", "more", "b"}, []mysql.UserHost{{User: "b", Host: "%"}, {User: "c", Host: "%"}})
	if want := []string{"new", "other"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMade(t *testing.T) {
	of := func(names ...string) *release.Release {
		r := &release.Release{}
		for _, n := range names {
			r.Objects = append(r.Objects, release.Object{Component: n})
		}
		return r
	}
	now := []v1alpha1.ComponentStatus{{Name: "new", State: v1alpha1.Disabled}, {Name: "wanted", State: v1alpha1.Waiting}, {Name: "old", State: v1alpha1.Available}}
	absent := []string{"new", "gone", "wanted", "never", "old"}
	got := made(absent, of("old"), of("old", "new", "gone", "wanted", "there"), now)
	if want := []string{"new", "gone"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// held is a Reporter that ends what waits for another program.
type held struct {
	workflow.Discard
	end func()
}

func (h held) Info(format string, _ ...any) {
	if strings.HasPrefix(format, "waiting:") {
		h.end()
	}
}

func vaultOn(t *testing.T, server *mariadb.Server) backup.Vault {
	t.Helper()
	a, err := mysql.Open(t.Context(), mysql.Config{Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Owner: mysql.Owner{ID: "u"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return backup.Vault{Admin: a, CloudID: "u"}
}

// TestRemoveAlone: no database is removed while another program replaces databases of the cloud.
func TestRemoveAlone(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	vault := func() backup.Vault { return vaultOn(t, server) }
	v := vault()
	if _, err := v.Admin.EnsureDatabase(t.Context(), nil, "glance"); err != nil {
		t.Fatal(err)
	}
	_, release, err := backup.Replacing(t.Context(), backup.Unwatched{}, vault().Admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := (&Run{}).removeFrom(ctx, held{end: cancel}, v, []string{"glance"}); err == nil || ctx.Err() == nil {
		t.Errorf("it does not wait: %v", err)
	}
	if there, err := v.Admin.Databases(t.Context()); err != nil || !slices.Equal(there, []string{"glance"}) {
		t.Errorf("%q, %v", there, err)
	}
	release()
	if err := (&Run{}).removeFrom(t.Context(), workflow.Discard{}, v, []string{"glance"}); err != nil {
		t.Error(err)
	}
	if there, err := v.Admin.Databases(t.Context()); err != nil || len(there) > 0 {
		t.Errorf("%q, %v", there, err)
	}
}

func TestAsBefore(t *testing.T) {
	d := &v1alpha1.OperationDatabases{
		Saved: &v1alpha1.DatabaseCopies{Set: "b3", Prefix: "p_b3_"}, Restored: []string{"glance"}, Removed: []string{"aiproxy"},
		Replaced: []v1alpha1.DatabaseCopies{{Set: "u3v1", Prefix: "p_u3v1_"}, {Set: "n3", Prefix: "p_n3_"}},
	}
	s := v1alpha1.OnecloudOperationStatus{Rollout: &v1alpha1.Rollout{From: 3}, Databases: d}
	const want = "what was changed is as it was before; databases glance are as they were 0001-01-01T00:00:00Z; what was written since is in databases p_u3v1_…; " +
		"the databases of aiproxy, which this operation made, are removed; what they held is in databases p_n3_…"
	if got := asBefore(s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

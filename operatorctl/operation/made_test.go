// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// A database or an account counts as present, no matter who created it.
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

// held is a Reporter that ends a wait for another program.
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
	require.NoError(t, err)
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
	_, release, err := backup.Replacing(t.Context(), workflow.Discard{}, vault().Admin)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	if err := (databaseWork{mover{&Run{}, held{end: cancel}}, v}).removeFrom(ctx, []string{"glance"}); err == nil || ctx.Err() == nil {
		t.Errorf("it does not wait: %v", err)
	}
	if there, err := v.Admin.Databases(t.Context()); err != nil || !slices.Equal(there, []string{"glance"}) {
		t.Errorf("%q, %v", there, err)
	}
	release()
	if err := (databaseWork{mover{&Run{}, workflow.Discard{}}, v}).removeFrom(t.Context(), []string{"glance"}); err != nil {
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
	const want = "all changes were undone; databases glance were restored as of 0001-01-01T00:00:00Z; the data written since is in databases p_u3v1_…; " +
		"the databases of aiproxy, which this operation created, were removed; their contents are in databases p_n3_…"
	if got := asBefore(s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An unreadable release stops the revert only if it may be one that the revert needs.
func TestMadeReleases(t *testing.T) {
	all := func(broken ...int) (out []corev1.Secret) {
		for revision, by := range []string{"", "", "kubectl", "kubectl", "u", "u", "kubectl"} {
			if revision == 0 {
				continue
			}
			r := release.Release{Summary: release.Summary{Revision: revision, By: by}}
			secret, err := r.Secret(metav1.ObjectMeta{Name: "c", Labels: map[string]string{}})
			require.NoError(t, err)
			if slices.Contains(broken, revision) {
				secret.Data = nil
			}
			out = append(out, *secret)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		broken []int
		before int
		first  int
		fails  bool
	}{
		{"all can be read", nil, 3, 4, false},
		{"earlier ones are broken", []int{1, 2}, 3, 4, false},
		{"later ones are broken", []int{5, 6}, 3, 4, false},
		{"the one of before is broken", []int{3}, 3, 0, true},
		{"the one that was made is broken", []int{4}, 3, 0, true},
		{"none was made", []int{1}, 6, 0, false},
	} {
		from, first, err := madeReleases(all(c.broken...), "c", c.before, "u")
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.fails && (from == nil || from.Revision != c.before || (first == nil) != (c.first == 0) || first != nil && first.Revision != c.first) {
			t.Errorf("%s: %+v, %+v", c.name, from, first)
		}
	}
}

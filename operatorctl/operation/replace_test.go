// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// killer is a reporter that kills the operator at the first line that contains a text.
type killer struct {
	workflow.Discard
	at   string
	do   func()
	said []string
}

// killed is the panic value that kills an operator: nothing that it would do afterwards happens.
type killed struct{}

func (k *killer) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	k.said = append(k.said, line)
	if k.at == "" || !strings.Contains(line, k.at) {
		return
	}
	if k.do != nil {
		k.do()
	}
	panic(killed{})
}

func (k *killer) Info(format string, args ...any)    { k.say(format, args...) }
func (k *killer) Changed(format string, args ...any) { k.say(format, args...) }

// migrated is a cloud with copies of its original databases, and an operation that reverts.
type migrated struct {
	*testing.T
	server *mariadb.Server
	vault  backup.Vault
	op     *v1alpha1.OnecloudOperation
}

func newMigrated(t *testing.T, server *mariadb.Server) *migrated {
	m := &migrated{T: t, server: server}
	require.NoError(t, server.Wipe(t.Context()))
	admin, err := mysql.Open(t.Context(), mysql.Config{Host: m.server.Host, Port: m.server.Port, User: "root", Password: m.server.RootPassword, Patience: time.Minute,
		Owner: mysql.Owner{ID: "id-1", Namespace: "n", Name: "c"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	m.vault = backup.Vault{Admin: admin, CloudID: "id-1"}
	for _, d := range []string{"glance", "keystone"} {
		if _, err := admin.EnsureDatabase(t.Context(), nil, d); err != nil {
			t.Fatal(err)
		}
		m.run("CREATE TABLE "+d+".t (id INT PRIMARY KEY)", "INSERT INTO "+d+".t VALUES (1)")
	}
	m.op = op("u", 0, "", "")
	m.op.UID = "u"
	saved, err := m.vault.Save(t.Context(), savedSet(3), m.op.Name+"/u", []string{"glance", "keystone"}, workflow.Discard{})
	require.NoError(t, err)
	m.op.Status.Databases = &v1alpha1.OperationDatabases{Saved: copies(saved)}
	m.op.Status.Rollout = &v1alpha1.Rollout{From: 3, Moved: 1, Waves: []v1alpha1.Wave{{Components: []string{"glance", "keystone"}}}}
	return m
}

func (m *migrated) run(statements ...string) string {
	m.Helper()
	out, err := m.server.Execute(m.Context(), statements...)
	require.NoError(m, err)
	return strings.TrimSpace(out)
}

// operator restores the databases, as one process does. It reports whether it was killed.
func (m *migrated) operator(k *killer) (wasKilled bool, err error) {
	m.Helper()
	var r *Run
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if cloud, is := o.(*v1alpha1.OnecloudCluster); is { // as if the reconciler followed
				now := r.rollout()
				cloud.Status.Rollout = &v1alpha1.RolloutStatus{Operation: m.op.Name, Hold: now.Hold, Reached: now.Reached, Stopped: now.Stopped}
			}
			return err
		},
	})
	r = &Run{Operation: m.op, Means: Means{Client: c}, record: newRecord(nil, nil, m.op.DeepCopy())}
	defer func() {
		m.op.Status = r.Status()
		if caught := recover(); caught != nil {
			if _, wasKilled = caught.(killed); !wasKilled {
				panic(caught)
			}
		}
	}()
	return false, databaseWork{mover{r, k}, m.vault}.bringBackAll(m.Context())
}

// rows returns the rows of table t in a database, and in its copy in the last set of replaced contents.
func (m *migrated) rows(database string) (now, kept string) {
	m.Helper()
	const all = "SELECT GROUP_CONCAT(id ORDER BY id) FROM "
	for _, c := range slices.Backward(m.op.Status.Databases.Replaced) {
		if slices.Contains(c.Databases, database) {
			kept = m.run(all + c.Prefix + database + ".t")
			break
		}
	}
	return m.run(all + database + ".t"), kept
}

// TestKilledWhileReplacing: what a migration writes after an operator was killed is saved before it is replaced.
func TestKilledWhileReplacing(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	for what, kill := range map[string]killer{
		"after the copy, before that is noted": {at: "current contents: "},
		"in the middle of a restore":           {at: "replacing the databases"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMigrated(t, server)
			m.run("ALTER TABLE keystone.t ADD COLUMN more INT", "INSERT INTO keystone.t VALUES (2, 0)")
			restores := kill.at == "replacing the databases"
			kill.do = func() {
				if restores {
					m.run("DROP DATABASE keystone")
				}
			}
			if is, err := m.operator(&kill); !is {
				t.Fatalf("not killed: %q, %v", kill.said, err)
			}
			m.run("ALTER TABLE glance.t ADD COLUMN more INT", "INSERT INTO glance.t VALUES (3, 0)") // its migration ends only now
			again := killer{at: "restored as of"}
			if is, err := m.operator(&again); !is {
				t.Fatalf("not killed: %q, %v", again.said, err)
			}
			if is, err := m.operator(&killer{}); is || err != nil {
				t.Fatalf("killed: %t, %v", is, err)
			}
			for database, want := range map[string]string{"keystone": "1,2", "glance": "1,3"} {
				if now, kept := m.rows(database); now != "1" || kept != want {
					t.Errorf("%s has rows %s, want 1; its copy has %q, want %s", database, now, kept, want)
				}
			}
			if d := m.op.Status.Databases; len(d.Restoring) > 0 || len(d.Restored) != 2 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestChangedCopiesReplaceNothing: what something else wrote into the copies is not restored with them.
func TestChangedCopiesReplaceNothing(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	for what, c := range map[string]struct{ statement, want string }{
		"a row less":     {"DELETE FROM %skeystone.t", "keystone.t has 0 rows, not 1"},
		"another row":    {"UPDATE %skeystone.t SET id = 5", "keystone.t has the right number of rows, but different content"},
		"a table more":   {"CREATE TABLE %skeystone.x (i INT)", "keystone.x was not saved"},
		"no table":       {"DROP TABLE %skeystone.t", "keystone.t is missing"},
		"no copy at all": {"DROP DATABASE %skeystone", "keystone.t is missing; the copy of keystone is missing"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMigrated(t, server)
			m.run("ALTER TABLE keystone.t ADD COLUMN more INT", "INSERT INTO keystone.t VALUES (2, 0)", fmt.Sprintf(c.statement, m.op.Status.Databases.Saved.Prefix))
			_, err := m.operator(&killer{})
			if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7076" || f[0].Cause != c.want || !strings.Contains(f[0].Remedy, "ocadm operation resume "+m.op.Name+";") {
				t.Errorf("%+v", f)
			}
			if now, _ := m.rows("keystone"); now != "1,2" || len(m.op.Status.Rollout.Stopped) > 0 {
				t.Errorf("keystone has rows %s, and stopped are %q", now, m.op.Status.Rollout.Stopped)
			}
		})
	}
}

// What a rollback replaced may be in more than one set. The first one has the original contents of a database.
func TestSourcesOfFurtherSets(t *testing.T) {
	s := &v1alpha1.OnecloudOperationStatus{
		Rollout: &v1alpha1.Rollout{From: 3, Moved: 1, Waves: []v1alpha1.Wave{{Components: []string{"glance", "keystone", "region"}}}},
		Databases: &v1alpha1.OperationDatabases{
			Saved: &v1alpha1.DatabaseCopies{Set: "b3", Databases: []string{"glance", "keystone", "yunioncloud"}},
			Replaced: []v1alpha1.DatabaseCopies{
				{Set: "f3", Databases: []string{"keystone"}}, {Set: "f3v2", Databases: []string{"glance", "keystone"}}, {Set: "f30", Databases: []string{"yunioncloud"}},
			},
		},
	}
	if got := fmt.Sprint(sources(s)); got != "[{f3 [keystone]} {f3v2 [glance]} {b3 [yunioncloud]}]" {
		t.Error(got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// TestNoBackupOfAPartialRestore: while the cloud is stopped, half replaced databases are backed up only for a repeated restore; if a user started the
// cloud, older files are kept. A successful restore ends that.
func TestNoBackupOfAPartialRestore(t *testing.T) {
	restore := func(name string, at int64, phase v1alpha1.OperationPhase, final bool) *Operation {
		o := oneOperation(name, phase)
		o.Namespace, o.Spec.Cloud, o.Spec.Action = DefaultNamespace, DefaultName, v1alpha1.ActionRestore
		o.Status.Start, o.Status.Runner = metav1.NewTime(time.Unix(at, 0)), &v1alpha1.OperationRunner{Final: final}
		return o
	}
	failed := restore("restore-1", 10, v1alpha1.OperationFailed, true)
	for name, c := range map[string]struct {
		paused  string
		part    bool
		list    []client.Object
		half    string
		refused bool
		warned  bool
	}{
		"half restored":        {"true", false, []client.Object{failed}, "restore-1", true, false},
		"a restore runs":       {"true", false, []client.Object{restore("restore-1", 10, v1alpha1.OperationRunning, true)}, "restore-1", true, false},
		"what it saves":        {"true", true, []client.Object{failed}, "", false, false},
		"started as it is":     {"", false, []client.Object{failed}, "restore-1", false, true},
		"a later one is good":  {"", false, []client.Object{failed, restore("restore-2", 20, v1alpha1.OperationSucceeded, true)}, "", false, false},
		"a later one is taken": {"true", false, []client.Object{failed, restore("restore-2", 20, v1alpha1.OperationReverted, false)}, "restore-1", true, false},
		"an earlier one":       {"true", false, []client.Object{failed, restore("restore-0", 5, v1alpha1.OperationSucceeded, true)}, "restore-1", true, false},
		"taken back":           {"true", false, []client.Object{restore("restore-1", 10, v1alpha1.OperationReverted, false)}, "", false, false},
	} {
		cloud := theCloud("db.invalid")
		cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: c.paused}
		m := &making{Backup: Backup{Key: client.ObjectKeyFromObject(cloud), Keep: 1}, part: c.part, plan: &backup.Plan{Store: backup.Dir(t.TempDir())}}
		m.client = meanwhile(func(client.WithWatch) error { return nil }, append(c.list, cloud)...)
		m.Open = func(context.Context) (backup.Store, error) { return backup.Dir(t.TempDir()), nil }
		err := m.prepare(t.Context(), workflow.Discard{}) // the database server does not exist
		l := finding.Of(err)
		if refused := len(l) == 1 && l[0].Code == "OCA-7426" && strings.Contains(l[0].Cause, "restore-1"); refused != c.refused || m.half != c.half {
			t.Errorf("%s: %q, %v", name, m.half, err)
		}
		if (len(m.warnings) > 0) != c.warned {
			t.Errorf("%s: %v", name, m.warnings)
		}
		m.plan = nil // it must not be used
		if m.half != "" && m.retain(t.Context(), workflow.Discard{}) != nil {
			t.Errorf("%s: older ones are not kept", name)
		}
	}
}

// TestBackupIsComplete checks that a backup is refused if it would lack a database in use by a component, unless a restore makes it.
func TestBackupIsComplete(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	a, err := mysql.Open(t.Context(), mysql.Config{Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Owner: mysql.Owner{ID: "u"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	if _, err := a.EnsureDatabase(t.Context(), nil, "keystone"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Execute(t.Context(), "CREATE DATABASE glance"); err != nil {
		t.Fatal(err)
	}
	cloud := theCloud(server.Host)
	cloud.Status.Components = []v1alpha1.ComponentStatus{{Name: "keystone", State: v1alpha1.Available}, {Name: "glance", State: v1alpha1.Available}}
	m := &making{plan: &backup.Plan{Source: backup.Source{Admin: a}}}
	if l := finding.Of(m.complete(t.Context(), cloud)); len(l) != 1 || l[0].Code != "OCA-7075" || !strings.Contains(l[0].Cause, "glance") {
		t.Errorf("%v", l)
	}
	m.part = true
	if err := m.complete(t.Context(), cloud); err != nil {
		t.Errorf("what a restore saves: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
)

// migrated tests a cloud whose services change their tables.
type migrated struct{ *cloudTest }

// state returns the state of the databases: their definitions, and the rows of the tables that only a migration changes.
func (m migrated) state() (map[string]string, map[string]dump.TableSummary) {
	m.Helper()
	definitions, rows := m.Databases(m.DB)
	tables := rows.Tables()
	maps.DeleteFunc(tables, func(name string, _ dump.TableSummary) bool {
		return !strings.HasSuffix(name, "_resources_tbl") && !strings.Contains(name, "isolated_devices") && !strings.HasSuffix(name, ".kept")
	})
	return definitions, tables
}

// as fails unless the databases are unchanged.
func (m migrated) as(what string, definitions map[string]string, tables map[string]dump.TableSummary) {
	m.Helper()
	now, rows := m.state()
	for name, was := range definitions {
		if now[name] != was {
			m.Errorf("%s: the tables of %s have different definitions", what, name)
		}
	}
	for name, was := range tables {
		if rows[name] != was {
			m.Errorf("%s: %s has %+v, had %+v", what, name, rows[name], was)
		}
	}
}

// ends waits for the end of an operation.
func (m migrated) ends(o *v1alpha1.OnecloudOperation, phase v1alpha1.OperationPhase) *v1alpha1.OnecloudOperation {
	m.Helper()
	o = m.UntilOperation(o.Name, env.Ended)
	if o.Status.Phase != phase {
		m.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	m.UntilReady()
	return o
}

// TestMigratedDatabasesAreRestored updates a cloud whose services migrate their tables. A broken release leaves everything unchanged, a good one migrates
// the tables, and a rollback restores the old ones. It saves separately what was written in between.
func TestMigratedDatabasesAreRestored(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs})
	cr := e.Only("keystone", "region", "glance")
	cr.Spec.Version = "v4.0.3"
	e.Install(cr)
	m := migrated{e}
	m.SQL(m.DB, "CREATE TABLE keystone.kept (id INT PRIMARY KEY)", "INSERT INTO keystone.kept VALUES (1)")
	definitions, tables := m.state()
	first := e.Cloud().Status.Release.Revision
	update := func(name, version string) *v1alpha1.OnecloudOperation {
		return e.Operation(name, v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Update: &v1alpha1.UpdateParameters{Version: version}})
	}
	for _, broken := range []program.Failure{program.InMigration, program.AtStart} {
		o := m.ends(update("u"+string(broken), "v4.0.4"+string(broken)), v1alpha1.OperationReverted)
		if d := o.Status.Databases; d == nil || d.Saved == nil || !slices.Equal(d.Restored, []string{"keystone"}) || len(d.Replaced) != 1 {
			t.Errorf("%s: %+v", broken, o.Status.Databases)
		}
		m.as(string(broken), definitions, tables)
	}

	o := m.ends(update("good", "v4.0.4"), v1alpha1.OperationSucceeded)
	if d := o.Status.Databases; d == nil || len(d.Restored) > 0 || len(d.Saved.Databases) != 3 {
		t.Errorf("%+v", o.Status.Databases)
	}
	from := o.Status.Rollout.From
	for _, want := range []string{"keystone issues a token", "region lists zones", "glance lists images"} {
		if !slices.ContainsFunc(o.Status.Steps, func(p v1alpha1.OperationStep) bool {
			return slices.ContainsFunc(p.Evidence, func(line string) bool { return strings.HasPrefix(line, want) })
		}) {
			t.Errorf("no step has the evidence %q", want)
		}
	}
	m.SQL(m.DB, "INSERT INTO keystone.kept VALUES (2)")
	e.Operation("trial", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck, Rollback: &v1alpha1.RollbackParameters{Revision: from}})
	o = e.UntilOperation("trial", env.Ended)
	if f := o.Status.Findings; o.Status.Phase != v1alpha1.OperationFailed || len(f) != 1 || f[0].Code != "OCA-7066" || o.Status.Target == nil ||
		o.Status.Steps[1].Start.IsZero() || e.Cloud().Status.Release.Version != "v4.0.4" {
		t.Errorf("the check of a rollback: %+v", o.Status)
	}
	e.Operation("careless", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionRollback, Rollback: &v1alpha1.RollbackParameters{Revision: from}})
	o = e.UntilOperation("careless", env.Ended)
	if f := o.Status.Findings; o.Status.Phase != v1alpha1.OperationFailed || len(f) != 1 || f[0].Code != "OCA-7066" ||
		!slices.Contains(o.Status.Plan, "keystone.kept: 2 rows, had 1") {
		t.Errorf("a rollback without consent: %+v", o.Status)
	}
	if _, err := ocadm(e.Env, "cluster", "rollback", "--to", strconv.Itoa(from)); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-7066" {
		t.Errorf("a refused rollback without --wait: %v", err)
	}
	back := e.Operation("back", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionRollback,
		Rollback: &v1alpha1.RollbackParameters{Revision: from, RestoreDatabases: true}})
	o = m.ends(back, v1alpha1.OperationSucceeded)
	if got := e.Cloud().Status.Release.Version; got != "v4.0.3" || len(o.Status.Databases.Restored) != 3 || first == 0 {
		t.Errorf("release %s, %+v", got, o.Status.Databases)
	}
	m.as("rollback", definitions, tables)
	for _, step := range o.Status.Steps {
		if step.Name == "databases" && !slices.Contains(step.Evidence, "stopped: glance, keystone, region") {
			t.Errorf("%q", step.Evidence)
		}
	}
	replaced := o.Status.Databases.Replaced
	if len(replaced) != 1 {
		t.Fatalf("%+v", replaced)
	}
	if out := m.SQL(m.DB, "SELECT COUNT(*) FROM "+replaced[0].Prefix+"keystone.kept"); !strings.Contains(out, "2") {
		t.Errorf("what was written since: %q", out)
	}
}

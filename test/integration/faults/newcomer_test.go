// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
)

// TestNewComponentIsRemoved updates to a release with a new component. When the update is reverted, the component's database and account are
// removed, but not those that existed before. A successful update creates them again, and a later rollback keeps them.
func TestNewComponentIsRemoved(t *testing.T) {
	u := newUpdated(t, []string{"keystone", "region", "aiproxy"}, patient)
	if c := env.Component(u.Cloud(), "aiproxy"); c.State != v1alpha1.Disabled {
		t.Fatalf("aiproxy is %s: it is to be new in %s", c.State, newVersion)
	}
	there := func(what string, database, account bool) {
		t.Helper()
		if got := slices.Contains(strings.Fields(u.SQL(u.DB, "SHOW DATABASES")), "aiproxy"); got != database {
			t.Errorf("%s: database aiproxy: %t", what, got)
		}
		if got := u.SQL(u.DB, "SELECT user FROM mysql.user WHERE user = 'aiproxy'") != ""; got != account {
			t.Errorf("%s: account aiproxy: %t", what, got)
		}
		if got := u.SQL(u.DB, "SELECT name FROM ocadm.owners WHERE name = 'aiproxy'") != ""; got != account {
			t.Errorf("%s: marker of aiproxy: %t", what, got)
		}
	}
	reverted := func(name string) *v1alpha1.OnecloudOperation {
		t.Helper()
		u.update(name)
		o := u.UntilOperation(name, env.Ended)
		if o.Status.Phase != v1alpha1.OperationReverted {
			t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
		}
		u.entirely(t, name, o)
		return o
	}
	there("before", false, false)

	// A database of this name that the cloud did not create.
	u.SQL(u.DB, "CREATE DATABASE aiproxy", "CREATE TABLE aiproxy.kept (id INT PRIMARY KEY)")
	o := reverted("foreign")
	there("a foreign one", true, false)
	if len(o.Status.Databases.Removed) > 0 || u.SQL(u.DB, "SHOW TABLES FROM aiproxy") != "kept" {
		t.Errorf("the foreign database was changed: %+v", o.Status.Databases)
	}
	u.SQL(u.DB, "DROP DATABASE aiproxy")

	u.publish("aiproxy", program.WhenReady) // it has created its tables by then
	o = reverted("broken")
	there("reverted", false, false)
	d := o.Status.Databases
	if !slices.Equal(d.Removed, []string{"aiproxy"}) || !strings.Contains(o.Status.Message, "the databases of aiproxy, which this operation created, were removed; their contents are in") {
		t.Errorf("%s: %+v", o.Status.Message, d)
	}
	if key := "database/aiproxy"; u.Cloud().Status.Effects[key] != "" {
		t.Errorf("effect %s is still noted", key)
	}
	u.onlyKnownCopies(t, o)

	u.publish("aiproxy", "")
	u.update("good")
	o = u.UntilOperation("good", env.Ended)
	u.entirely(t, "good", o)
	if c := env.Component(u.Cloud(), "aiproxy"); o.Status.Phase != v1alpha1.OperationSucceeded || c.State != v1alpha1.Available {
		t.Errorf("%s: %s; aiproxy is %s: %s", o.Status.Phase, o.Status.Message, c.State, c.Message)
	}
	there("updated", true, true)

	// A later rollback keeps its database, and stops offering it to users. The operator is unchanged, so an update has nothing to do.
	offered := u.Cloud().Status.Effects["endpoints/aiproxy"]
	u.rollback(t, o)
	there("rolled back", true, true)
	u.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return offered != "" && cr.Status.Effects["endpoints/aiproxy"] != offered && !meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionUpdateAvailable)
	})
}

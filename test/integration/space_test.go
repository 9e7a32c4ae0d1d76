// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// TestNoUpdateWithoutSpace updates a cloud whose database server reports too little space for copies of the databases. The update is refused before
// anything changes, as are a rehearsal and a rollback. A server that does not report its space causes a warning.
func TestNoUpdateWithoutSpace(t *testing.T) {
	e := newCloudTest(t, env.Options{Database: &mariadb.Options{}})
	if e.DB.MySQL {
		t.Skip("MySQL does not say how much space it has")
	}
	e.Install(e.Minimal())
	m := migrated{e}
	m.SQL(m.DB, "INSTALL SONAME 'ha_archive'")
	dir, err := e.DB.Execute(t.Context(), "SELECT @@datadir")
	require.NoError(t, err)
	// grow creates a table that is larger than any disk: most of its file is a hole.
	grow := func() {
		t.Helper()
		m.SQL(m.DB, "CREATE TABLE keystone.large (id INT NOT NULL) ENGINE=ARCHIVE")
		require.NoError(t, os.Truncate(filepath.Join(strings.TrimSpace(dir), "keystone", "large.ARZ"), 8<<40))
	}
	grow()
	before, first := e.Deployments(), e.Cloud()
	for _, c := range []struct{ code, command string }{
		{"OCA-7073", "cluster update --version v4.0.5"}, {"OCA-7073", "operation check --version v4.0.5"}, {"OCA-7091", "cluster update --version v4.0.5 --rehearse --wait"},
	} {
		_, err := ocadm(e.Env, strings.Fields(c.command)...)
		if found := finding.Of(err); len(found) != 1 || found[0].Code != c.code || !strings.Contains(found[0].Cause, "are free in ") {
			t.Errorf("%s: got %v", c.command, err)
		}
	}
	prints(e.Env, "Succeeded", "cluster", "update", "--version", "v4.0.5", "--dry-run", "--no-backup") // which copies nothing
	e.Kubelet.Withdraw("/region:v4.0.5")                                                               // a check reports its findings together with the missing images
	for _, command := range []string{"operation check --version v4.0.5", "cluster update --version v4.0.5 --dry-run"} {
		_, err := ocadm(e.Env, strings.Fields(command)...)
		if found := finding.Of(err); len(found) != 2 || found[0].Code != "OCA-7073" || found[1].Code != "OCA-7068" {
			t.Errorf("%s: got %v", command, err)
		}
	}
	e.Kubelet.Withdraw("")
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	e.isRefused("v4.0.5", first.Spec.Version, "OCA-7073", "make room there")
	for name, d := range e.Deployments() {
		if was := before[name]; was == nil || was.Generation != d.Generation {
			t.Errorf("Deployment %s was changed", name)
		}
	}

	m.SQL(m.DB, "UNINSTALL SONAME 'disks'")
	o := e.Operation("unknown", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck, Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}})
	o = e.UntilOperation(o.Name, env.Ended)
	if len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7074" || o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Errorf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Findings)
	}
	m.SQL(m.DB, "INSTALL SONAME 'disks'")
	m.SQL(m.DB, "DROP TABLE keystone.large")
	prints(e.Env, "Succeeded", "operation", "check", "--version", "v4.0.5")
	update := e.Operation("update", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}})
	m.ends(update, v1alpha1.OperationSucceeded)
	grow()
	_, err = ocadm(e.Env, "cluster", "rollback", "--keep-databases", "--wait")
	if found := finding.Of(err); len(found) != 1 || !strings.Contains(found[0].Error(), "are free in ") {
		t.Errorf("rollback: got %v", err)
	}
}

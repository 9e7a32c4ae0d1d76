// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/require"
)

// annotate sets an annotation of the cloud.
func (w *faulty) annotate(t testing.TB, key, value string) {
	t.Helper()
	cr := w.In(t).TryCloud()
	before := client.MergeFrom(cr.DeepCopy())
	if cr.Annotations == nil {
		cr.Annotations = map[string]string{}
	}
	cr.Annotations[key] = value
	require.NoError(t, w.Client.Patch(t.Context(), cr, before))
}

// TestForeignDatabase checks that what exists on the database server and does not belong to the cloud is neither used nor changed before a user
// permits it, holds up no other component, and is not dropped with the cloud.
func TestForeignDatabase(t *testing.T) {
	w := use(t)
	w.sql(t, "CREATE DATABASE glance")
	w.sql(t, "CREATE TABLE glance.kept (id INT)")
	w.sql(t, "CREATE USER glance@'%' IDENTIFIED BY 'by hand'")
	w.sql(t, "GRANT ALL ON glance.* TO glance@'%'")
	w.sql(t, "CREATE DATABASE ocadm")
	w.sql(t, "CREATE TABLE ocadm.owners (kind VARCHAR(16), name VARCHAR(64), id VARCHAR(64), namespace VARCHAR(63), cloud VARCHAR(253), "+
		"since TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (kind, name))")
	w.sql(t, "CREATE DATABASE yunionconf")
	w.sql(t, "INSERT INTO ocadm.owners (kind, name, id, namespace, cloud) VALUES ('database', 'yunionconf', 'abc', 'elsewhere', 'other')")
	cr := w.minimal()
	cr.Spec.DeletionPolicy = v1alpha1.Delete
	o := w.run(t)
	w.In(t).Create(cr)
	w.untilSays(t, o, "glance", v1alpha1.Degraded, `database "glance" exists, but this cloud did not create it`,
		"kubectl -n "+namespace+" annotate --overwrite oc default "+v1alpha1.AnnotationAdoptDatabases+"=glance")
	w.untilSays(t, o, "yunionconf", v1alpha1.Degraded, `database "yunionconf" belongs to cloud elsewhere/other/abc`, v1alpha1.AnnotationAdoptDatabases+"=elsewhere/other/abc")
	w.untilSays(t, o, "keystone", v1alpha1.Available)
	w.login(t, "glance", "by hand")

	w.annotate(t, v1alpha1.AnnotationAdoptDatabases, "elsewhere/other/abc")
	w.untilSays(t, o, "yunionconf", v1alpha1.Available)
	w.remove(t)
	w.untilGone(t, o)
	w.login(t, "glance", "by hand")
	left, err := w.root.Databases(t.Context())
	if err != nil || !slices.Equal(left, []string{"glance"}) {
		t.Errorf("left: %q, %v", left, err)
	}
	if marks := w.SQL(w.DB, "SELECT * FROM "+mysql.OwnersDatabase+".owners"); marks != "" {
		t.Errorf("markers left: %q", marks)
	}
}

// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// TestSaved checks that copies stay until they are dropped, show what has changed since, and can replace the originals.
func TestSaved(t *testing.T) {
	e := setUp(t)
	v := Vault{Admin: e.admin, CloudID: cloud.ID}
	if _, there, err := v.Read(t.Context(), "b1"); there || err != nil {
		t.Fatalf("before: %v %v", there, err)
	}
	first, err := v.Save(t.Context(), "b1", "one", []string{"keystone", "report"}, workflow.Discard{})
	require.NoError(t, err)
	read, there, err := v.Read(t.Context(), "b1")
	if err != nil || !there || !slices.Equal(read.Databases(), []string{"keystone", "report"}) || read.Time != first.Time || read.Copy("keystone") != first.Copy("keystone") {
		t.Fatalf("%+v %v %v", read, there, err)
	}
	if names, err := Databases(t.Context(), e.admin); err != nil || !slices.Equal(names, []string{"keystone", "report"}) {
		t.Errorf("the copies are the cloud's own: %q %v", names, err)
	}
	if changed, err := v.Changed(t.Context(), read); err != nil || len(changed) > 0 {
		t.Errorf("%q %v", changed, err)
	}
	e.run("INSERT INTO keystone.user VALUES (7, 'new')") // rows do not change definitions
	if again, err := v.Save(t.Context(), "b1", "one", []string{"keystone"}, workflow.Discard{}); err != nil || len(again.Databases()) != 2 {
		t.Errorf("a complete set was made again: %+v %v", again.Databases(), err)
	}
	if changed, err := v.Changed(t.Context(), read); err != nil || len(changed) > 0 {
		t.Errorf("%q %v", changed, err)
	}
	e.run("ALTER TABLE keystone.user ADD COLUMN more INT", "CREATE TABLE keystone.added (id INT PRIMARY KEY)", "DROP DATABASE report")
	changed, err := v.Changed(t.Context(), read)
	if err != nil || !slices.Equal(changed, []string{"keystone", "report"}) {
		t.Fatalf("%q %v", changed, err)
	}
	lines, err := v.Since(t.Context(), read, []string{"keystone"})
	if text := strings.Join(lines, "\n"); err != nil || text != "keystone.added: a new table with 0 rows\nkeystone.user: 3 rows, had 2" {
		t.Errorf("%s %v", text, err)
	}
	later, err := v.Save(t.Context(), "u1v1", "one", []string{"keystone"}, workflow.Discard{})
	if err != nil || len(read.Differs(later)) != 2 {
		t.Errorf("%q %v", read.Differs(later), err)
	}
	for range 2 { // an interrupted restore is run again
		require.NoError(t, v.Restore(t.Context(), workflow.Discard{}, read, changed))
	}
	if changed, err := v.Changed(t.Context(), read); err != nil || len(changed) > 0 {
		t.Errorf("restored: %q %v", changed, err)
	}
	if lines, err := v.Since(t.Context(), read, read.Databases()); err != nil || len(lines) > 0 {
		t.Errorf("restored: %q %v", lines, err)
	}
	if changed, err := v.Changed(t.Context(), later); err != nil || len(changed) != 1 {
		t.Errorf("%q %v", changed, err)
	}
	if other, err := v.Save(t.Context(), "b1", "two", []string{"keystone"}, workflow.Discard{}); err != nil || len(other.Databases()) != 1 {
		t.Errorf("another maker's set: %+v %v", other.Databases(), err)
	}
	require.NoError(t, v.Keep(t.Context(), "u1v1"))
	if _, there, err := v.Read(t.Context(), "b1"); there || err != nil {
		t.Errorf("%v %v", there, err)
	}
	if _, there, err := v.Read(t.Context(), "u1v1"); !there || err != nil {
		t.Errorf("%v %v", there, err)
	}
	if owned, _, err := e.admin.Owned(t.Context()); err != nil || len(owned) != 4 { // two databases, an index, a copy
		t.Errorf("%q %v", owned, err)
	}
}

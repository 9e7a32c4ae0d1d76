// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// A key is changed only if it has not changed since it was read.
func TestChangeKeys(t *testing.T) {
	cl := startCluster(t, 1)
	c, err := Open(t.Context(), cl.config)
	require.NoError(t, err)
	defer c.Close()
	for _, key := range []string{"/a/1", "/a/2", "/b/1"} {
		if _, err := c.v3.Put(t.Context(), key, "value"); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := c.Entries(t.Context(), "/a/")
	if err != nil || len(entries) != 2 || entries[0].Key != "/a/1" || string(entries[0].Value) != "value" {
		t.Fatalf("%+v, %v", entries, err)
	}
	if err := c.Put(t.Context(), entries[0], []byte("next")); err != nil {
		t.Error(err)
	}
	if err := c.Put(t.Context(), entries[0], []byte("late")); !errors.Is(err, ErrChanged) {
		t.Errorf("a change of what was changed meanwhile: %v", err)
	}
	if err := c.Delete(t.Context(), entries[0]); !errors.Is(err, ErrChanged) {
		t.Errorf("a deletion of what was changed meanwhile: %v", err)
	}
	if err := c.Delete(t.Context(), entries[1]); err != nil {
		t.Error(err)
	}
	if entries, err = c.Entries(t.Context(), "/a/"); err != nil || len(entries) != 1 || string(entries[0].Value) != "next" {
		t.Errorf("%+v, %v", entries, err)
	}
}

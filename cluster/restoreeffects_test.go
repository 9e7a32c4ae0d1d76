// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// backedUp holds two releases; the second one is in force.
func backedUp(t *testing.T, first, second map[string]string) backup.Contents {
	t.Helper()
	c := backup.Contents{Header: backup.Header{Cloud: backup.Cloud{Name: DefaultName}, Release: 2}}
	for n, done := range []map[string]string{first, second, {"endpoints/glance": "of the future"}} {
		r := release.Release{Summary: release.Summary{Revision: n + 1}, Contents: release.Contents{Effects: done}}
		s, err := r.Secret(metav1.ObjectMeta{Name: DefaultName, Labels: map[string]string{}})
		require.NoError(t, err)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		c.Objects = append(c.Objects, backup.Object{Kind: "Secret", Name: s.Name, JSON: text})
	}
	return c
}

// TestRestoreRemembersWhatWasDone checks that the operator repeats what only the replaced databases held, and nothing outside of them.
func TestRestoreRemembersWhatWasDone(t *testing.T) {
	cloud := theCloud("")
	cloud.Status.Effects = map[string]string{
		"database/glance": "d2", "clickhouse/meter": "c2", "account/glance": "same", "options/glance": "o2", "account/aiproxy": "new", "endpoints/aiproxy": "new",
		"identity/policy": "p", "identity/address": "a", "account/off": "long ago", "setup/off": "later", "option/glance/log_level": "set later",
	}
	x := &restoring{halting: halting{key: client.ObjectKeyFromObject(cloud)}}
	contents := backedUp(t, map[string]string{"account/off": "long ago", "setup/off": "another"},
		map[string]string{"database/glance": "d1", "account/glance": "same", "options/glance": "o1", "identity/policy": "p", "option/glance/workers": "set then"})
	x.contents = &contents
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).WithStatusSubresource(cloud).Build()
	x.client = c
	live, err := get(t.Context(), c, x.key)
	require.NoError(t, err)
	now, err := typed(live)
	require.NoError(t, err)
	if n, err := x.remember(t.Context(), now, live); err != nil || n != 6 {
		t.Errorf("%d changed, %v", n, err)
	}
	got := &v1alpha1.OnecloudCluster{}
	require.NoError(t, c.Get(t.Context(), x.key, got))
	want := map[string]string{
		"database/glance": "d2", "clickhouse/meter": "c2", "account/glance": "same", "options/glance": "o1", "identity/policy": "p", "identity/address": "a",
		"account/off": "long ago", "option/glance/workers": "set then",
	}
	if !maps.Equal(got.Status.Effects, want) {
		t.Errorf("%v, want %v", got.Status.Effects, want)
	}
	if again := doneThen(got.Status.Effects, 2, must(releasesOf(contents))); len(again) > 0 {
		t.Errorf("repeated: %v", again)
	}
	x.contents = &backup.Contents{Objects: []backup.Object{{Kind: "Secret", Name: "s", JSON: must(json.Marshal(corev1.Secret{}))}}}
	if n, err := x.remember(t.Context(), now, live); err != nil || n != 0 {
		t.Errorf("a file without releases: %d, %v", n, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

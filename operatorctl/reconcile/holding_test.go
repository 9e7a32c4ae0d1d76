// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// A password changed since the release: the object equals what this build renders, so an update would change nothing and must not be offered.
func TestMergedObjectHasTheHashOfItsContent(t *testing.T) {
	secret := func(password string) *piece {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "default-glance-config"}, Data: map[string][]byte{"glance.conf": []byte(password)}}
		return &piece{Object: render.Kind(o)}
	}
	old, err := release.ObjectOf("glance", 0, "hash of the release", secret("old").Object)
	require.NoError(t, err)
	now := secret("new")
	want, err := engine.HashOf(now.Object)
	require.NoError(t, err)
	merged, err := (&holding{scheme: kube.Scheme()}).mergeOne(old, true, secret("(changed since)"), now)
	require.NoError(t, err)
	if got, err := engine.HashOf(merged.Object); got != want || err != nil {
		t.Errorf("hash %s, want %s; %v", got, want, err)
	}
}

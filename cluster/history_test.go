// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// The history lists a damaged release in its place, with the reason, and the others as usual.
func TestHistoryWithADamagedRelease(t *testing.T) {
	key := client.ObjectKey{Namespace: "onecloud", Name: "default"}
	c := fake.NewClientBuilder().Build()
	for revision := 1; revision <= 3; revision++ {
		r := release.Release{Summary: release.Summary{Revision: revision, Version: "v4.0.4", Why: []string{"spec.version"}}}
		s, err := r.Secret(metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}})
		require.NoError(t, err)
		if revision == 2 {
			s.Data = nil
		}
		require.NoError(t, c.Create(t.Context(), s))
	}
	status := Status{}
	status.Release.Revision = 3
	all, err := Releases(t.Context(), c, key, status)
	require.NoError(t, err)
	if len(all) != 3 || !all[0].InForce || all[0].Version != "v4.0.4" || all[2].Revision != 1 || all[2].Version != "v4.0.4" {
		t.Fatalf("%+v", all)
	}
	if two := all[1]; two.Revision != 2 || !strings.HasPrefix(two.Why[0], `damaged: reading Secret "default-release-2"`) {
		t.Errorf("%+v", two)
	}
	_, err = operation.ReadRelease(t.Context(), c, key, 2)
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7020" || !strings.Contains(f[0].Cause, "default-release-2") || f[0].Remedy == "" {
		t.Errorf("%+v, %v", f, err)
	}
}

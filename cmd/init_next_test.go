// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// A repeated init or operator install does not advise to create a cloud that exists.
func TestAfterInit(t *testing.T) {
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	for exists, want := range map[bool]string{false: "ocadm cluster create", true: "ocadm cluster status"} {
		if got := afterInstall(h.Config, exists); strings.Contains(got, "To create a cloud") == exists {
			t.Errorf("operator install, cloud exists: %t: %s", exists, got)
		}
		if got := afterInit(h, exists); !strings.Contains(got, want) || exists && strings.Contains(got, "To create a cloud") {
			t.Errorf("with a cloud %v: %s", exists, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"io"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

// A setting is given by its flag, even with its default, or by its variable.
func TestGivenSettings(t *testing.T) {
	t.Setenv("OCADM_PROFILE", "small")
	a := newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	c := newOperatorInstall(a)
	require.NoError(t, c.ParseFlags([]string{"--edition", "ce"}))
	cfg, err := a.loadSettings(c, config.ForInstall, "")
	if err != nil || !slices.Contains(cfg.Given, "cloud.edition") || !slices.Contains(cfg.Given, "cloud.profile") || slices.Contains(cfg.Given, "cloud.region") {
		t.Errorf("%v, %v", cfg, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/test/require"
)

// Credentials that preflight could use, but the kubelet could not, are refused before anything is installed.
func TestRegistryConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	for _, c := range []struct{ raw, says string }{
		{`{"auths":{"r":{"auth":"YWxpY2U6cHc="}}}`, ""},
		{`{"auths":{"r":{"auth":"YWxpY2U6","identitytoken":"canary"}}}`, `"r" has a token`},
		{`{"auths":{"r":{"registrytoken":"canary"}}}`, `"r" has a token`},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.raw), 0o600))
		cfg := config.Default()
		cfg.Node.RegistryConfig = file
		err := newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).registryConfig(&cfg)
		l := finding.Of(err)
		if c.says == "" && err != nil || c.says != "" && (len(l) != 1 || l[0].Code != node.CodeCredentials || !strings.Contains(l[0].Cause, c.says)) ||
			strings.Contains(cfg.Node.RegistryAuth, "canary") {
			t.Errorf("%s: %v", c.raw, err)
		}
	}
}

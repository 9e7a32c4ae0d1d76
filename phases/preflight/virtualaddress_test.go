// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"testing"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestVirtualAddress(t *testing.T) {
	c := config.Default()
	c.Node.IP = "10.0.0.1"
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	h.Facts.Interfaces = []host.Interface{{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}
	for address, code := range map[string]string{"10.0.0.100": "", "10.0.1.100": "OCA-2012"} {
		c.Cluster.VirtualAddress = address
		found := checkVirtualAddress(t.Context(), newMachine(h, Init, DefaultLimits()))
		if code == "" && len(found) > 0 || code != "" && (len(found) != 1 || found[0].Code != code) {
			t.Errorf("%s: %v, want %q", address, found, code)
		}
	}
	h.Facts.Interfaces = nil
	if found := checkVirtualAddress(t.Context(), newMachine(h, Init, DefaultLimits())); len(found) > 0 {
		t.Errorf("on a machine whose networks are not known: %v", found)
	}
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/host"
)

// Every program that preflight checks for has a package on Debian, Rocky Linux, openSUSE and Arch Linux.
func TestEveryToolHasAPackage(t *testing.T) {
	packages := map[string]string{
		"mount": "mount util-linux util-linux util-linux", "umount": "mount util-linux util-linux util-linux",
		"ip": "iproute2 iproute iproute2 iproute2", "systemctl": "systemd systemd systemd systemd", "modprobe": "kmod kmod kmod kmod",
		"nft": "nftables nftables nftables nftables", "iptables": "iptables iptables iptables iptables", "ethtool": "ethtool ethtool ethtool ethtool",
	}
	for _, name := range append(neededTools(), usefulTools()...) {
		var got []string
		for _, id := range []string{"debian", "rocky", "opensuse-leap", "arch"} {
			got = append(got, (host.OS{ID: id}).Packages(name)...)
		}
		if strings.Join(got, " ") != packages[name] {
			t.Errorf("%s: %q, want %q", name, got, packages[name])
		}
	}
}

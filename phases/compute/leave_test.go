// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/host"
)

func TestLeavingNamesTheBridgeAndTheVirtualMachines(t *testing.T) {
	m := newMachine(t)
	if got := Leaving(m.Host); len(got) > 0 {
		t.Errorf("nothing is lost, and yet: %q", got)
	}
	m.Facts.Interfaces = []host.Interface{nic("eth0"), {Name: "br0", Kind: kindSwitch, Prefixes: nic("", "192.0.2.10/24", "fe80::1/64").Prefixes},
		{Name: "brlocal", Kind: kindSwitch, Prefixes: nic("", "169.254.1.1/16").Prefixes}, {Name: "br9", Kind: "bridge", Prefixes: nic("", "198.51.100.1/24").Prefixes}}
	m.put(t, "/proc/77/cmdline", "/usr/local/qemu-10.0.7/bin/qemu-system-x86_64\x00-name\x00a", 0o644)
	m.put(t, "/proc/8/cmdline", "qemu-system-aarch64\x00", 0o644)
	m.put(t, "/proc/9/cmdline", "vi\x00qemu-system-x86_64\x00", 0o644)
	got := strings.Join(Leaving(m.Host), "\n")
	for _, want := range []string{"192.0.2.10 of this machine is on the Open vSwitch bridge br0", "2 virtual machines", "77", "8"} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
	for _, not := range []string{"brlocal", "br9", " 9"} {
		if strings.Contains(got, not) {
			t.Errorf("says %q:\n%s", not, got)
		}
	}
}

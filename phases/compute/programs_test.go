// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// Every program that a compute node may lack has a package on Debian, Rocky Linux, openSUSE and Arch Linux. A new program in the list needs a row
// here, looked up in the distributions.
func TestEveryProgramHasAPackage(t *testing.T) {
	const everywhere = "*"
	packages := map[string][4]string{
		"python3":             {"python3", "python3", "python3", "python"},
		"bash":                {everywhere, "bash"},
		"ip":                  {"iproute2", "iproute", "iproute2", "iproute2"},
		"tc":                  {"iproute2", "iproute-tc", "iproute2", "iproute2"},
		"modprobe":            {everywhere, "kmod"},
		"mount":               {"mount", "util-linux", "util-linux", "util-linux"},
		"findmnt":             {"util-linux", "util-linux", "util-linux util-linux-systemd", "util-linux"},
		"mountpoint":          {everywhere, "util-linux"},
		"losetup":             {"mount", "util-linux", "util-linux", "util-linux"},
		"lsblk":               {"util-linux", "util-linux", "util-linux util-linux-systemd", "util-linux"},
		"df":                  {everywhere, "coreutils"},
		"ps":                  {"procps", "procps-ng", "procps", "procps-ng"},
		"awk":                 {"mawk", "gawk", "gawk", "gawk"},
		"grep":                {everywhere, "grep"},
		"systemctl":           {everywhere, "systemd"},
		"nc":                  {"netcat-openbsd", "nmap-ncat", "netcat-openbsd", "openbsd-netcat"},
		"chattr":              {everywhere, "e2fsprogs"},
		"ionice":              {everywhere, "util-linux"},
		"qemu-img":            {"qemu-utils", "qemu-img", "qemu-img", "qemu-img"},
		"qemu-nbd":            {"qemu-utils", "qemu-img", "qemu-img", "qemu-img"},
		"ethtool":             {everywhere, "ethtool"},
		"qemu-system-x86_64":  {"qemu-system-x86", "qemu-kvm", "qemu-x86", "qemu-base"},
		"qemu-system-aarch64": {"qemu-system-arm", "qemu-kvm", "qemu-arm", "qemu-system-aarch64"},
	}
	names := []string{emulator("amd64"), emulator("arm64")}
	for _, p := range programs() {
		names = append(names, p.name)
	}
	for _, name := range names {
		want, ok := packages[name]
		if !ok {
			t.Errorf("%s: which package has it?", name)
			continue
		}
		for i, id := range []string{"debian", "rocky", "opensuse-leap", "arch"} {
			w := want[i]
			if want[0] == everywhere {
				w = want[1]
			}
			if got := strings.Join((host.OS{ID: id}).Packages(name), " "); got != w {
				t.Errorf("%s on %s: %q, want %q", name, id, got, w)
			}
		}
	}
	if got := (host.OS{ID: "openeuler"}).Install("ip", "tc"); got != "dnf install -y iproute" {
		t.Errorf("on openEuler: %s", got)
	}
}

func TestEmulatorOfTheArchitecture(t *testing.T) {
	m := newMachine(t)
	m.Facts.Arch = "arm64"
	if f := Programs(m.Host); len(f) > 0 {
		t.Errorf("an emulator is there, and yet: %+v", f)
	}
	require.NoError(t, m.Files.Remove("/usr/bin/qemu-system-x86_64"))
	if f := Programs(m.Host); len(f) != 1 || f[0].Remedy != "apt-get install -y qemu-system-arm" {
		t.Errorf("%+v", f)
	}
	m.Facts.Arch, m.Facts.OS = "amd64", host.OS{ID: "rocky"}
	if f := Programs(m.Host); len(f) != 1 || f[0].Remedy != "dnf install -y qemu-kvm; ln -s /usr/libexec/qemu-kvm /usr/bin/qemu-system-x86_64" {
		t.Errorf("on Rocky Linux: %+v", f)
	}
}

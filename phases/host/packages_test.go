// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/require"
)

// Each os-release holds the relevant lines of a real one; managers are the package managers on the machine.
func TestPackagesPerDistribution(t *testing.T) {
	tests := map[string]struct {
		release, managers string
		install, modules  string
	}{
		"Debian 12": {"ID=debian\nVERSION_ID=\"12\"\n", "apt-get", "apt-get install -y conntrack iproute2 mount nftables", "apt-get install -y linux-image-6.1"},
		"Ubuntu 24.04": {"ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", "apt-get",
			"apt-get install -y conntrack iproute2 mount nftables", "apt-get install -y linux-modules-extra-6.1"},
		"Rocky 9": {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n", "dnf",
			"dnf install -y conntrack-tools iproute util-linux nftables", "dnf install -y kernel-modules-6.1"},
		"CentOS 7 with yum alone": {"ID=\"centos\"\nID_LIKE=\"rhel fedora\"\n", "yum",
			"yum install -y conntrack-tools iproute util-linux nftables", "yum install -y kernel-modules-6.1"},
		"openEuler 22.03": {"ID=\"openEuler\"\nVERSION_ID=\"22.03\"\n", "dnf",
			"dnf install -y conntrack-tools iproute util-linux nftables", "dnf install -y kernel-6.1"},
		"Kylin server": {"ID=\"kylin\"\nVERSION_ID=\"V10\"\n", "dnf",
			"dnf install -y conntrack-tools iproute util-linux nftables", "dnf install -y kernel-6.1"},
		"Kylin desktop": {"ID=kylin\nID_LIKE=debian\nVERSION_ID=\"v10\"\n", "apt-get",
			"apt-get install -y conntrack iproute2 mount nftables", "apt-get install -y linux-image-6.1"},
		"Anolis 8": {"ID=\"anolis\"\nID_LIKE=\"rhel fedora centos\"\n", "dnf",
			"dnf install -y conntrack-tools iproute util-linux nftables", "dnf install -y kernel-modules-6.1"},
		"openSUSE Leap": {"ID='opensuse-leap'\nID_LIKE='suse opensuse'\n", "zypper",
			"zypper install -y conntrack-tools iproute2 util-linux nftables", "zypper install -y kernel-default"},
		"Arch":                   {"ID=arch\n", "pacman", "pacman -S --noconfirm conntrack-tools iproute2 util-linux nftables", "pacman -S --noconfirm linux"},
		"Debian with dnf beside": {"ID=debian\n", "dnf", "apt-get install -y conntrack iproute2 mount nftables", "apt-get install -y linux-image-6.1"},
		"unknown":                {"ID=nixos\n", "", "install the packages that provide: conntrack, ip, mount, umount, nft", "install the modules of kernel 6.1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			files := Files{Root: t.TempDir()}
			require.NoError(t, files.WriteFile("/etc/os-release", []byte(tt.release), 0o644))
			if tt.managers != "" {
				require.NoError(t, files.WriteFile("/usr/bin/"+tt.managers, nil, 0o755))
			}
			run := &Recorder{Answer: func(exec.Command) (exec.Result, error) { return exec.Result{}, nil }}
			os := Gather(t.Context(), files, run).OS
			if got := os.Install("conntrack", "ip", "mount", "umount", "nft"); got != tt.install {
				t.Errorf("install:\n got %s\nwant %s", got, tt.install)
			}
			if got := os.InstallKernelModules("6.1"); got != tt.modules {
				t.Errorf("modules:\n got %s\nwant %s", got, tt.modules)
			}
		})
	}
}

func TestUninstall(t *testing.T) {
	for want, os := range map[string]OS{
		"apt-get remove -y $(dpkg-query --search /usr/bin/containerd | cut -d: -f1)": {ID: "debian"},
		"dnf remove -y $(rpm -qf /usr/bin/containerd)":                               {ID: "rocky"},
		"zypper remove -y $(rpm -qf /usr/bin/containerd)":                            {ID: "sles"},
		"pacman -R --noconfirm $(pacman -Qqo /usr/bin/containerd)":                   {ID: "arch"},
		"rm /usr/bin/containerd":                                                     {ID: "nixos"},
	} {
		if got := os.Uninstall("/usr/bin/containerd"); got != want {
			t.Errorf("%s: %q, want %q", os.ID, got, want)
		}
	}
	if got, want := (OS{ID: "debian"}).Uninstall("/usr/local/bin/containerd"), "rm /usr/local/bin/containerd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKernelArguments(t *testing.T) {
	for id, want := range map[string]string{
		"ubuntu":        `sed -i 's/^GRUB_CMDLINE_LINUX="/&a=1 b /' /etc/default/grub && update-grub && reboot`,
		"rocky":         `grubby --update-kernel=ALL --args="a=1 b" && reboot`,
		"opensuse-leap": `sed -i 's/^GRUB_CMDLINE_LINUX="/&a=1 b /' /etc/default/grub && grub2-mkconfig -o /boot/grub2/grub.cfg && reboot`,
		"arch":          "add to the kernel's command line: a=1 b, and restart the machine",
	} {
		if got := (OS{ID: id}).KernelArguments("a=1", "b"); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

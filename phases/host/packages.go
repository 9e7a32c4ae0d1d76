// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Distribution families. Members of a family use the same package names.
const (
	debian = "debian"
	redhat = "redhat"
	suse   = "suse"
	arch   = "arch"
)

// distributions returns the family of each ID in /etc/os-release. Kylin and UOS have a Debian and a Red Hat edition under one ID, so ID_LIKE or the
// installed package manager decides.
func distributions() map[string]string {
	return map[string]string{
		"debian": debian, "ubuntu": debian, "linuxmint": debian, "raspbian": debian, "deepin": debian,
		"rhel": redhat, "centos": redhat, "rocky": redhat, "almalinux": redhat, "fedora": redhat, "ol": redhat, "amzn": redhat,
		"openeuler": redhat, "anolis": redhat, "alinux": redhat, "opencloudos": redhat, "tencentos": redhat, "hce": redhat,
		"suse": suse, "opensuse": suse, "opensuse-leap": suse, "opensuse-tumbleweed": suse, "sles": suse, "sled": suse, "sle-micro": suse,
		"arch": arch, "manjaro": arch,
	}
}

// packageManager describes how a family installs and removes packages.
type packageManager struct {
	family, program, install, remove string
	// owner prints the package that a file belongs to.
	owner string
}

// packageManagers returns the package managers in order of preference: dnf before yum, which it succeeds.
func packageManagers() []packageManager {
	return []packageManager{
		{debian, "apt-get", "apt-get install -y", "apt-get remove -y", "dpkg-query --search %s | cut -d: -f1"},
		{redhat, "dnf", "dnf install -y", "dnf remove -y", "rpm -qf %s"},
		{redhat, "yum", "yum install -y", "yum remove -y", "rpm -qf %s"},
		{suse, "zypper", "zypper install -y", "zypper remove -y", "rpm -qf %s"},
		{arch, "pacman", "pacman -S --noconfirm", "pacman -R --noconfirm", "pacman -Qqo %s"},
	}
}

// packageNames returns the package of each program (or purpose), by family. A family that is not listed uses the key itself. Emulators have QEMU's
// names.
func packageNames() map[string]map[string]string {
	return map[string]map[string]string{
		"awk":                 {debian: "mawk", redhat: "gawk", suse: "gawk", arch: "gawk"},
		"chattr":              {debian: "e2fsprogs", redhat: "e2fsprogs", suse: "e2fsprogs", arch: "e2fsprogs"},
		"chronyd":             {debian: "chrony", redhat: "chrony", suse: "chrony", arch: "chrony"},
		"conntrack":           {redhat: "conntrack-tools", suse: "conntrack-tools", arch: "conntrack-tools"},
		"df":                  {debian: "coreutils", redhat: "coreutils", suse: "coreutils", arch: "coreutils"},
		"findmnt":             {debian: "util-linux", redhat: "util-linux", suse: "util-linux util-linux-systemd", arch: "util-linux"},
		"ionice":              {debian: "util-linux", redhat: "util-linux", suse: "util-linux", arch: "util-linux"},
		"ip":                  {debian: "iproute2", redhat: "iproute", suse: "iproute2", arch: "iproute2"},
		"ip6tables":           {debian: "iptables", redhat: "iptables", suse: "iptables", arch: "iptables"},
		"losetup":             {debian: "mount", redhat: "util-linux", suse: "util-linux", arch: "util-linux"},
		"lsblk":               {debian: "util-linux", redhat: "util-linux", suse: "util-linux util-linux-systemd", arch: "util-linux"},
		"modprobe":            {debian: "kmod", redhat: "kmod", suse: "kmod", arch: "kmod"},
		"mount":               {redhat: "util-linux", suse: "util-linux", arch: "util-linux"},
		"mountpoint":          {debian: "util-linux", redhat: "util-linux", suse: "util-linux", arch: "util-linux"},
		"nft":                 {debian: "nftables", redhat: "nftables", suse: "nftables", arch: "nftables"},
		"openvswitch":         {debian: "openvswitch-switch"},
		"ovs-vsctl":           {debian: "openvswitch-switch", redhat: "openvswitch", suse: "openvswitch", arch: "openvswitch"},
		"ps":                  {debian: "procps", redhat: "procps-ng", suse: "procps", arch: "procps-ng"},
		"python3":             {arch: "python"},
		"nc":                  {debian: "netcat-openbsd", redhat: "nmap-ncat", suse: "netcat-openbsd", arch: "openbsd-netcat"},
		"qemu-img":            {debian: "qemu-utils", suse: "qemu-img", arch: "qemu-img"},
		"qemu-nbd":            {debian: "qemu-utils", redhat: "qemu-img", suse: "qemu-img", arch: "qemu-img"},
		"qemu-system-x86_64":  {debian: "qemu-system-x86", redhat: "qemu-kvm", suse: "qemu-x86", arch: "qemu-base"},
		"qemu-system-aarch64": {debian: "qemu-system-arm", redhat: "qemu-kvm", suse: "qemu-arm", arch: "qemu-system-aarch64"},
		"semanage":            {debian: "policycoreutils-python-utils", redhat: "policycoreutils-python-utils", suse: "policycoreutils-python-utils"},
		"ss":                  {debian: "iproute2", redhat: "iproute", suse: "iproute2", arch: "iproute2"},
		"systemctl":           {debian: "systemd", redhat: "systemd", suse: "systemd", arch: "systemd"},
		"tc":                  {debian: "iproute2", redhat: "iproute-tc", suse: "iproute2", arch: "iproute2"},
		"umount":              {debian: "mount", redhat: "util-linux", suse: "util-linux", arch: "util-linux"},
		"container-selinux":   {},
	}
}

// Family returns the distribution family, whose package names apply: debian, redhat, suse, arch, or "" if unknown.
func (o OS) Family() string {
	for _, id := range append([]string{o.ID}, o.Like...) {
		if f := distributions()[id]; f != "" {
			return f
		}
	}
	return lists.First(packageManagers(), func(m packageManager) bool { return slices.Contains(o.Managers, m.program) }).family
}

// manager returns the package manager of the family, preferring one that is on the machine.
func (o OS) manager() (packageManager, bool) {
	var first packageManager
	for _, m := range packageManagers() {
		if m.family != o.Family() {
			continue
		}
		if slices.Contains(o.Managers, m.program) {
			return m, true
		}
		first = cmp.Or(first, m)
	}
	return first, first.program != ""
}

// undivided reports whether this is openEuler or a derivative, which keep in one package what other Red Hat distributions split.
func (o OS) undivided() bool {
	return slices.Contains([]string{"openeuler", "kylin", "uos", "hce"}, o.ID)
}

// Packages returns the packages that contain these programs on this distribution, without duplicates. A program that is not in the table is assumed to
// be the name of its package.
func (o OS) Packages(programs ...string) []string {
	var out []string
	for _, p := range programs {
		for _, name := range strings.Fields(cmp.Or(packageNames()[p][o.Family()], p)) {
			if name == "iproute-tc" && o.undivided() {
				name = "iproute"
			}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// Install returns the command that installs these programs on this distribution, or, if it is unknown, a sentence that names them.
func (o OS) Install(programs ...string) string {
	m, ok := o.manager()
	if !ok {
		return "install the packages that provide: " + strings.Join(programs, ", ")
	}
	return m.install + " " + strings.Join(o.Packages(programs...), " ")
}

// Uninstall returns the command that removes a program: its package, or the file if no package can own it. The command queries the package name,
// because a program may come from several (containerd, containerd.io), and apt-get refuses unknown names.
func (o OS) Uninstall(file string) string {
	m, ok := o.manager()
	if !ok || strings.HasPrefix(file, "/usr/local/") {
		return "rm " + file
	}
	return m.remove + " $(" + fmt.Sprintf(m.owner, file) + ")"
}

// InstallKernelModules returns the command that installs the modules of the running kernel. release is the output of "uname -r".
func (o OS) InstallKernelModules(release string) string {
	name := ""
	switch o.Family() {
	case debian:
		name = "linux-image-" + release
		if o.ID == "ubuntu" || slices.Contains(o.Like, "ubuntu") {
			name = "linux-modules-extra-" + release
		}
	case redhat:
		switch {
		case strings.Contains(release, "uek"):
			name = "kernel-uek-modules-" + release
		case o.undivided():
			name = "kernel-" + release
		default:
			name = "kernel-modules-" + release
		}
	case suse:
		name = "kernel-default"
	case arch:
		name = "linux"
	}
	m, ok := o.manager()
	if !ok {
		return "install the modules of kernel " + release
	}
	return m.install + " " + name
}

// KernelArguments returns the command that adds arguments to the kernel command line and reboots the machine.
func (o OS) KernelArguments(arguments ...string) string {
	list := strings.Join(arguments, " ")
	grub := func(update string) string {
		return `sed -i 's/^GRUB_CMDLINE_LINUX="/&` + list + ` /' /etc/default/grub && ` + update + " && reboot"
	}
	switch o.Family() {
	case debian:
		return grub("update-grub")
	case redhat:
		return `grubby --update-kernel=ALL --args="` + list + `" && reboot`
	case suse:
		return grub("grub2-mkconfig -o /boot/grub2/grub.cfg")
	}
	return "add to the kernel's command line: " + list + ", and restart the machine"
}

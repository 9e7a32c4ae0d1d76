// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/test/lab/cache"
)

// Machine describes a freshly installed node: systemd and the basics of a distribution, without containerd, runc, the kubelet and the CNI plugins,
// which ocadm installs. The release is one of Releases; empty means the constant Release. more names additional packages.
func Machine(release string, more ...string) Tree {
	if release == Release {
		release = "" // share one cache entry
	}
	masked := []string{
		// Devices and kernel objects belong to the host, not to a machine in a container.
		"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service",
		"systemd-hwdb-update.service", "systemd-modules-load.service", "systemd-remount-fs.service",
		"proc-sys-fs-binfmt_misc.automount", "sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
		"dev-hugepages.mount", "systemd-firstboot.service", "systemd-binfmt.service",
		// No terminals.
		"getty@tty1.service", "console-getty.service", "getty.target", "systemd-vconsole-setup.service",
		// Nothing that starts on a timer during a test.
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
		"man-db.timer", "systemd-tmpfiles-clean.timer",
	}
	links := map[string]string{"etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target"}
	for _, unit := range masked {
		links["etc/systemd/system/"+unit] = "/dev/null"
	}
	return Tree{
		Name:    "machine",
		Release: release,
		Variant: "minbase",
		Packages: append([]string{
			"systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "util-linux", "mount", "less",
			"iproute2", "iptables", "nftables", "ipset", "conntrack", "ethtool", "socat", "ebtables", "iputils-ping",
			"ca-certificates", "curl", "jq", "openssl", "python3-minimal",
		}, more...),
		Files: map[string]string{
			"etc/systemd/journald.conf.d/lab.conf": "# The kernel's log is the host's.\n[Journal]\nReadKMsg=no\nStorage=persistent\nSystemMaxUse=64M\n",
			"etc/systemd/system.conf.d/lab.conf":   "# A machine of the lab stops at once.\n[Manager]\nDefaultTimeoutStopSec=20s\n",
			"etc/profile.d/lab.sh":                 "[ -f /etc/kubernetes/admin.conf ] && export KUBECONFIG=/etc/kubernetes/admin.conf\n",
			"etc/machine-id":                       "",
			"etc/hostname":                         "",
			"etc/resolv.conf":                      "",
			"etc/fstab":                            "",
			"lab/README":                           "Mount points of the lab: bin holds the host's ocadm, bundle the bundle.\n",
		},
		Links: links,
	}
}

// Root returns the root file system of a fresh machine with additional packages.
func Root(ctx context.Context, release string, more []string, logf cache.Logf) (string, error) {
	if release != "" && !slices.Contains(Releases(), release) {
		return "", fmt.Errorf("making a machine of %q: the lab has the Debian releases %s", release, strings.Join(Releases(), ", "))
	}
	return Build(ctx, Machine(release, more...), logf)
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const root = "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"

// mounted adds lines of mountinfo below the root's.
func mounted(lines string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) { put(t, m.h, "/proc/self/mountinfo", root+lines) }
}

func file(name, text string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) { put(t, m.h, name, text) }
}

func says(command, text string) func(*testing.T, *machine) {
	return func(_ *testing.T, m *machine) { answer(m, command, text) }
}

// linked makes a path a symbolic link to a directory, and shows mounts.
func linked(name, to, lines string) func(*testing.T, *machine) {
	return both(mounted(lines), func(t *testing.T, m *machine) {
		at, target := m.h.Files.Path(name), m.h.Files.Path(to)
		relative, err := filepath.Rel(filepath.Dir(at), target)
		require.NoError(t, errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.MkdirAll(target, 0o755), os.RemoveAll(at), os.Symlink(relative, at)))
	})
}

// ostree shows the mounts of such a distribution.
const ostree = "2 1 8:2 / /usr ro - ext4 /dev/sda2 ro\n3 1 8:1 / /var rw - ext4 /dev/sda1 rw\n"

func earlier(_ *testing.T, m *machine) { m.h.Config.Cluster.KubernetesVersion = "v1.35.8" }

func both(all ...func(*testing.T, *machine)) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		for _, f := range all {
			f(t, m)
		}
	}
}

func joins(m *machine) { m.kind, m.h.Config.Join.Endpoint = Join, "192.0.2.1:6443" }

// TestSystemFindings covers the findings of the checks of the system, its mounts and its links, and cases that must have none.
func TestSystemFindings(t *testing.T) {
	route := "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
	for name, c := range map[string]struct {
		change func(*testing.T, *machine)
		want   string // the code; "w" before one marks a warning; "" for none
		says   string
	}{
		"a name of every machine":       {func(_ *testing.T, m *machine) { m.h.Config.Node.Name = "localhost.localdomain" }, "OCA-1037", "hostnamectl"},
		"a long name":                   {func(_ *testing.T, m *machine) { m.h.Config.Node.Name = strings.Repeat("n", 64) }, "OCA-1037", "64 characters"},
		"no identity":                   {file("/etc/machine-id", "uninitialized\n"), "OCA-1038", "systemd-machine-id-setup"},
		"an identity of zeros":          {file("/etc/machine-id", strings.Repeat("0", 32)), "OCA-1038", "systemd-machine-id-setup"},
		"an identity":                   {file("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"), "", ""},
		"an old processor":              {file("/proc/cpuinfo", "flags\t\t: fpu sse2 cx16 ssse3\n"), "w OCA-1039", "popcnt, sse4_1, sse4_2"},
		"a processor":                   {file("/proc/cpuinfo", "flags\t\t: cx16 popcnt sse4_1 sse4_2 ssse3 avx\n"), "", ""},
		"a clock without a battery":     {func(_ *testing.T, m *machine) { m.now = func() time.Time { return time.Unix(0, 0) } }, "OCA-1040", "1970-01-01"},
		"AppArmor without its parser":   {file("/sys/module/apparmor/parameters/enabled", "Y\n"), "w OCA-1041", "apparmor"},
		"AppArmor":                      {both(file("/sys/module/apparmor/parameters/enabled", "Y\n"), file("/usr/sbin/apparmor_parser", "")), "", ""},
		"no seccomp":                    {file("/proc/self/status", "Name:\tx\nPid:\t1\n"), "OCA-1042", "CONFIG_SECCOMP_FILTER"},
		"seccomp":                       {file("/proc/self/status", "Name:\tx\nPid:\t1\nSeccomp:\t0\n"), "", ""},
		"no messages of the kernel":     {file("/dev/null", ""), "OCA-1043", "lxc.mount.entry"},
		"messages of the kernel":        {both(file("/dev/null", ""), file("/dev/kmsg", "")), "", ""},
		"few open files":                {file("/proc/sys/fs/nr_open", "65536\n"), "w OCA-1045", "sysctl -w fs.nr_open=1048576"},
		"few processes":                 {file("/proc/sys/kernel/pid_max", "4096\n"), "w OCA-1046", "kernel.pid_max"},
		"memory of others":              {file("/proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable:    300000 kB\n"), "w OCA-1047", "292 MiB are available"},
		"an old systemd":                {says("systemctl --version", "systemd 239 (239-82.el8)\n"), "w OCA-1048", "it is version 239"},
		"systemd":                       {says("systemctl --version", "systemd 252 (252.39-1)\n"), "", ""},
		"fapolicyd":                     {says("systemctl is-active --quiet fapolicyd", ""), "w OCA-1049", "fapolicyd-cli --file add /usr/local/bin"},
		"drop-ins of a package":         {file("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "x"), "w OCA-1051", "10-kubeadm.conf"},
		"settings that are taken back":  {file("/etc/sysctl.d/99-cis.conf", "# hardening\nnet.ipv4.ip_forward = 0\n"), "OCA-1052", "99-cis.conf"},
		"settings that are overwritten": {file("/etc/sysctl.d/10-cis.conf", "net.ipv4.ip_forward = 0\n"), "", ""},
		"settings that are taken back and set again": {both(file("/etc/sysctl.d/99-sysctl.conf", "net.ipv4.ip_forward=0\n"),
			file("/etc/sysctl.d/k8s.conf", "net.ipv4.ip_forward = 1\n")), "", ""},
		"settings that are set in one file and taken back in the next": {both(file("/etc/sysctl.d/99-a.conf", "net.ipv4.ip_forward=0\nnet.ipv4.ip_forward=1\n"),
			file("/etc/sysctl.d/99-b.conf", "net/ipv4/ip_forward = 0\n")), "OCA-1052", "99-b.conf"},
		"settings of a package":             {file("/usr/lib/sysctl.d/99-a.conf", "net.ipv4.ip_forward=0\n"), "OCA-1052", "echo 'net.ipv4.ip_forward = 1' >> /etc/sysctl.d/zz-local.conf"},
		"settings of a package, overridden": {both(file("/usr/lib/sysctl.d/99-a.conf", "net.ipv4.ip_forward=0\n"), file("/etc/sysctl.d/99-a.conf", "")), "", ""},
		"unattended updates": {both(file("/etc/apt/apt.conf.d/20auto-upgrades", "APT::Periodic::Unattended-Upgrade \"1\";\n"), func(_ *testing.T, m *machine) {
			m.h.Facts.Programs = map[string]host.Program{"containerd": {Path: "/usr/bin/containerd", Version: "v2.4.0"}}
		}), "w OCA-1053", "apt-mark hold"},
		"a blocked module": {func(t *testing.T, m *machine) {
			unload(t, m, "overlay")
			put(t, m.h, "/etc/modprobe.d/cis.conf", "install overlay /bin/false\n")
		}, "OCA-1044", "install overlay /bin/false"},
		"a blocked module, with tabs": {func(t *testing.T, m *machine) {
			unload(t, m, "overlay")
			put(t, m.h, "/etc/modprobe.d/cis.conf", "install\toverlay\t/bin/false\n")
		}, "OCA-1044", `sed -i 's/^\s*install\s\+overlay\s/#&/' `},
		"a blocked module that is not needed": {file("/etc/modprobe.d/cis.conf", "install squashfs /bin/false\n"), "", ""},

		"noexec":                      {mounted("2 1 8:2 / /var rw,nosuid,noexec - ext4 /dev/sda2 rw\n"), "OCA-1029", "mount -o remount,exec /var"},
		"noexec beside a disk":        {mounted("2 1 8:2 / /var rw,noexec - ext4 /dev/sda2 rw\n3 2 8:3 / /var/lib/containerd rw - ext4 /dev/sda3 rw\n"), "", ""},
		"an immutable distribution":   {mounted("2 1 8:2 / /usr ro - ext4 /dev/sda2 ro\n"), "OCA-1030", "/usr/local/bin"},
		"ostree":                      {linked("/usr/local", "/var/usrlocal", ostree), "", ""},
		"ostree with Kubernetes 1.35": {both(linked("/usr/local", "/var/usrlocal", ostree), earlier), "OCA-1030", pluginDir},
		"ostree with Kubernetes 1.35 and the directory": {both(linked("/usr/local", "/var/usrlocal", ostree), earlier, file(pluginDir+"/x", "")), "", ""},
		"ostree with a worker of 1.35":                  {both(linked("/usr/local", "/var/usrlocal", ostree), earlier, func(_ *testing.T, m *machine) { joins(m) }), "", ""},
		"a link to NFS":                                 {linked("/var/lib/containerd", "/data/containerd", "2 1 0:2 / /data rw - nfs4 store:/a rw\n"), "OCA-1031", "nfs4 of store:/a"},
		"a link to noexec":                              {linked("/var/lib/containerd", "/data/containerd", "2 1 0:2 / /data rw,noexec - ext4 /dev/sdb rw\n"), "OCA-1029", "remount,exec /data"},
		"NFS":                                           {mounted("2 1 0:2 / /var/lib rw - nfs4 store:/a rw\n"), "OCA-1031", "nfs4 of store:/a"},
		"XFS without types":                             {both(mounted("2 1 8:2 / /var rw - xfs /dev/sda2 rw\n"), says("xfs_info /var", "naming =version 2 bsize=4096 ascii-ci=0 ftype=0\n")), "OCA-1032", "ftype=1"},
		"XFS":                                           {both(mounted("2 1 8:2 / /var rw - xfs /dev/sda2 rw\n"), says("xfs_info /var", "ftype=1\n")), "", ""},
		"a live system":                                 {mounted("2 1 0:2 / / rw - overlay overlay rw\n"), "OCA-1032", "/ is overlay"},
		"a live system with a disk":                     {mounted("2 1 0:2 / / rw - overlay overlay rw\n3 2 8:3 / /var/lib/containerd rw - ext4 /dev/sda3 rw\n"), "", ""},
		"old ZFS":                                       {both(mounted("2 1 0:2 / / rw - zfs rpool/ROOT rw\n"), file("/sys/module/zfs/version", "2.1.5-1ubuntu6~22.04.4\n")), "OCA-1032", "version 2.2"},
		"new ZFS":                                       {both(mounted("2 1 0:2 / / rw - zfs rpool/ROOT rw\n"), file("/sys/module/zfs/version", "2.2.2-0ubuntu9\n")), "", ""},
		"no inodes": {func(_ *testing.T, m *machine) {
			m.inodes = func(string) (uint64, uint64, error) { return 1 << 20, 500, nil }
		}, "OCA-1033", "df -i"},
		"as many inodes as wanted":            {func(_ *testing.T, m *machine) { m.inodes = func(string) (uint64, uint64, error) { return 0, 0, nil } }, "", ""},
		"a slow disk":                         {func(_ *testing.T, m *machine) { m.fsync = slowly(80 * time.Millisecond) }, "w OCA-1034", "up to 80ms"},
		"a slow disk of a worker":             {func(_ *testing.T, m *machine) { joins(m); m.fsync = slowly(80 * time.Millisecond) }, "", ""},
		"volumes that are left":               {mounted("2 1 0:9 / /var/lib/kubelet/pods/u/volumes/x rw - tmpfs tmpfs rw\n"), "OCA-1035", "umount"},
		"swap at boot":                        {file("/etc/fstab", "UUID=1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n"), "w OCA-1036", "/swap.img"},
		"zram at boot":                        {file("/usr/lib/systemd/zram-generator.conf", "[zram0]\nzram-size = ram\n"), "w OCA-1036", "systemctl mask swap.target"},
		"zram that is overridden":             {both(file("/usr/lib/systemd/zram-generator.conf", "[zram0]\n"), file("/etc/systemd/zram-generator.conf", "")), "", ""},
		"a swap partition that systemd finds": {file("/run/systemd/generator.late/dev-sda2.swap", "[Swap]\nWhat=/dev/sda2\n"), "w OCA-1036", "systemctl mask swap.target"},
		"swap that is masked":                 {both(file("/etc/fstab", "/swap.img none swap sw 0 0\n"), file("/etc/systemd/system/swap.target", "")), "", ""},
		"a service that turns swap on": {both(file("/etc/systemd/system/multi-user.target.wants/zramswap.service", ""), file("/etc/systemd/system/swap.target", "")),
			"w OCA-1036", "systemctl disable --now zramswap"},
		"a service that is masked":   {both(file("/etc/systemd/system/multi-user.target.wants/zramswap.service", ""), file("/etc/systemd/system/zramswap.service", "")), "", ""},
		"swap that is commented out": {file("/etc/fstab", "#/swap.img none swap sw 0 0\n"), "", ""},

		"a narrow link":         {file("/sys/class/net/eth0/mtu", "1300\n"), "OCA-2013", "ip link set eth0 mtu 1500"},
		"a link":                {file("/sys/class/net/eth0/mtu", "1450\n"), "", ""},
		"a narrow way":          {narrow("-s 1472", true), "OCA-2014", "tracepath 192.0.2.1"},
		"no answer to any ping": {narrow("-s 1472", false), "", ""},
		"two default routes": {file("/proc/net/route", route+"eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\neth1\t00000000\t0100000B\t0003\t0\t0\t100\t00000000\n"),
			"w OCA-2015", "eth0 and eth1"},
		"two default routes in order": {file("/proc/net/route", route+"eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\neth1\t00000000\t0100000B\t0003\t0\t0\t200\t00000000\n"), "", ""},
		"a leased address": {func(_ *testing.T, m *machine) {
			m.h.Facts.Interfaces[0].Leased = []netip.Addr{netip.MustParseAddr("192.0.2.11")}
		}, "w OCA-2016", "DHCP"},
		"IPv6 is off": {func(t *testing.T, m *machine) {
			m.h.Config.Cluster.PodNetworkCIDR = "10.40.0.0/16,fd40::/48"
			put(t, m.h, "/proc/cmdline", "ro ipv6.disable=1\n")
		}, "OCA-2017", "ipv6.disable=1"},
		"IPv6 is off and not wanted": {file("/proc/cmdline", "ro ipv6.disable=1\n"), "", ""},
		"everything is dropped":      {says("iptables -S", "-P INPUT DROP\n-P FORWARD ACCEPT\n"), "w OCA-2018", "6443/tcp"},
		"Docker and no pod network": {func(_ *testing.T, m *machine) {
			m.h.Config.Addons.CNI = config.None
			answer(m, "iptables -S", "-P FORWARD DROP\n")
		}, "w OCA-2018", "iptables -P FORWARD ACCEPT"},
		"Docker": {says("iptables -S", "-P INPUT ACCEPT\n-P FORWARD DROP\n"), "", ""},
		"nftables that drop": {says("nft list chains", "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n\tchain forward {\n"+
			"\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n"), "w OCA-2018", "nft chain inet filter forward '{ policy accept; }'"},
		"nftables without iptables": {both(func(_ *testing.T, m *machine) {
			rec := m.h.Exec.(*host.Recorder)
			old := rec.Answer
			rec.Answer = func(c exec.Command) (exec.Result, error) {
				if c.Path == "iptables" {
					return exec.Result{}, errors.New("no such program")
				}
				return old(c)
			}
		}, says("nft list chains", "table ip filter {\n\tchain in {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n}\n")), "w OCA-2018", "nft chain ip filter in "},
		"nftables of iptables": {says("nft list chains", "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n"), "", ""},
		"rules that are left":  {says("iptables -t nat -S", "-P PREROUTING ACCEPT\n-N KUBE-SERVICES\n-N KUBE-NODEPORTS\n"), "w OCA-2019", "2 chains"},
		"links that are left": {func(_ *testing.T, m *machine) {
			m.h.Facts.Interfaces = append(m.h.Facts.Interfaces, host.Interface{Name: "kube-ipvs0"})
		}, "w OCA-2020", "ip link delete kube-ipvs0"},
		"iptables that repeats":          {says("iptables --version", "iptables v1.8.4 (nf_tables)\n"), "w OCA-2021", "1.8.5"},
		"iptables":                       {says("iptables --version", "iptables v1.8.9 (nf_tables)\n"), "", ""},
		"NetworkManager":                 {says("systemctl is-active --quiet NetworkManager", ""), "w OCA-2022", "unmanaged-devices"},
		"NetworkManager with exceptions": {both(says("systemctl is-active --quiet NetworkManager", ""), file("/etc/NetworkManager/conf.d/k.conf", "[keyfile]\nunmanaged-devices=interface-name:flannel*\n")), "", ""},
		"nm-cloud-setup":                 {says("systemctl is-enabled --quiet nm-cloud-setup.timer", ""), "OCA-2023", "systemctl disable --now"},
		"ports of connections":           {file("/proc/sys/net/ipv4/ip_local_port_range", "1024\t65535\n"), "w OCA-2024", "ip_local_reserved_ports=30000-32767"},
		"ports as usual":                 {file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"), "", ""},
		"no localhost":                   {func(_ *testing.T, m *machine) { m.local = lookup(nil) }, "OCA-1054", "127.0.0.1 localhost"},
		"four name servers":              {file("/etc/resolv.conf", strings.Repeat("nameserver 192.0.2.1\n", 4)), "w OCA-1055", "the machine has 4"},
		"a wildcard": {both(file("/etc/resolv.conf", "search example.org\nnameserver 192.0.2.1\n"), func(_ *testing.T, m *machine) {
			m.local = lookup(map[string]string{"localhost": "::1", "ocadm-looks-for-a-wildcard.example.org.": "203.0.113.9"})
		}), "w OCA-1056", "203.0.113.9"},
		"a proxy that does not answer": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.HTTPSProxy = "http://user:canary@proxy.example.org:3128"
			m.reach = func(_ context.Context, at string) error { return errors.New("connecting to " + at + ": refused") }
		}, "OCA-2025", "proxy.example.org:3128"},
	} {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			c.change(t, m)
			m.h.Exec = host.ReadOnly(m.h.Exec) // a dry run finds as much
			got, said := "", ""
			for _, f := range gather(t.Context(), m, slices.Concat(systemChecks(), mountChecks(), linkChecks()), map[string]float64{}) {
				if got != "" {
					got += ", "
				}
				if f.Severity == finding.Warning {
					got += "w "
				}
				got += f.Code
				said += f.What + "\n" + f.Cause + "\n" + f.Remedy + "\n"
				if f.What == "" || f.Cause == "" || f.Remedy == "" || strings.HasSuffix(f.What, ".") {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if got != c.want || !strings.Contains(said, c.says) || strings.Contains(said, "canary") {
				t.Errorf("found %q, want %q with %q:\n%s", got, c.want, c.says, said)
			}
		})
	}
}

func slowly(d time.Duration) func(context.Context, string) (time.Duration, error) {
	return func(context.Context, string) (time.Duration, error) { return d, nil }
}

func lookup(all map[string]string) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, name string) ([]string, error) {
		if a, there := all[name]; there {
			return []string{a}, nil
		}
		return nil, errors.New("no such host")
	}
}

// narrow makes pings of one size get lost; others decides about the rest.
func narrow(lost string, others bool) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		joins(m)
		put(t, m.h, "/sys/class/net/eth0/mtu", "1500\n")
		if others {
			answer(m, "ping -M do -c 1 -W 1 -s 1000 192.0.2.1", "1 packets transmitted, 1 received, 0% packet loss\n")
		}
		answer(m, "ping -M do -c 1 -W 1 "+lost+" 192.0.2.1", "1 packets transmitted, 0 received, 100% packet loss\n")
	}
}

// TestSyncOn writes to a real disk.
func TestSyncOn(t *testing.T) {
	dir := t.TempDir()
	took, err := syncOn(t.Context(), dir+"/not/there/yet")
	if err != nil || took <= 0 {
		t.Errorf("%s, %v", took, err)
	}
	if total, _, err := inodesOf(dir + "/not/there/yet"); err != nil {
		t.Errorf("%d inodes: %v", total, err)
	}
	if err := reach(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("port 1 answers")
	}
}

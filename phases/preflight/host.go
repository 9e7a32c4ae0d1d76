// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func hostChecks() []Check {
	return []Check{
		{Name: "Root", Short: "the command runs as root", Codes: []string{"OCA-1001"}, run: checkRoot},
		{Name: "System", Short: "Linux with systemd on a supported architecture", Codes: []string{"OCA-1002", "OCA-1003"}, run: checkSystem},
		{Name: "NodeState", Short: "no other Kubernetes, and no Kubernetes of another release of ocadm, is on the machine",
			Codes: []string{"OCA-1004", "OCA-1005", "OCA-1006", "OCA-1007", "OCA-1027", "OCA-1057", "OCA-4108"}, run: checkNodeState},
		{Name: "CPU", Short: "enough processors for a control plane", Codes: []string{"OCA-1008"}, Applies: onControlPlane, run: checkCPU},
		{Name: "Memory", Short: "enough memory", Codes: []string{"OCA-1009"}, run: checkMemory},
		{Name: "Swap", Short: "swap is off", Codes: []string{"OCA-1010"}, run: checkSwap},
		{Name: "Cgroups", Short: "cgroup v2 with the controllers that the kubelet needs", Codes: []string{"OCA-1011", "OCA-1012"}, run: checkCgroups},
		{Name: "Kernel", Short: "the kernel has what pods and their network need", Codes: []string{"OCA-1013", "OCA-1025", "OCA-1028"}, run: checkKernel},
		{Name: "SELinux", Short: "SELinux does not confine containerd and pods", Codes: []string{"OCA-1026"}, run: checkSELinux},
		{Name: "Tools", Short: "programs that the kubelet calls are installed", Codes: []string{"OCA-1014", "OCA-1015"}, run: checkTools},
		{Name: "Disk", Short: "enough space for images, etcd and pods", Codes: []string{"OCA-1016", "OCA-1017"}, run: checkDisk},
		{Name: "Clock", Short: "the clock is synchronised", Codes: []string{"OCA-1018"}, run: func(ctx context.Context, m *machine) []finding.Finding { return Clock(ctx, m.h) }},
	}
}

func checkRoot(_ context.Context, m *machine) []finding.Finding {
	if uid := m.h.Facts.UID; uid != 0 {
		return []finding.Finding{NotRoot(uid)}
	}
	return nil
}

// NotRoot comes before everything else: without root, not even the ledger can be read.
func NotRoot(uid int) finding.Finding {
	return finding.New("OCA-1001", "This command must run as root", fmt.Sprintf("the effective user ID is %d", uid),
		"run it again with sudo; if that does not find ocadm: sudo $(command -v ocadm)")
}

func supported(arch string) bool { return arch == "amd64" || arch == "arm64" }

func checkSystem(_ context.Context, m *machine) []finding.Finding {
	var out []finding.Finding
	if m.goos != "linux" || !m.h.Facts.Systemd {
		out = append(out, finding.New("OCA-1002", "This machine does not run Linux with systemd",
			"containerd and the kubelet are run as systemd services, and /run/systemd/system does not exist",
			"run ocadm on a machine that was booted with systemd, such as Debian 12; a container without systemd is not enough"))
	}
	if arch := m.h.Facts.Arch; !supported(arch) {
		out = append(out, finding.New("OCA-1003", "The processor architecture "+arch+" is not supported", "there are no images for it",
			"use a machine with amd64 or arm64"))
	}
	return out
}

func checkCPU(_ context.Context, m *machine) []finding.Finding {
	have := m.h.Facts.CPUs
	if have >= m.limits.CPUs {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1008", "This machine has too few processors for a control plane",
		fmt.Sprintf("it has %d, and at least %d are needed", have, m.limits.CPUs),
		"give the machine more processors, or accept a slow cloud with --ignore-preflight-errors=CPU")}
}

func checkMemory(_ context.Context, m *machine) []finding.Finding {
	need := m.limits.MemoryInit
	if !m.controlPlane() {
		need = m.limits.MemoryJoin
	}
	total := m.h.Facts.Memory
	if total == 0 || total >= need { // 0: unknown
		return nil
	}
	return []finding.Finding{finding.New("OCA-1009", "This machine has too little memory",
		fmt.Sprintf("it has %s, and at least %s are needed", bytesText(total), bytesText(need)),
		"give the machine more memory, or try anyway with --ignore-preflight-errors=Memory")}
}

func checkSwap(_ context.Context, m *machine) []finding.Finding {
	devices := m.h.Facts.Swap
	if len(devices) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1010", "Swap is on", "the kubelet refuses to run with swap on "+strings.Join(devices, ", "), noSwap)}
}

// noSwap stops swap of every kind, also at boot. Editing fstab does not: when it names no swap, systemd uses the swap partitions that it finds on the disk of the
// root. Source: systemd-gpt-auto-generator(8).
const noSwap = "swapoff -a && systemctl mask swap.target"

func checkCgroups(_ context.Context, m *machine) []finding.Finding {
	remedy := m.h.Facts.OS.KernelArguments("cgroup_enable=memory", "cgroup_enable=cpuset")
	if m.h.Facts.Cgroup == 2 {
		return lacking(strings.Fields(m.h.Files.Text("/sys/fs/cgroup/cgroup.controllers")), []string{"cpu", "cpuset", "memory", "pids"}, remedy)
	}
	if !m.h.Config.Node.CgroupV1 {
		return []finding.Finding{finding.New("OCA-1011", "This machine runs cgroup v1",
			"Kubernetes 1.36 refuses it by default, and later versions will not support it",
			m.h.Facts.OS.KernelArguments("systemd.unified_cgroup_hierarchy=1")+"; or accept it for now with --allow-cgroup-v1")}
	}
	var enabled []string
	for line := range strings.Lines(m.h.Files.Text("/proc/cgroups")) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "1" {
			enabled = append(enabled, f[0])
		}
	}
	return lacking(enabled, []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}, remedy)
}

func lacking(have, need []string, remedy string) []finding.Finding {
	missing := without(need, have)
	if len(missing) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1012", "The kernel lacks cgroup controllers", "not enabled: "+strings.Join(missing, ", "), remedy)}
}

// neededTools returns the programs that every node needs. reset inspects packet rules with nft and iptables: a node that it cannot check must not be
// created.
func neededTools() []string {
	return []string{"mount", "umount", "ip", "systemctl", "modprobe", "nft", "iptables"}
}

// usefulTools returns the programs that a node can do without.
func usefulTools() []string { return []string{"ethtool"} }

func checkTools(_ context.Context, m *machine) []finding.Finding {
	lacks := func(names ...string) []string {
		return slices.DeleteFunc(names, func(n string) bool {
			_, found := host.LookPath(m.h.Files, n)
			return found
		})
	}
	var out []finding.Finding
	if l := lacks(neededTools()...); len(l) > 0 {
		out = append(out, finding.New("OCA-1014", "Required programs are missing", "the kubelet or ocadm calls "+strings.Join(l, ", "),
			m.h.Facts.OS.Install(l...)))
	}
	if l := lacks(usefulTools()...); len(l) > 0 {
		out = append(out, finding.Warn("OCA-1015", "Optional programs are missing", "some features may need "+strings.Join(l, ", "), m.h.Facts.OS.Install(l...)))
	}
	return out
}

// bundleSize returns the approximate size of the bundle in bytes; 0 without one, or if another check reports that.
func (m *machine) bundleSize(ctx context.Context) uint64 {
	if m.h.Bundle == nil && m.h.Bundled() {
		size, err := m.h.Depot.Size(ctx)
		if err != nil {
			return 0
		}
		return uint64(size)
	}
	info, err := os.Stat(m.h.Config.Node.Bundle)
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

func checkDisk(ctx context.Context, m *machine) []finding.Finding {
	type demand struct {
		path string
		need uint64
	}
	demands := []demand{{"/var/lib/containerd", m.limits.DiskImages}, {"/var/lib/kubelet", m.limits.DiskKubelet}}
	if m.controlPlane() {
		demands = append(demands, demand{"/var/lib/etcd", m.limits.DiskEtcd})
	}
	if m.controlPlane() && m.h.Config.Node.Depot != config.None {
		// The depot stores the bundle's contents, and stops before less than its reserve is left.
		demands = append(demands, demand{depot.DefaultDir, depotphase.Reserve + m.bundleSize(ctx)})
	}
	if m.joined() || len(m.h.Ledger.Created(host.KindImage)) > 0 {
		return nil // images and data now use that space, also those of an interrupted run; the kubelet watches the rest
	}
	type filesystem struct {
		free, need uint64
		paths      []string
	}
	var devices []uint64
	on := map[uint64]*filesystem{}
	var out []finding.Finding
	for _, d := range demands {
		device, free, err := m.disk(d.path)
		if err != nil {
			out = append(out, finding.Warn("OCA-1017", "The free space of "+d.path+" is unknown", err.Error(), "df -h "+d.path))
			continue
		}
		if on[device] == nil {
			on[device] = &filesystem{free: free}
			devices = append(devices, device)
		}
		on[device].need += d.need
		on[device].paths = append(on[device].paths, d.path)
	}
	for _, device := range devices {
		if f := on[device]; f.free < f.need {
			paths := strings.Join(f.paths, ", ")
			out = append(out, finding.New("OCA-1016", "There is too little disk space for "+paths,
				fmt.Sprintf("%s are free there, and %s are needed", bytesText(f.free), bytesText(f.need)),
				"free some space (df -h "+strings.ReplaceAll(paths, ",", "")+"), or mount a larger disk there, or accept it with --ignore-preflight-errors=Disk"))
		}
	}
	return out
}

// Clock returns the finding about a clock that is not synchronized.
func Clock(ctx context.Context, h *host.Host) []finding.Finding {
	res, err := h.Exec.Run(ctx, exec.Command{Path: "timedatectl", Args: []string{"show", "-p", "NTPSynchronized", "--value"}})
	if err != nil || strings.TrimSpace(res.Stdout) != "no" {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1018", "The clock is not synchronised", "certificates and tokens of machines whose clocks differ are refused",
		"timedatectl set-ntp true; if there is no NTP service, first: "+h.Facts.OS.Install("chronyd"))}
}

// feature is something that the kernel must have, built in or as a module.
type feature struct {
	module, option, why string
	applies             func(*config.Config) bool
}

func features() []feature {
	return []feature{
		{module: "overlay", option: "CONFIG_OVERLAY_FS", why: "containerd"},
		{module: "br_netfilter", option: "CONFIG_BRIDGE_NETFILTER", why: "traffic to services between pods of one node"},
		{module: "vxlan", option: "CONFIG_VXLAN", why: "the pod network", applies: func(c *config.Config) bool { return c.Addons.CNI != "none" }},
		{module: "nf_tables", option: "CONFIG_NF_TABLES", why: "kube-proxy", applies: func(c *config.Config) bool { return c.Cluster.ProxyMode != config.ProxyIPTables }},
		{module: "nf_conntrack", option: "CONFIG_NF_CONNTRACK", why: "kube-proxy"},
	}
}

// oldestKernel is that of Red Hat 8, the oldest distribution still maintained. kubeadm's own check, which ocadm does not run, wants 5.4.
const oldestKernel = "4.18"

// ancientKernel rejects a kernel older than oldestKernel. A release in an unknown format is assumed to be new enough.
func (m *machine) ancientKernel() []finding.Finding {
	v, err := version.ParseGeneric(m.h.Facts.Kernel)
	if err != nil || v.AtLeast(version.MustParseGeneric(oldestKernel)) {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1028", "The kernel of this machine is too old for Kubernetes",
		fmt.Sprintf("it is %s, and %s or later is needed", m.h.Facts.Kernel, oldestKernel), "boot a newer kernel, or use a newer release of the distribution")}
}

// oldKernel compares the kernel with the mode of kube-proxy. A worker uses its cluster's mode, which the check ControlPlane covers.
func (m *machine) oldKernel() []finding.Finding {
	release := m.h.Facts.Kernel
	if m.kind != Init || kubernetes.NFTablesKernel(release) {
		return nil
	}
	cause := fmt.Sprintf("its kernel is %s, and the nftables mode of kube-proxy needs %s or later", release, kubernetes.OldestNFTablesKernel)
	if m.h.Config.Cluster.ProxyMode == config.ProxyIPTables {
		return []finding.Finding{finding.Warn("OCA-1025", "kube-proxy uses iptables on this cluster", cause, "for nftables, boot a newer kernel before ocadm init")}
	}
	return []finding.Finding{finding.New("OCA-1025", "The kernel of this machine is too old for kube-proxy in nftables mode", cause,
		"omit --proxy-mode, or give --proxy-mode "+config.ProxyIPTables+", or boot a newer kernel")}
}

func checkKernel(_ context.Context, m *machine) []finding.Finding {
	release := m.h.Facts.Kernel
	kernel := m.h.Modules()
	options := m.h.Files.Text("/boot/config-" + release)
	out := m.ancientKernel()
	if len(out) == 0 {
		out = m.oldKernel()
	}
	for _, f := range features() {
		if f.applies != nil && !f.applies(m.h.Config) || kernel.Has(f.module) || strings.Contains(options, f.option+"=y\n") {
			continue
		}
		// A kernel without a module directory and configuration gets the benefit of the doubt.
		if !kernel.Known && !strings.Contains(options, "# "+f.option+" is not set\n") {
			continue
		}
		out = append(out, finding.New("OCA-1013", "The kernel lacks "+f.module, fmt.Sprintf("%s needs it (%s)", f.why, f.option),
			fmt.Sprintf("modprobe %s; if that fails: %s", f.module, m.h.Facts.OS.InstallKernelModules(release))))
	}
	return out
}

const permissive = "setenforce 0 && sed -i 's/^SELINUX=enforcing/SELINUX=permissive/' /etc/selinux/config"

var (
	selinuxType   = regexp.MustCompile(`(?m)^\s*SELINUXTYPE\s*=\s*(\w+)`)
	enableSELinux = regexp.MustCompile(`(?m)^\s*enable_selinux\s*=\s*true`)
)

// checkSELinux checks a machine on which SELinux is enforcing. ocadm's containerd does not label containers (enable_selinux is off by default), so they run
// in containerd's own domain: in the policy "targeted" that is an unconfined one, and with the policy of package container-selinux it is
// container_runtime_t, which is unconfined too. What cannot work is a policy without unconfined domains, or a containerd that does label: the host
// directories that pods of the cluster mount have no container label.
func checkSELinux(_ context.Context, m *machine) []finding.Finding {
	if strings.TrimSpace(m.h.Files.Text("/sys/fs/selinux/enforce")) != "1" {
		return nil // off, permissive, or not in the kernel
	}
	if policy := selinuxType.FindStringSubmatch(m.h.Files.Text("/etc/selinux/config")); policy != nil && policy[1] != "targeted" {
		return []finding.Finding{finding.New("OCA-1026", "SELinux would confine containerd and the kubelet",
			"it is enforcing with the policy "+policy[1]+", which has no rules for them", permissive)}
	}
	if enableSELinux.MatchString(m.h.Files.Text("/etc/containerd/config.toml")) {
		return []finding.Finding{finding.New("OCA-1026", "SELinux would deny pods access to the directories of this machine",
			"it is enforcing, and enable_selinux = true in /etc/containerd/config.toml confines containers; the directories "+
				"that the cluster's pods mount from this machine are not labelled for them",
			"set enable_selinux = false and run systemctl restart containerd; or "+permissive)}
	}
	cause := "ocadm sets up no confinement: containers run in containerd's domain, which the policy leaves unconfined"
	if !m.h.Files.Any("/var/lib/selinux/*/active/modules/*/container", "/etc/selinux/*/active/modules/*/container") {
		cause += "; the policy for containers is not installed (" + m.h.Facts.OS.Install("container-selinux") + ")"
	}
	return []finding.Finding{finding.Warn("OCA-1026", "SELinux is enforcing", cause,
		"if a service reports \"Permission denied\", look at ausearch -m avc -ts recent, and make SELinux permissive: "+permissive)}
}

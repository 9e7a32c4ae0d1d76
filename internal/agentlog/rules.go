// SPDX-License-Identifier: Apache-2.0

package agentlog

import (
	"regexp"

	"yunion.io/x/ocadm/internal/finding"
)

// Rule explains a log line. The lines come from yunionio/cloudpods (pkg/hostman, pkg/compute/models/hosts.go), the explanations from there and from
// the project's issues.
type Rule struct {
	Code  string
	Match *regexp.Regexp
	// Severity is finding.Error unless the problem alone stops nothing.
	Severity finding.Severity
	// What, Cause and Remedy may refer to groups of Match: ${ip}.
	What, Cause, Remedy string
}

// Rules returns the rules in order of precedence: the first that matches a line explains it.
func Rules() []Rule { return rules }

var rules = append(append(append([]Rule{}, nodeRules...), networkRules...), identityRules...)

// nodeRules are about the software on the node that the agents depend on.
var nodeRules = []Rule{
	{
		// This comes first: every step that goes through the executor fails with this text in its own line.
		Code: "OCA-7110", Match: regexp.MustCompile(`grpc dial error`),
		What:   "The agents cannot reach the executor",
		Cause:  "no executor serves /var/run/onecloud/exec.sock on the node, so no agent can run a program there; each attempt takes 30 s",
		Remedy: "on the node: systemctl enable --now yunion-executor; journalctl -u yunion-executor -n 50",
	},
	{
		Code: "OCA-7110", Match: regexp.MustCompile(`NewRemoteCommandAsFarAsPossible with stat`),
		What:   "A service cannot run a program on the node",
		Cause:  "glance or a host agent looks at a file through the executor and gets no answer; an upload of an image ends in state killed",
		Remedy: "on the node: systemctl enable --now yunion-executor; ocadm node doctor",
	},
	{
		Code: "OCA-7111", Match: regexp.MustCompile(`New kubelet config by dir|Get docker info`),
		What:   "The host agent looks for Docker and exits",
		Cause:  "host.conf lacks disable_probe_kubelet: true, which a node with containerd needs",
		Remedy: "on the node: ocadm join phase compute --enable-host-agent; or add to /etc/yunion/host.conf: disable_probe_kubelet: true",
	},
	{
		Code: "OCA-7112", Match: regexp.MustCompile(`Failed to load openvswitch kernel modules`),
		What:   "The module openvswitch cannot be loaded",
		Cause:  "the kernel has no such module, or the distribution's Open vSwitch service conflicts with it",
		Remedy: "on the node: modprobe openvswitch; systemctl mask --now openvswitch-switch openvswitch",
	},
	{
		Code: "OCA-7112", Match: regexp.MustCompile(`Failed to activate (?P<what>tun/tap|ifb) device`),
		What:   "The kernel module for ${what} cannot be loaded",
		Cause:  "the agent runs modprobe on the node at every start; it must succeed even where the module is built in",
		Remedy: "on the node: modprobe tun && modprobe ifb; its output shows which kernel package is missing",
	},
	{
		Code: "OCA-7113", Match: regexp.MustCompile(`(?:Guest manager init python path|No python/python2/python3 found)`),
		What:   "The node has no python3",
		Cause:  "the host agent starts virtual machines with a Python program on the node, and exits without Python",
		Remedy: "on the node, depending on its distribution: apt-get install -y python3, or dnf install -y python3",
	},
	{
		Code: "OCA-7114", Match: regexp.MustCompile(`Cannot initialize control group subsystem`),
		What:   "The host agent cannot use the control groups of the node",
		Cause:  "with cgroup v1 it mounts net_cls, net_prio, perf_event and hugetlb, which works only if the node itself has mounted them",
		Remedy: "use cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1), or mount these hierarchies on the node; stat -fc %T /sys/fs/cgroup shows the version",
	},
	{
		Code: "OCA-7115", Match: regexp.MustCompile(`service openvswitch not installed and wait ovs service timeout`),
		What:   "Open vSwitch does not answer the host agent",
		Cause:  "the pods host-ovsdb-server and host-ovs-vswitchd of the node are not ready, or their sockets are in another directory",
		Remedy: "kubectl get pods -A -o wide | grep -E 'ovsdb|vswitchd'; on the node: ls -l /var/run/openvswitch",
	},
	{
		Code: "OCA-7116", Match: regexp.MustCompile(`Setup OVN Chassis: normalize db host: dns lookup`),
		What:   "The host agent cannot resolve the name of the OVN database",
		Cause:  "the cluster's DNS is not reachable from the network of the host, or component ovn-north does not run",
		Remedy: "kubectl get pods -n kube-system -l k8s-app=kube-dns; or set ovn_south_database: tcp:ADDRESS:32242 in /etc/yunion/host_local.conf",
	},
	{
		Code: "OCA-7117", Match: regexp.MustCompile(`Not enough storage space!`),
		What:   "The host agent has no space for disks",
		Cause:  "no directory of local_image_path has 128 MiB free, or the list is empty",
		Remedy: "on the node: df -h /opt/cloud; grep local_image_path /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7118", Match: regexp.MustCompile(`hugepage (?P<size>\d+) nr 0`),
		What:   "No huge pages of ${size} MB are reserved",
		Cause:  "host.conf has hugepages_option: native, and the kernel has reserved none",
		Remedy: "set hugepages_option: transparent in /etc/yunion/host.conf, or boot with: default_hugepagesz=1G hugepagesz=1G hugepages=NUMBER",
	},
	{
		Code: "OCA-7119", Match: regexp.MustCompile(`detect qemu version: Qemu not installed|Qemu not installed$`), Severity: finding.Warning,
		What:   "The node has no QEMU",
		Cause:  "/usr/local/qemu-VERSION/bin, /usr/local/bin and /usr/bin contain none; the agent runs, but virtual machines cannot",
		Remedy: "install QEMU on the node, then restart the agent: kubectl delete pod of component host on this node",
	},
	{
		Code: "OCA-7119", Match: regexp.MustCompile(`Qemu comand driver (?P<version>[^\s",]+) \S+ not registered`),
		What:   "The agents do not support QEMU ${version}",
		Cause:  "they support the versions 2.12.1, 4.0.1, 4.2.0, 9.0.1, 10.0.3 and 10.0.7",
		Remedy: "set default_qemu_version: 10.0.7 in /etc/yunion/host_local.conf on the node, and start servers without another qemu_version",
	},
	{
		Code: "OCA-7120", Match: regexp.MustCompile(`(?i)failed startup probe`),
		What:   "The host agent was restarted because it took too long to start",
		Cause:  "probing the node's graphics cards takes longer than the start-up probe allows",
		Remedy: "set disable_gpu: true in /etc/yunion/host_local.conf on nodes without GPU passthrough; or update the cloud: its probe now allows 50 minutes",
	},
	{
		Code: "OCA-7121", Match: regexp.MustCompile(`hostPath type check failed: (?P<path>[^\s",]+)`),
		What:   "The directory ${path} is missing on the node",
		Cause:  "the agents' pods mount it and wait until it exists",
		Remedy: "on the node: ocadm join phase compute --enable-host-agent; or: mkdir -p ${path}",
	},
	{
		Code: "OCA-7122", Match: regexp.MustCompile(`chntpw\.static`), Severity: finding.Warning,
		What:   "The image of host-deployer lacks chntpw.static",
		Cause:  "the program that sets passwords of Windows is not where host-deployer looks",
		Remedy: "use the published image of host-deployer; to see which image is used: kubectl get pods -A -l app.kubernetes.io/component=host-deployer -o jsonpath='{..image}'",
	},
	{
		Code: "OCA-7123", Match: regexp.MustCompile(`telegraf\.conf: no such file`), Severity: finding.Warning,
		What:   "Telegraf waits for the host agent",
		Cause:  "the host agent writes /etc/telegraf/telegraf.conf once it has registered; this line is only a consequence",
		Remedy: "look for the cause in the log of the host agent: kubectl logs POD -c host",
	},
	{
		Code: "OCA-7123", Match: regexp.MustCompile(`virtlogd: command not found`), Severity: finding.Warning,
		What:   "host-deployer found no virtlogd",
		Cause:  "the line is harmless: virtlogd is not needed",
		Remedy: "nothing to do",
	},
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// KernelPhase is the name of Kernel.
const KernelPhase = "node-kernel"

const (
	modulesFile = "/etc/modules-load.d/ocadm.conf"
	sysctlFile  = "/etc/sysctl.d/90-ocadm.conf"
)

// modules returns the kernel modules that a node uses.
func modules() []string {
	return append(neededModules(), "nf_conntrack", "vxlan", "nf_tables", "tun")
}

// neededModules returns the modules without which a node cannot work.
func neededModules() []string { return []string{"overlay", "br_netfilter"} }

// parameter is a kernel parameter. With least, a larger value stays. One that is not needed may be impossible to set, for example if the machine is a
// container.
type parameter struct {
	name, value   string
	needed, least bool
	why           string
}

func parameters() []parameter {
	return []parameter{
		{name: "net.ipv4.ip_forward", value: "1", needed: true, why: "pods reach each other and the world through this machine"},
		{name: "net.bridge.bridge-nf-call-iptables", value: "1", needed: true, why: "the rules of services apply to traffic between pods of one node"},
		{name: "net.bridge.bridge-nf-call-ip6tables", value: "1", why: "the same for IPv6"},
		{name: "vm.overcommit_memory", value: "1", why: "the kubelet expects it"},
		{name: "kernel.panic", value: "10", why: "the kubelet expects it: reboot after a panic"},
		{name: "kernel.panic_on_oops", value: "1", why: "the kubelet expects it"},
		{name: "fs.inotify.max_user_instances", value: "8192", least: true, why: "every container's log is watched"},
		{name: "fs.inotify.max_user_watches", value: "524288", least: true, why: "every container's log is watched"},
		{name: "net.ipv4.neigh.default.gc_thresh1", value: "1024", least: true, why: "many pods need many neighbour entries"},
		{name: "net.ipv4.neigh.default.gc_thresh2", value: "4096", least: true, why: "many pods need many neighbour entries"},
		{name: "net.ipv4.neigh.default.gc_thresh3", value: "8192", least: true, why: "many pods need many neighbour entries"},
		{name: "net.ipv4.tcp_retries2", value: "7", why: "a connection to a dead peer ends within a minute"},
		{name: "net.ipv4.tcp_keepalive_time", value: "13", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_keepalive_intvl", value: "7", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_keepalive_probes", value: "3", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_mtu_probing", value: "2", why: "tunnels may carry smaller packets than they report"},
		{name: "net.netfilter.nf_conntrack_tcp_be_liberal", value: "1", why: "late packets do not end a service's connections"},
	}
}

// Kernel loads the modules and sets the kernel parameters of a node, now and at every boot.
func Kernel() host.Phase {
	return host.Phase{
		Name: KernelPhase, Short: "Load kernel modules and set kernel parameters",
		After: []string{"preflight"},
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			if len(kernelFiles(h).Todo(h)) > 0 {
				return false, nil
			}
			for _, p := range parameters() {
				if got, err := h.Files.Sysctl(p.name); p.needed && (err != nil || got != p.wanted(got)) {
					return false, nil //nolint:nilerr // unreadable until its module is loaded
				}
			}
			return true, nil
		},
		Plan: planKernel, Run: runKernel, Verify: verifyKernel, Undo: undoKernel,
	}
}

// wanted returns the value that the parameter should have if its current value is now.
func (p parameter) wanted(now string) string {
	if !p.least {
		return p.value
	}
	have, err := strconv.ParseInt(now, 10, 64)
	want, werr := strconv.ParseInt(p.value, 10, 64)
	if err == nil && werr == nil && have > want {
		return now
	}
	return p.value
}

func kernelFiles(h *host.Host) host.FileSet {
	mods := "# Written by ocadm.\n" + strings.Join(modules(), "\n") + "\n"
	var params strings.Builder
	params.WriteString("# Written by ocadm.\n")
	for _, p := range parameters() {
		now, _ := h.Files.Sysctl(p.name) // an unreadable one has no larger value
		optional := "-"
		if p.needed {
			optional = ""
		}
		fmt.Fprintf(&params, "# %s\n%s%s = %s\n", p.why, optional, p.name, p.wanted(now))
	}
	return host.FileSet{{Name: modulesFile, Data: []byte(mods), Mode: unitMode}, {Name: sysctlFile, Data: []byte(params.String()), Mode: unitMode}}
}

func planKernel(_ context.Context, h *host.Host) ([]string, error) {
	lines := kernelFiles(h).Todo(h)
	kernel := h.Modules()
	lines = append(lines, lists.Pick(modules(), func(m string) (string, bool) { return "load the kernel module " + m, !kernel.Active(m) })...)
	for _, p := range parameters() {
		if got, err := h.Files.Sysctl(p.name); err != nil && p.needed || err == nil && got != p.wanted(got) {
			lines = append(lines, fmt.Sprintf("set %s = %s", p.name, p.wanted(got)))
		}
	}
	return lines, nil
}

func runKernel(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	kernel := h.Modules()
	for _, m := range modules() {
		if kernel.Active(m) {
			continue
		}
		if err := h.Modprobe(ctx, m); err != nil {
			if slices.Contains(neededModules(), m) && !kernel.Active(m) {
				return finding.Errorf(CodeKernelFeature, "The kernel lacks "+m,
					h.Facts.OS.InstallKernelModules(h.Facts.Kernel)+", or boot a kernel that has it", "%w", err)
			}
			continue // built in, or not needed on every node
		}
		r.Changed("loaded the kernel module %s", m)
	}
	if _, err := kernelFiles(h).Write(h, r); err != nil {
		return err
	}
	var beyond []string
	for _, p := range parameters() {
		now, err := h.Files.Sysctl(p.name)
		var changed bool
		if err == nil {
			changed, err = h.Files.SetSysctl(p.name, p.wanted(now))
		}
		switch {
		case err != nil && p.needed:
			return finding.Errorf(CodeKernelParameter, fmt.Sprintf("The kernel parameter %s cannot be set to %s", p.name, p.value),
				fmt.Sprintf("sysctl -w %s=%s", p.name, p.value), "%w", err)
		case err != nil:
			beyond = append(beyond, p.name)
		case changed:
			r.Changed("set %s = %s", p.name, p.wanted(now))
		}
	}
	if len(beyond) > 0 {
		r.Info("continuing without kernel parameters that cannot be set on this machine: %s", strings.Join(beyond, ", "))
	}
	return nil
}

func verifyKernel(_ context.Context, h *host.Host) error {
	for _, p := range parameters() {
		got, err := h.Files.Sysctl(p.name)
		if p.needed && (err != nil || got != p.wanted(got)) {
			return finding.New(CodeKernelParameter, fmt.Sprintf("The kernel parameter %s is %q, want %s", p.name, got, p.value),
				"another program or file on this machine sets it", "grep -r "+p.name+" /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d").Wrap(err)
		}
	}
	return nil
}

func undoKernel(_ context.Context, h *host.Host, r workflow.Reporter) error {
	for _, e := range h.Ledger.Created(host.KindSysctl) {
		if err := h.Files.RestoreSysctl(e); err != nil {
			return err
		}
		r.Changed("set %s = %s", e.Name, e.Previous)
	}
	_, err := h.Undo(r, modulesFile, sysctlFile)
	return err
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// KernelPhase is the name of Kernel.
const KernelPhase = "node-kernel"

const (
	modulesFile = "/etc/modules-load.d/ocadm.conf"
	sysctlFile  = "/etc/sysctl.d/90-ocadm.conf"
)

// module is a kernel module that a node uses.
type module struct {
	name string
	// sign is a file, or a line of /proc/filesystems, that is there when the kernel has it; needed ones without it are an error.
	sign   string
	needed bool
}

func modules() []module {
	return []module{
		{name: "overlay", sign: "/proc/filesystems", needed: true},
		{name: "br_netfilter", sign: "/proc/sys/net/bridge/bridge-nf-call-iptables", needed: true},
		{name: "nf_conntrack", sign: "/proc/sys/net/netfilter/nf_conntrack_max"},
		{name: "vxlan"},
		{name: "nf_tables"},
		{name: "tun"},
	}
}

// present reports whether the kernel has the module, loaded or built in.
func (m module) present(h *host.Host) bool {
	if m.sign == "" {
		return h.Files.Exists("/sys/module/" + m.name)
	}
	if m.sign != "/proc/filesystems" {
		return h.Files.Exists(m.sign)
	}
	raw, err := h.Files.ReadFile(m.sign)
	return err == nil && strings.Contains(string(raw), "\t"+m.name+"\n")
}

// parameter is a kernel parameter. least leaves a value that is larger. One that is not needed may be beyond reach, as it is in a
// machine that is a container.
type parameter struct {
	name, value   string
	needed, least bool
	why           string
}

func parameters() []parameter {
	return []parameter{
		{name: "net.ipv4.ip_forward", value: "1", needed: true, why: "pods reach each other and the world through this machine"},
		{name: "net.bridge.bridge-nf-call-iptables", value: "1", needed: true, why: "traffic between pods of one node sees the rules of services"},
		{name: "net.bridge.bridge-nf-call-ip6tables", value: "1", why: "the same for IPv6"},
		{name: "vm.overcommit_memory", value: "1", why: "what the kubelet wants"},
		{name: "kernel.panic", value: "10", why: "what the kubelet wants: reboot after a panic"},
		{name: "kernel.panic_on_oops", value: "1", why: "what the kubelet wants"},
		{name: "fs.inotify.max_user_instances", value: "8192", least: true, why: "every container's log is watched"},
		{name: "fs.inotify.max_user_watches", value: "524288", least: true, why: "every container's log is watched"},
		{name: "net.ipv4.neigh.default.gc_thresh1", value: "1024", least: true, why: "many pods are many neighbours"},
		{name: "net.ipv4.neigh.default.gc_thresh2", value: "4096", least: true, why: "many pods are many neighbours"},
		{name: "net.ipv4.neigh.default.gc_thresh3", value: "8192", least: true, why: "many pods are many neighbours"},
		{name: "net.ipv4.tcp_retries2", value: "7", why: "a connection to a dead peer ends within a minute"},
		{name: "net.ipv4.tcp_keepalive_time", value: "13", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_keepalive_intvl", value: "7", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_keepalive_probes", value: "3", why: "an idle connection to a dead peer is noticed"},
		{name: "net.ipv4.tcp_mtu_probing", value: "2", why: "tunnels with smaller packets than they say"},
		{name: "net.netfilter.nf_conntrack_tcp_be_liberal", value: "1", why: "late packets do not end a service's connections"},
	}
}

// Kernel loads the modules and sets the kernel parameters of a node, now and at every boot.
func Kernel() host.Phase {
	return host.Phase{
		Name: KernelPhase, Short: "Load kernel modules and set kernel parameters",
		After: []string{"preflight"},
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			for n, data := range kernelFiles(h) {
				if describe(h, n, data, unitMode) != "" {
					return false, nil
				}
			}
			for _, p := range parameters() {
				if got, err := h.Files.Sysctl(p.name); p.needed && (err != nil || got != p.wanted(got)) {
					return false, nil //nolint:nilerr // not to be read: its module has yet to be loaded
				}
			}
			return true, nil
		},
		Plan: planKernel,
		Run:  runKernel,
		Verify: func(_ context.Context, h *host.Host) error {
			return verifyKernel(h)
		},
		Undo: undoKernel,
	}
}

// wanted is the value that a parameter with the value now should have.
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

func kernelFiles(h *host.Host) map[string][]byte {
	var mods, params strings.Builder
	mods.WriteString("# Written by ocadm.\n")
	for _, m := range modules() {
		mods.WriteString(m.name + "\n")
	}
	params.WriteString("# Written by ocadm.\n")
	for _, p := range parameters() {
		now, _ := h.Files.Sysctl(p.name) // one that cannot be read has no larger value
		optional := "-"
		if p.needed {
			optional = ""
		}
		fmt.Fprintf(&params, "# %s\n%s%s = %s\n", p.why, optional, p.name, p.wanted(now))
	}
	return map[string][]byte{modulesFile: []byte(mods.String()), sysctlFile: []byte(params.String())}
}

func planKernel(_ context.Context, h *host.Host) ([]string, error) {
	var lines []string
	files := kernelFiles(h)
	for _, n := range []string{modulesFile, sysctlFile} {
		if line := describe(h, n, files[n], unitMode); line != "" {
			lines = append(lines, line)
		}
	}
	for _, m := range modules() {
		if !m.present(h) {
			lines = append(lines, "load the kernel module "+m.name)
		}
	}
	for _, p := range parameters() {
		if got, err := h.Files.Sysctl(p.name); err != nil && p.needed || err == nil && got != p.wanted(got) {
			lines = append(lines, fmt.Sprintf("set %s = %s", p.name, p.wanted(got)))
		}
	}
	return lines, nil
}

func runKernel(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	for _, m := range modules() {
		if m.present(h) {
			continue
		}
		if _, err := h.Exec.Run(ctx, exec.Command{Path: "modprobe", Args: []string{m.name}}); err != nil {
			if m.needed && !m.present(h) {
				return finding.Errorf(CodeKernelFeature, "the kernel lacks "+m.name,
					h.Facts.OS.InstallKernelModules(h.Facts.Kernel)+", or boot a kernel that has it", "%w", err)
			}
			continue // built in, or not needed by everybody
		}
		r.Changed("loaded the kernel module %s", m.name)
	}
	for n, data := range kernelFiles(h) {
		changed, err := h.Files.Write(n, data, unitMode)
		if err != nil {
			return err
		}
		if changed {
			r.Changed("wrote %s", n)
		}
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
			return finding.Errorf(CodeKernelParameter, fmt.Sprintf("the kernel parameter %s cannot be set to %s", p.name, p.value),
				fmt.Sprintf("sysctl -w %s=%s", p.name, p.value), "%w", err)
		case err != nil:
			beyond = append(beyond, p.name)
		case changed:
			r.Changed("set %s = %s", p.name, p.wanted(now))
		}
	}
	if len(beyond) > 0 {
		r.Info("going on without kernel parameters that cannot be set on this machine: %s", strings.Join(beyond, ", "))
	}
	return nil
}

func verifyKernel(h *host.Host) error {
	for _, p := range parameters() {
		got, err := h.Files.Sysctl(p.name)
		if p.needed && (err != nil || got != p.wanted(got)) {
			return finding.Finding{
				Code: CodeKernelParameter, Severity: finding.Error, Err: err,
				What:   fmt.Sprintf("the kernel parameter %s is %q, want %s", p.name, got, p.value),
				Cause:  "something else on this machine sets it",
				Remedy: "grep -r " + p.name + " /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d",
			}
		}
	}
	return nil
}

func undoKernel(_ context.Context, h *host.Host, r workflow.Reporter) error {
	for _, e := range h.Ledger.Created() {
		if e.Kind != host.KindSysctl {
			continue
		}
		if err := h.Files.RestoreSysctl(e); err != nil {
			return err
		}
		r.Changed("set %s = %s", e.Name, e.Previous)
	}
	undone, err := undo(h, modulesFile, sysctlFile)
	for _, n := range undone {
		r.Changed("removed %s", n)
	}
	return err
}

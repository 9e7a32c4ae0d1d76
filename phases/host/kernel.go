// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
)

// Modules describes which features the running kernel has, built in or as modules.
type Modules struct {
	files             Files
	builtin, loadable string
	// Known reports whether the kernel's directory lists the loadable modules. Without that list, nothing is known about a module.
	Known bool
}

// ModulesDir is the directory of the running kernel's modules.
func (h *Host) ModulesDir() string { return "/lib/modules/" + h.Facts.Kernel }

// Modules reads which modules the running kernel has.
func (h *Host) Modules() Modules {
	dir := h.ModulesDir()
	// File names have hyphens or underscores; module names have underscores.
	list := func(name string) string { return strings.ReplaceAll(h.Files.Text(dir+name), "-", "_") }
	return Modules{files: h.Files, builtin: list("/modules.builtin"), loadable: list("/modules.dep"), Known: h.Files.Exists(dir + "/modules.dep")}
}

// moduleSigns returns paths that exist, like /sys/module/NAME, when the kernel has what a module provides, whether loaded or built in.
func moduleSigns() map[string]string {
	return map[string]string{
		"br_netfilter": "/proc/sys/net/bridge/bridge-nf-call-iptables",
		"nf_conntrack": "/proc/sys/net/netfilter/nf_conntrack_max",
		"tun":          "/dev/net/tun",
		"vhost_net":    "/dev/vhost-net",
		"kvm_intel":    "/dev/kvm",
		"kvm_amd":      "/dev/kvm",
	}
}

// Active reports whether the kernel currently has what the module provides.
func (m Modules) Active(name string) bool {
	sign, ok := moduleSigns()[name]
	return ok && m.files.Exists(sign) || m.files.Exists("/sys/module/"+name) || strings.Contains(m.files.Text("/proc/filesystems"), "\t"+name+"\n")
}

// BuiltIn reports whether the module is part of the kernel.
func (m Modules) BuiltIn(name string) bool { return strings.Contains(m.builtin, "/"+name+".ko") }

// Loadable reports whether the kernel's directory contains the module.
func (m Modules) Loadable(name string) bool { return strings.Contains(m.loadable, "/"+name+".ko") }

// Has reports whether the kernel has the module or can load it.
func (m Modules) Has(name string) bool { return m.Active(name) || m.BuiltIn(name) || m.Loadable(name) }

// Modprobe loads a module with options.
func (h *Host) Modprobe(ctx context.Context, name string, options ...string) error {
	_, err := h.Exec.Run(ctx, exec.Command{Path: "modprobe", Args: append([]string{name}, options...)})
	return err
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// Sysctl reads a kernel parameter such as "net.ipv4.ip_forward". It collapses whitespace within the value to single spaces.
func (f Files) Sysctl(name string) (string, error) {
	raw, err := f.ReadFile(sysctlPath(name))
	return strings.Join(strings.Fields(string(raw)), " "), err
}

// SetSysctl sets a kernel parameter until the next boot and reports whether that changed anything. The ledger keeps the previous value.
func (f Files) SetSysctl(name, value string) (changed bool, err error) {
	old, err := f.Sysctl(name)
	if err != nil {
		return false, err
	}
	if old == value {
		return false, nil
	}
	if err := f.wet("set", name); err != nil {
		return false, err
	}
	// Writing before recording shows whether the parameter can be set at all: a machine that is a container may not set all of them. After a crash
	// here, reset only misses this one parameter.
	if err := os.WriteFile(f.Path(sysctlPath(name)), []byte(value), 0o644); err != nil { //nolint:gosec // its mode is the kernel's
		return false, err
	}
	if f.Ledger == nil {
		return true, nil
	}
	return true, f.Ledger.Record(Entry{Kind: KindSysctl, Name: name, Op: Changed, Previous: old})
}

// RestoreSysctl sets the parameter of a ledger entry back to its previous value, and deletes the entry.
func (f Files) RestoreSysctl(e Entry) error {
	if err := f.wet("set", e.Name); err != nil {
		return err
	}
	path := f.Path(sysctlPath(e.Name))
	if _, err := os.Stat(path); err == nil {
		if err := os.WriteFile(path, []byte(e.Previous), 0o644); err != nil { //nolint:gosec // its mode is the kernel's
			return fmt.Errorf("restoring %s: %w", e.Name, err)
		}
	}
	if f.Ledger == nil {
		return nil
	}
	return f.Ledger.Forget(e.Kind, e.Name)
}

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
)

// Modules is what the running kernel has, built in or as modules.
type Modules struct {
	files             Files
	builtin, loadable string
	// Known reports whether the kernel's directory lists the modules that can be loaded; without it nothing can be said about one.
	Known bool
}

// Modules reads what the running kernel has.
func (h *Host) Modules() Modules {
	dir := "/lib/modules/" + h.Facts.Kernel
	list := func(name string) string { return strings.ReplaceAll(h.Files.Text(dir+name), "-", "_") } // files have a hyphen where modules have an underscore, or not
	return Modules{files: h.Files, builtin: list("/modules.builtin"), loadable: list("/modules.dep"), Known: h.Files.Exists(dir + "/modules.dep")}
}

// moduleSigns are the paths that exist when the kernel has what a module brings, whether loaded or built in, beside /sys/module/NAME.
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

// Active reports whether the kernel has now what the module brings.
func (m Modules) Active(name string) bool {
	sign, ok := moduleSigns()[name]
	return ok && m.files.Exists(sign) || m.files.Exists("/sys/module/"+name) || strings.Contains(m.files.Text("/proc/filesystems"), "\t"+name+"\n")
}

// BuiltIn reports whether the module is part of the kernel.
func (m Modules) BuiltIn(name string) bool { return strings.Contains(m.builtin, "/"+name+".ko") }

// Loadable reports whether the kernel's directory has the module.
func (m Modules) Loadable(name string) bool { return strings.Contains(m.loadable, "/"+name+".ko") }

// Has reports whether the kernel has the module or can load it.
func (m Modules) Has(name string) bool { return m.Active(name) || m.BuiltIn(name) || m.Loadable(name) }

// Modprobe loads a module with options.
func (h *Host) Modprobe(ctx context.Context, name string, options ...string) error {
	_, err := h.Exec.Run(ctx, exec.Command{Path: "modprobe", Args: append([]string{name}, options...)})
	return err
}

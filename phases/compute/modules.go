// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	modulesFile       = "/etc/modules-load.d/ocadm-compute.conf"
	moduleOptionsFile = "/etc/modprobe.d/ocadm-compute.conf"
)

// module is a kernel module that the host agent or its virtual machines use.
type module struct {
	name, options string
	// sign is a file that exists when the kernel has the feature, whether as a module or built in; "" is /sys/module/NAME.
	sign string
	// needed modules are those without which the host agent does not start.
	needed bool
	// without says what does not work without it.
	without string
	applies func(*host.Host) bool
}

// modules is what the agent looks for when it starts (cloudpods, pkg/hostman/hostinfo/hostinfo.go, prepareEnv).
func modules() []module {
	cpu := func(vendor string) func(*host.Host) bool {
		return func(h *host.Host) bool {
			raw, _ := h.Files.ReadFile("/proc/cpuinfo") // not there on no CPU of this vendor
			return strings.Contains(string(raw), vendor)
		}
	}
	return []module{
		{name: "tun", sign: "/dev/net/tun", needed: true, without: "the host agent does not start"},
		{name: "ifb", options: "numifbs=0", needed: true, without: "the host agent does not start"},
		{name: "openvswitch", needed: true, without: "the host agent and Open vSwitch do not start"},
		{name: "vhost_net", sign: "/dev/vhost-net", without: "the network of virtual machines is slow"},
		{name: "kvm_intel", sign: "/dev/kvm", applies: cpu("GenuineIntel"), without: "virtual machines are emulated, which is very slow"},
		{name: "kvm_amd", sign: "/dev/kvm", applies: cpu("AuthenticAMD"), without: "virtual machines are emulated, which is very slow"},
		{name: "geneve", without: "virtual machines on different nodes cannot share a VPC network"},
		{name: "nbd", options: "max_part=16", without: "images cannot be changed with the image driver nbd, which is not the default"},
	}
}

func applicable(h *host.Host) []module {
	return slices.DeleteFunc(modules(), func(m module) bool { return m.applies != nil && !m.applies(h) })
}

// loaded reports whether the running kernel has the module now.
func (m module) loaded(h *host.Host) bool {
	return m.sign != "" && h.Files.Exists(m.sign) || h.Files.Exists("/sys/module/"+m.name)
}

// kernelModules is what the running kernel's directory lists: the modules that are built in, and those that can be loaded. known is false
// when there is no such directory; then nothing can be said about a module.
type kernelModules struct {
	builtin, loadable string
	known             bool
}

func kernelList(h *host.Host) kernelModules {
	dir := "/lib/modules/" + h.Facts.Kernel + "/"
	builtin, _ := h.Files.ReadFile(dir + "modules.builtin") // a missing list is an empty one
	loadable, err := h.Files.ReadFile(dir + "modules.dep")
	return kernelModules{builtin: string(builtin), loadable: string(loadable), known: err == nil}
}

// lists reports whether a list of the kernel names the module. Files have a hyphen where modules have an underscore, or not.
func lists(list, name string) bool {
	return strings.Contains(strings.ReplaceAll(list, "-", "_"), "/"+name+".ko")
}

func (k kernelModules) builtIn(m module) bool { return lists(k.builtin, m.name) }

func (k kernelModules) available(m module) bool { return k.builtIn(m) || lists(k.loadable, m.name) }

// Modules are the findings about kernel modules that the kernel of h cannot have.
func Modules(h *host.Host) []finding.Finding {
	k := kernelList(h)
	var needed, optional []string
	for _, m := range applicable(h) {
		switch line := m.name + ": without it " + m.without; {
		case m.loaded(h) || k.available(m) || !k.known:
		case m.needed:
			needed = append(needed, line)
		default:
			optional = append(optional, line)
		}
	}
	var out []finding.Finding
	if len(needed) > 0 {
		out = append(out, finding.Finding{Code: CodeModule, Severity: finding.Error, What: "The kernel lacks modules that a compute node needs",
			Cause: strings.Join(needed, "; "), Remedy: h.Facts.OS.InstallKernelModules(h.Facts.Kernel), Evidence: needed})
	}
	if len(optional) > 0 {
		out = append(out, finding.Finding{Code: CodeOptionalModule, Severity: finding.Warning, What: "The kernel lacks modules that a compute node can use",
			Cause: strings.Join(optional, "; "), Remedy: h.Facts.OS.InstallKernelModules(h.Facts.Kernel), Evidence: optional})
	}
	return out
}

// modulesPhase loads the modules, now and at every boot.
func modulesPhase() host.Phase {
	return host.Phase{
		Name: "modules", Short: "Load the kernel modules of virtual machines and their networks",
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			k := kernelList(h)
			if slices.ContainsFunc(applicable(h), func(m module) bool { return !m.loaded(h) && !k.builtIn(m) && k.available(m) }) {
				return false, nil
			}
			return len(moduleFiles(h).outdated(h)) == 0, nil
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			k := kernelList(h)
			var lines []string
			for _, m := range applicable(h) {
				if !m.loaded(h) && !k.builtIn(m) {
					lines = append(lines, "load the kernel module "+m.name)
				}
			}
			for _, n := range moduleFiles(h).outdated(h) {
				lines = append(lines, "write "+n)
			}
			return lines, nil
		},
		Run: loadModules,
		Undo: func(_ context.Context, h *host.Host, r workflow.Reporter) error { // modules stay loaded until the next boot
			return undoFiles(h, r, modulesFile, moduleOptionsFile)
		},
	}
}

// moduleFiles name the modules that can be loaded: systemd reports a failed unit for any other.
func moduleFiles(h *host.Host) fileSet {
	k := kernelList(h)
	load, options := "# Written by ocadm: modules of a compute node.\n", "# Written by ocadm: modules of a compute node.\n"
	for _, m := range applicable(h) {
		if k.builtIn(m) || !lists(k.loadable, m.name) {
			continue
		}
		load += m.name + "\n"
		if m.options != "" {
			options += fmt.Sprintf("options %s %s\n", m.name, m.options)
		}
	}
	return fileSet{modulesFile: load, moduleOptionsFile: options}
}

func loadModules(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	for name, data := range moduleFiles(h) {
		changed, err := h.Files.Write(name, []byte(data), fileMode)
		if err != nil {
			return err
		}
		if changed {
			r.Changed("wrote %s", name)
		}
	}
	k := kernelList(h)
	var lacking []string
	for _, m := range applicable(h) {
		if m.loaded(h) || k.builtIn(m) {
			continue
		}
		args := append([]string{m.name}, strings.Fields(m.options)...)
		_, err := h.Exec.Run(ctx, exec.Command{Path: "modprobe", Args: args})
		switch {
		case err == nil:
			r.Changed("loaded the kernel module %s", m.name)
		case ctx.Err() != nil:
			return err
		case m.needed && !ignored(h, CheckModules):
			return finding.Errorf(CodeModule, "The kernel module "+m.name+" cannot be loaded", h.Facts.OS.InstallKernelModules(h.Facts.Kernel), "%w", err)
		default:
			lacking = append(lacking, m.name+" ("+m.without+")")
		}
	}
	if len(lacking) > 0 {
		r.Info("going on without kernel modules: %s", strings.Join(lacking, ", "))
	}
	return nil
}

// ignored reports whether the user accepts what a check of preflight refuses.
func ignored(h *host.Host, check string) bool {
	return slices.ContainsFunc(h.Config.Run.IgnorePreflightErrors, func(n string) bool { return strings.EqualFold(n, check) || strings.EqualFold(n, "all") })
}

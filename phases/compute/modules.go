// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
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
	// needed marks modules without which the host agent does not start.
	needed bool
	// without describes what does not work without the module.
	without string
	applies func(*host.Host) bool
}

// modules returns the modules that the agent looks for when it starts (cloudpods, pkg/hostman/hostinfo/hostinfo.go, prepareEnv).
func modules() []module {
	cpu := func(vendor string) func(*host.Host) bool {
		return func(h *host.Host) bool { return strings.Contains(h.Files.Text("/proc/cpuinfo"), vendor) }
	}
	return []module{
		{name: "tun", needed: true, without: "the host agent does not start"},
		{name: "ifb", options: "numifbs=0", needed: true, without: "the host agent does not start"},
		{name: "openvswitch", needed: true, without: "the host agent and Open vSwitch do not start"},
		{name: "vhost_net", without: "the network of virtual machines is slow"},
		{name: "kvm_intel", applies: cpu("GenuineIntel"), without: "virtual machines are emulated, which is very slow"},
		{name: "kvm_amd", applies: cpu("AuthenticAMD"), without: "virtual machines are emulated, which is very slow"},
		{name: "geneve", without: "virtual machines on different nodes cannot share a VPC network"},
		{name: "nbd", options: "max_part=16", without: "images cannot be modified with the image driver nbd, which is not the default"},
	}
}

func applicable(h *host.Host) []module {
	return slices.DeleteFunc(modules(), func(m module) bool { return m.applies != nil && !m.applies(h) })
}

// Modules returns findings about kernel modules that are not available to the kernel of h.
func Modules(h *host.Host) []finding.Finding {
	kernel := h.Modules()
	var needed, optional, unknown []string
	for _, m := range applicable(h) {
		switch line := m.name + ": without it " + m.without; {
		case kernel.Has(m.name) || !kernel.Known && !m.needed:
		case !kernel.Known:
			unknown = append(unknown, m.name)
		case m.needed:
			needed = append(needed, line)
		default:
			optional = append(optional, line)
		}
	}
	var out []finding.Finding
	if len(needed) > 0 {
		out = append(out, finding.New(CodeModule, "The kernel lacks modules that a compute node needs", strings.Join(needed, "; "),
			installModules(h)).With(needed...))
	}
	if len(unknown) > 0 {
		out = append(out, finding.Warn(CodeModule, "Whether the kernel has the modules that a compute node needs cannot be checked",
			"there is no list of modules in "+h.ModulesDir()+", and these are not loaded: "+strings.Join(unknown, ", "),
			"try: modprobe -a "+strings.Join(unknown, " ")+"; if that fails: "+installModules(h)))
	}
	if len(optional) > 0 {
		out = append(out, finding.Warn(CodeOptionalModule, "The kernel lacks optional modules for a compute node", strings.Join(optional, "; "),
			installModules(h)).With(optional...))
	}
	return out
}

// installModules returns how to get modules. A kernel without a list of modules was built by hand, or removed by an update: there is no package for it.
func installModules(h *host.Host) string {
	if !h.Modules().Known {
		return "boot a kernel of the distribution, whose modules are installed: " + h.ModulesDir() + " has none of this one"
	}
	return h.Facts.OS.InstallKernelModules(h.Facts.Kernel)
}

// modulesPhase loads the modules, both now and at every boot.
func modulesPhase() host.Phase {
	return host.Phase{
		Name: "modules", Short: "Load the kernel modules of virtual machines and their networks",
		Run: loadModules,
		Undo: func(_ context.Context, h *host.Host, r workflow.Reporter) error { // modules stay loaded until the next boot
			_, err := h.Undo(r, modulesFile, moduleOptionsFile)
			return err
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		kernel := h.Modules()
		lines := lists.Pick(applicable(h), func(m module) (string, bool) {
			return "load the kernel module " + m.name, !kernel.Active(m.name) && !kernel.BuiltIn(m.name) && kernel.Loadable(m.name)
		})
		return append(lines, moduleFiles(h).Todo(h)...), nil
	})
}

// moduleFiles returns the files that list the loadable modules: systemd reports a failed unit for any other.
func moduleFiles(h *host.Host) host.FileSet {
	kernel := h.Modules()
	load, options := "# Written by ocadm: modules of a compute node.\n", "# Written by ocadm: modules of a compute node.\n"
	for _, m := range applicable(h) {
		if kernel.BuiltIn(m.name) || !kernel.Loadable(m.name) {
			continue
		}
		load += m.name + "\n"
		if m.options != "" {
			options += fmt.Sprintf("options %s %s\n", m.name, m.options)
		}
	}
	return host.FileSet{{Name: modulesFile, Data: []byte(load), Mode: fileMode}, {Name: moduleOptionsFile, Data: []byte(options), Mode: fileMode}}
}

func loadModules(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if _, err := moduleFiles(h).Write(h, r); err != nil {
		return err
	}
	kernel := h.Modules()
	var lacking []string
	for _, m := range applicable(h) {
		if kernel.Active(m.name) || kernel.BuiltIn(m.name) {
			continue
		}
		err := h.Modprobe(ctx, m.name, strings.Fields(m.options)...)
		switch {
		case err == nil:
			r.Changed("loaded the kernel module %s", m.name)
		case ctx.Err() != nil:
			return err
		case m.needed && !finding.Ignored(CheckModules, h.Config.Run.IgnorePreflightErrors):
			return finding.Errorf(CodeModule, "The kernel module "+m.name+" cannot be loaded",
				installModules(h)+"; if the kernel has it under another name, continue with: --ignore-preflight-errors "+CheckModules, "%w", err)
		default:
			lacking = append(lacking, m.name+" ("+m.without+")")
		}
	}
	if len(lacking) > 0 {
		r.Info("continuing without kernel modules: %s", strings.Join(lacking, ", "))
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// program is a program that the services of a compute node run on the node itself, through the executor.
type program struct {
	name string
	// needed marks programs without which the host agent exits or virtual machines do not start.
	needed bool
	why    string
}

// programs returns the programs, by the names that the services call, which a minimal installation of a distribution may lack (cloudpods, pkg/hostman
// and pkg/util). It omits programs that only certain storage or hardware needs.
func programs() []program {
	return []program{
		{"python3", true, "the host agent exits without it"},
		{"bash", true, "it starts virtual machines"},
		{"ip", true, "it connects virtual machines"},
		{"tc", true, "it limits the bandwidth of virtual machines"},
		{"modprobe", true, "the host agent loads modules"},
		{"mount", true, "storages are mounted"},
		{"findmnt", true, "storages are found"},
		{"mountpoint", true, "storages are found"},
		{"losetup", true, "disks are mounted"},
		{"lsblk", true, "disks are listed"},
		{"df", true, "the space of storages is measured"},
		{"ps", true, "virtual machines are found"},
		{"awk", true, "scripts of virtual machines call it"},
		{"grep", true, "scripts of virtual machines call it"},
		{"systemctl", true, "services are checked"},
		{"nc", false, "monitors of virtual machines are queried"},
		{"chattr", false, "files of templates are protected"},
		{"ionice", false, "images are converted in the background"},
		{"qemu-img", false, "disks and images need it"},
		{"qemu-nbd", false, "images of virtual machines are exported"},
		{"ethtool", false, "interfaces are tuned"},
	}
}

// Programs returns findings about missing programs, with the command that installs them on this machine.
func Programs(h *host.Host) []finding.Finding {
	needed, optional := lacking(h, true), lacking(h, false)
	// These are the places where the host agent looks for an emulator (cloudpods, pkg/util/qemutils).
	if !h.Files.Any("/usr/local/qemu-*/bin/qemu-system-*", "/usr/local/bin/qemu-system-*", "/usr/bin/qemu-system-*") {
		optional = append(optional, program{name: emulator(h.Facts.Arch), why: "no virtual machine starts"})
	}
	var out []finding.Finding
	report := func(list []program, code string, severity finding.Severity, what string) {
		if len(list) == 0 {
			return
		}
		var names, lines []string
		for _, p := range list {
			names, lines = append(names, p.name), append(lines, p.name+": "+p.why)
		}
		remedy := h.Facts.OS.Install(names...)
		// The Red Hat family keeps its emulator where the host agent does not look, under a name without the architecture.
		if e := emulator(h.Facts.Arch); slices.Contains(names, e) && slices.Contains(h.Facts.OS.Packages(e), "qemu-kvm") {
			remedy += "; ln -s /usr/libexec/qemu-kvm /usr/bin/" + e
		}
		out = append(out, finding.Finding{Code: code, Severity: severity, What: what, Cause: strings.Join(lines, "; "), Remedy: remedy, Evidence: lines})
	}
	report(needed, CodeProgram, finding.Error, "Programs that a compute node needs are missing")
	report(optional, CodeOptionalProgram, finding.Warning, "Programs that a compute node uses are missing")
	return out
}

// emulator returns the name of QEMU's emulator for an architecture, given by its Go name.
func emulator(arch string) string {
	if arch == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

func lacking(h *host.Host, needed bool) []program {
	return slices.DeleteFunc(programs(), func(p program) bool {
		_, found := host.LookPath(h.Files, p.name)
		return found || p.needed != needed
	})
}

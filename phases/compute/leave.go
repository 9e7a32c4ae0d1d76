// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"path"
	"strings"

	"yunion.io/x/ocadm/phases/host"
)

// Leaving describes what a machine with virtual machines, or with its address on a switch of the cloud, loses when its pods stop, one line each.
func Leaving(h *host.Host) []string {
	var out []string
	for _, i := range h.Facts.Interfaces {
		if a := globals(i); i.Kind == kindSwitch && len(a) > 0 {
			out = append(out, fmt.Sprintf("%s of this machine is on the Open vSwitch bridge %s, whose pods stop: the machine can lose its network, "+
				"so make sure that you can log in another way, such as through the console", orNone(a), i.Name))
		}
	}
	if vms := virtualMachines(h); len(vms) > 0 {
		out = append(out, fmt.Sprintf("%d virtual machines run on this machine (processes %s): they keep running, but nothing manages them, and they can lose their networks",
			len(vms), strings.Join(vms, ", ")))
	}
	return out
}

// virtualMachines returns the process IDs of running emulators.
func virtualMachines(h *host.Host) []string {
	var out []string
	for _, f := range h.Files.Glob("/proc/[0-9]*/cmdline") {
		raw, _ := h.Files.ReadFile(f) // a process that has ended does not count
		program, _, _ := strings.Cut(string(raw), "\x00")
		if strings.HasPrefix(path.Base(program), "qemu-system-") {
			out = append(out, path.Base(path.Dir(f)))
		}
	}
	return out
}

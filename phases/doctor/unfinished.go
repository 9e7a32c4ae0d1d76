// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// stopping maps the commands that stop a machine's control plane, by their names in the journal, to the commands that continue and undo them.
var stopping = map[string]func(inputs map[string]string) (command, back string){
	"etcd restore": func(in map[string]string) (string, string) {
		command := "ocadm etcd restore " + cmp.Or(in["file"], "--from-data")
		for _, flag := range []string{etcd.NewerDatabases, etcd.Alone, etcd.ForgetRotation} {
			if in[flag] != "" {
				command += " " + flag
			}
		}
		if strings.HasSuffix(in["file"], backup.EtcdSuffix) {
			command += " --identity key.txt"
		}
		return command, ""
	},
	"etcd rejoin": func(in map[string]string) (string, string) {
		if after := in["--after-restore"]; after != "" {
			return "ocadm etcd rejoin --after-restore " + after, "at " + after + ", which keeps the data that it has: ocadm etcd restore --from-data"
		}
		return "ocadm etcd rejoin", ""
	},
	"move": func(in map[string]string) (string, string) {
		return "ocadm move " + in["to"], "ocadm move " + in["from"]
	},
}

// stopStep is the name of the step of these commands that stops the control plane.
const stopStep = "stop"

// unfinished returns the last command that stopped the control plane and did not finish. It reads the journal, because the commands write their own records later.
func unfinished(h *host.Host) *why.Unfinished {
	journal := workflow.NewJournal(h.Files.Path(host.JournalFile))
	var out *why.Unfinished
	for plan, words := range stopping {
		in, err := journal.Resume(plan)
		if err != nil || in == nil || !slices.Contains(in.Did, stopStep) || out != nil && out.Last.After(in.Last) {
			continue
		}
		out = &why.Unfinished{Last: in.Last, AtWork: atWork(h)}
		out.Command, out.Back = words(in.Inputs)
	}
	return out
}

// atWork returns the process ID of the ocadm that holds this machine's lock, or 0. The file keeps the ID after the process has ended.
func atWork(h *host.Host) int {
	pid, err := strconv.Atoi(strings.TrimSpace(h.Files.Text(host.LockFile)))
	if err != nil || !strings.Contains(h.Files.Text(fmt.Sprintf("/proc/%d/cmdline", pid)), "ocadm") {
		return 0
	}
	return pid
}

// addresses returns the node's configured address and the addresses of the machine.
func addresses(h *host.Host) (node string, has []string) {
	if a := kubernetes.NodeAddress(h); a.IsValid() {
		node = a.String()
	} else if own, _, ok := kubernetes.OwnEndpoint(h); ok {
		node = own
	}
	add := func(a netip.Addr) {
		if a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !slices.Contains(has, a.String()) {
			has = append(has, a.String())
		}
	}
	add(h.Facts.Address)
	for _, i := range h.Facts.Interfaces {
		for _, p := range i.Prefixes {
			add(p.Addr())
		}
	}
	return node, has
}

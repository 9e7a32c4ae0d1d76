// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// ResetPhases take node software off a machine, after kubeadm's part has taken off the node: containers, pod network, units, kernel
// settings, programs, and then whatever else the ledger tells of. The last one tells what is left.
func ResetPhases() []host.Phase {
	return []host.Phase{
		{
			Name: "stop-containers", Short: "Stop the containers of pods",
			Skip: otherRuntime,
			Plan: lines("stop every container of Kubernetes"),
			Run:  stopContainers, Timeout: 2 * time.Minute,
		},
		taken("undo-images", "Remove the imported images from a containerd that stays", undoImages, host.KindImage),
		taken("undo-units", "Stop containerd and the kubelet, remove their units", undoUnits, host.KindUnit),
		{
			Name: "pod-network", Short: "Remove the links, name spaces and packet rules of pods",
			Plan: planPodNetwork,
			Run:  removePodNetwork,
		},
		{
			Name: "runtime-data", Short: "Unmount and remove the data of containers",
			Plan: func(_ context.Context, h *host.Host) ([]string, error) {
				var out []string
				for _, d := range dataDirs(h) {
					out = append(out, "remove "+d)
				}
				return out, nil
			},
			Run: removeRuntimeData,
		},
		taken("undo-firewall", "Close the ports that were opened in firewalld", undoFirewall, host.KindFirewall),
		taken("undo-kernel", "Set kernel parameters back", undoKernel, host.KindSysctl),
		taken("undo-files", "Remove the programs and files that ocadm made, restore those it changed", undoEverything, host.KindFile, host.KindDir, host.KindProgram),
		{
			Name: "residue", Short: "Check that nothing is left",
			Plan: lines("look for mounts, links, rules and files that are left"),
			Run: func(ctx context.Context, h *host.Host, _ workflow.Reporter) error {
				return residueFound(Residue(ctx, h))
			},
		},
	}
}

func lines(l ...string) func(context.Context, *host.Host) ([]string, error) {
	return func(context.Context, *host.Host) ([]string, error) { return l, nil }
}

// taken is a phase that takes back what the ledger tells of these kinds.
func taken(name, short string, run func(context.Context, *host.Host, workflow.Reporter) error, kinds ...host.Kind) host.Phase {
	concerned := func(h *host.Host) []string {
		var out []string
		for _, e := range h.Ledger.Created() {
			for _, k := range kinds {
				if e.Kind == k {
					out = append(out, fmt.Sprintf("take back %s %s", e.Kind, e.Name))
				}
			}
		}
		return out
	}
	return host.Phase{
		Name: name, Short: short,
		Check: func(_ context.Context, h *host.Host) (bool, error) { return len(concerned(h)) == 0, nil },
		Plan:  func(_ context.Context, h *host.Host) ([]string, error) { return concerned(h), nil },
		Run:   run, Timeout: 2 * time.Minute,
	}
}

// stopContainers ends every container of Kubernetes. kubeadm has asked for that before; this is for what it could not reach.
func stopContainers(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !containerdRuns(h) {
		return nil
	}
	// A kubelet would start them again.
	if h.Ledger.Has(host.KindUnit, kubeletUnit) {
		_, _ = systemctl(ctx, h, "stop", kubeletUnit)
	}
	ask := func(args ...string) []string {
		res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: append([]string{"-n", k8sNamespace}, args...)})
		if err != nil {
			return nil // containerd is gone: its containers are then found by their mounts
		}
		return strings.Fields(res.Stdout)
	}
	n := 0
	for _, id := range ask("tasks", "ls", "-q") {
		ask("tasks", "delete", "--force", id)
		n++
	}
	if ids := ask("containers", "ls", "-q"); len(ids) > 0 {
		ask(append([]string{"containers", "rm"}, ids...)...)
	}
	if n > 0 {
		r.Changed("stopped %d containers", n)
	}
	return nil
}

func keepsImages(h *host.Host) bool { return slices.Contains(h.Config.Run.Keep, config.KeepImages) }

// dataDirs are the directories that containers leave and that belong to nobody else. The runtime's own go only with a runtime of ours.
func dataDirs(h *host.Host) []string {
	dirs := []string{"/var/lib/cni", "/run/flannel", "/etc/cni/net.d/10-flannel.conflist", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"}
	if containerdRuns(h) && !othersContainerd(h) {
		dirs = append(dirs, "/run/containerd", "/run/nri", "/opt/containerd")
		if !keepsImages(h) {
			dirs = append(dirs, "/var/lib/containerd")
		}
	}
	var out []string
	for _, d := range dirs {
		if h.Files.Exists(d) && (!mounted(h, d) || len(content(h, d)) > 0) {
			out = append(out, d)
		}
	}
	return out
}

// content is what lies in a directory.
func content(h *host.Host, dir string) []string {
	found, err := h.Files.Glob(dir + "/*")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(found, func(p string) bool { return path.Base(p) == "lost+found" })
}

func removeRuntimeData(_ context.Context, h *host.Host, r workflow.Reporter) error {
	for _, d := range dataDirs(h) {
		if err := unmountBelow(h, d); err != nil {
			return err
		}
		remove := []string{d}
		if mounted(h, d) { // the disk stays where its owner has mounted it
			remove = content(h, d)
		}
		for _, p := range remove {
			if err := h.Files.RemoveAll(p); err != nil {
				return fmt.Errorf("removing %s: %w", p, err)
			}
		}
		r.Changed("removed %s", d)
	}
	for _, d := range emptyDirs() {
		_ = h.Files.Remove(d) // one that others use is not empty, and stays
	}
	if err := removeNodeFiles(h, r); err != nil {
		return err
	}
	for _, d := range volumeDirs() {
		removeEmpty(h, d)
	}
	return nil
}

// removeNodeFiles removes what the cloud's agents put on the node, unless somebody has edited it since: then it is his.
func removeNodeFiles(h *host.Host, r workflow.Reporter) error {
	for name, text := range nodefiles.All() {
		name = path.Join(nodefiles.Dir, name)
		if got, err := h.Files.ReadFile(name); err != nil || string(got) != text {
			continue
		}
		if err := h.Files.Remove(name); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
		r.Changed("removed %s", name)
	}
	return nil
}

// volumeDirs are directories of the host that pods of the cloud use: the kubelet makes them, and what pods wrote there is data.
func volumeDirs() []string {
	return []string{"/etc/yunion", "/etc/openvswitch", "/etc/telegraf", "/opt/telegraf", "/opt/cloud"}
}

// removeEmpty removes the empty directories of a tree.
func removeEmpty(h *host.Host, dir string) {
	found, err := h.Files.Glob(dir + "/*")
	if err != nil {
		return
	}
	for _, f := range found {
		if st, err := os.Lstat(h.Files.Path(f)); err == nil && st.IsDir() {
			removeEmpty(h, f)
		}
	}
	_ = h.Files.Remove(dir) // as above
}

// othersContainerd tells whether there is a containerd that ocadm did not install, be it too old to be used: then the directories that
// every containerd has are not ocadm's alone.
func othersContainerd(h *host.Host) bool {
	return slices.ContainsFunc([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}, func(dir string) bool {
		name := path.Join(dir, containerd)
		return h.Files.Exists(name) && !h.Ledger.Has(host.KindFile, name)
	})
}

// emptyDirs are directories that containerd, the kubelet and hostPath volumes make and leave empty, the deepest first.
func emptyDirs() []string {
	return []string{
		"/etc/cni/net.d", "/etc/cni", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
		"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/lib/modules",
	}
}

// undoEverything takes back whatever is still in the ledger, whoever of ocadm wrote it.
func undoEverything(_ context.Context, h *host.Host, r workflow.Reporter) error {
	for _, e := range h.Ledger.Created() {
		switch e.Kind {
		case host.KindFile, host.KindDir:
			if err := h.Files.Undo(e); err != nil {
				return err
			}
			if e.Kind == host.KindFile {
				r.Changed("took back %s", e.Name)
			}
		case host.KindProgram:
			if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
				return err
			}
		}
	}
	for _, e := range h.Ledger.Found() {
		if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// Residue lists what of a node is still on the machine; empty is clean.
func Residue(ctx context.Context, h *host.Host) []string {
	var out []string
	for _, e := range h.Ledger.Created() {
		if e.Kind != host.KindDir {
			out = append(out, fmt.Sprintf("%s %s", e.Kind, e.Name))
		}
	}
	for _, m := range podMounts(h) {
		out = append(out, "mount "+m)
	}
	out = append(out, podNetwork(ctx, h)...)
	for _, d := range dataDirs(h) {
		out = append(out, "directory "+d)
	}
	for _, p := range shims(h) {
		out = append(out, "process "+p)
	}
	return out
}

func residueFound(left []string) error {
	if len(left) == 0 {
		return nil
	}
	return finding.Finding{
		Code: CodeResidue, Severity: finding.Error,
		What:     "something of the node is left on this machine",
		Cause:    strings.Join(left, ", "),
		Remedy:   "run ocadm reset again; what stays then is gone after a reboot",
		Evidence: left,
	}
}

// shims are the processes of containers of Kubernetes that are left.
func shims(h *host.Host) []string {
	found, err := h.Files.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range found {
		raw, err := h.Files.ReadFile(f)
		if err != nil {
			continue
		}
		args := strings.Split(string(raw), "\x00")
		if path.Base(args[0]) == shim && strings.Contains(string(raw), "\x00"+k8sNamespace+"\x00") {
			out = append(out, path.Base(path.Dir(f))+" "+shim)
		}
	}
	return out
}

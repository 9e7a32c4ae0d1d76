// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// ResetPhases take node software off a machine, after kubeadm's part has taken off the node: containers, pod network, units, kernel
// settings, programs, and then whatever else is in the ledger. The last phase reports what is left.
func ResetPhases() []host.Phase {
	return []host.Phase{
		{
			Name: "stop-containers", Short: "Stop the containers of pods",
			Skip: func(h *host.Host) string {
				if !owned.NodeOf(h).Made {
					return "ocadm did not make this machine a node"
				}
				return otherRuntime(h)
			},
			Plan: workflow.Says[*host.Host]("stop every container of a pod"),
			Run:  stopContainers, Timeout: 2 * time.Minute,
		},
		undoPhase("undo-images", "Remove the imported images from a containerd that stays", undoImages, host.KindImage),
		undoPhase("undo-units", "Stop containerd and the kubelet, remove their units", undoUnits, host.KindUnit),
		podNetworkPhase(),
		{
			Name: "runtime-data", Short: "Unmount and remove the data of containers",
			Plan: func(_ context.Context, h *host.Host) ([]string, error) {
				return workflow.Lines("remove ", dataDirs(h)), nil
			},
			Run: removeRuntimeData,
			Verify: func(_ context.Context, h *host.Host) error {
				left := workflow.Lines("directory ", dataDirs(h))
				if ownContainerd(h) {
					pods, _ := shims(h)
					left = append(left, pods...)
				}
				return residueFound(left)
			},
		},
		undoPhase("undo-firewall", "Close the ports that were opened in firewalld", undoFirewall, host.KindFirewall),
		undoPhase("undo-kernel", "Restore kernel parameters", undoKernel, host.KindSysctl),
		undoPhase("undo-files", "Remove the programs and files that ocadm created, restore those it changed", undoEverything, host.KindFile, host.KindDir, host.KindProgram,
			host.KindNode, host.KindData),
		{
			Name: "residue", Short: "Check that nothing is left",
			Plan: workflow.Says[*host.Host]("look at the ledger for what is left"),
			Run: func(_ context.Context, h *host.Host, _ workflow.Reporter) error {
				return residueFound(Residue(h))
			},
		},
	}
}

func podNetworkPhase() host.Phase {
	return host.Phase{
		Name: "pod-network", Short: "Remove the interfaces, namespaces, packet rules and addresses of pods",
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			n, err := owned.NetworkOf(ctx, h)
			return err == nil && len(n.List())+len(owned.CNIState(h)) == 0, nil // Run reports what cannot be looked at
		},
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			n, err := owned.NetworkOf(ctx, h)
			return workflow.Lines("remove ", append(n.Summary(), owned.CNIState(h)...)), err
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			if err := owned.RemoveNetwork(ctx, h, r); err != nil {
				return err
			}
			return owned.RemoveCNIState(h, r)
		},
		Verify: func(ctx context.Context, h *host.Host) error {
			n, err := owned.NetworkOf(ctx, h)
			if left := n.List(); err == nil && len(left) > 0 {
				return finding.New("OCA-9002", "The cluster left network state on this machine", "it could not be removed",
					"remove what uses it, or restart the machine, then: ocadm reset").With(left...)
			}
			return err
		},
	}
}

// undoPhase takes back what is in the ledger of these kinds.
func undoPhase(name, short string, run func(context.Context, *host.Host, workflow.Reporter) error, kinds ...host.Kind) host.Phase {
	return host.Phase{Name: name, Short: short, Run: run, Timeout: 2 * time.Minute}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		var out []string
		for _, e := range h.Ledger.Created(kinds...) {
			out = append(out, fmt.Sprintf("take back %s %s", e.Kind, e.Name))
		}
		return out, nil
	})
}

// podLabel marks the containers that containerd made for the kubelet, apart from those that others made beside them.
// Source: containerd internal/cri/labels/labels.go.
const podLabel = `labels."io.cri-containerd.kind"`

// stopContainers ends every container of a pod. The container runtime was asked for that before; this is for what it could not reach.
func stopContainers(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !containerdRuns(h) || !owned.NodeOf(h).Made {
		return nil
	}
	// A kubelet would start them again.
	if h.Ledger.Has(host.KindUnit, kubeletUnit) {
		_, _ = h.Systemctl(ctx, "stop", kubeletUnit)
	}
	// Without an answer containerd is gone: its containers are then found by their mounts.
	pods := askContainerd(ctx, h, k8sNamespace, "containers", "ls", "-q", podLabel)
	n := 0
	for _, id := range askContainerd(ctx, h, k8sNamespace, "tasks", "ls", "-q") {
		if slices.Contains(pods, id) {
			askContainerd(ctx, h, k8sNamespace, "tasks", "delete", "--force", id)
			n++
		}
	}
	if len(pods) > 0 {
		askContainerd(ctx, h, k8sNamespace, append([]string{"containers", "rm"}, pods...)...)
	}
	if n > 0 {
		r.Changed("stopped %d containers", n)
	}
	return noteOthers(ctx, h)
}

// noteOthers notes, while containerd still answers, who else keeps containers or images in the containerd that ocadm installed: then its
// data stays.
func noteOthers(ctx context.Context, h *host.Host) error {
	others := otherNamespaces(ctx, h)
	if len(others) == 0 {
		return nil
	}
	e := host.Entry{Kind: host.KindData, Name: othersData, Op: host.Found, Detail: strings.Join(others, " ")}
	if err := h.Ledger.Record(e); err != nil {
		return fmt.Errorf("noting that others use containerd: %w", err)
	}
	return nil
}

// otherNamespaces are containerd's name spaces in which others keep something. In Kubernetes' own, that is a container that is no pod's.
func otherNamespaces(ctx context.Context, h *host.Host) []string {
	return slices.DeleteFunc(askContainerd(ctx, h, "", "namespaces", "ls", "-q"), func(ns string) bool {
		containers := askContainerd(ctx, h, ns, "containers", "ls", "-q")
		if ns == k8sNamespace {
			return len(containers) == len(askContainerd(ctx, h, ns, "containers", "ls", "-q", podLabel))
		}
		return len(containers)+len(askContainerd(ctx, h, ns, "images", "ls", "-q")) == 0
	})
}

// askContainerd runs ctr in a name space and returns the words that it prints, none when containerd does not answer.
func askContainerd(ctx context.Context, h *host.Host, namespace string, args ...string) []string {
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: args})
	if err != nil {
		return nil
	}
	return strings.Fields(res.Stdout)
}

func removeRuntimeData(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := endShims(ctx, h, r); err != nil {
		return err
	}
	for _, d := range dataDirs(h) {
		if err := owned.Remove(h, d); err != nil {
			return err
		}
		r.Changed("removed %s", d)
	}
	if !owned.NodeOf(h).Made {
		return nil
	}
	if err := removeNodeFiles(h, r); err != nil {
		return err
	}
	owned.RemoveEmpty(h)
	return nil
}

// removeNodeFiles removes what the cloud's agents put on the node, unless it was edited since.
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

// othersContainerd reports whether there is a containerd that ocadm did not install, be it too old to be used: then the directories that
// every containerd has are not ocadm's alone.
func othersContainerd(h *host.Host) bool {
	return slices.ContainsFunc([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}, func(dir string) bool {
		name := path.Join(dir, containerd)
		return h.Files.Exists(name) && !h.Ledger.Has(host.KindFile, name)
	})
}

// undoEverything takes back whatever is still in the ledger, whoever of ocadm wrote it.
func undoEverything(_ context.Context, h *host.Host, r workflow.Reporter) error {
	if h.Files.Exists(downloadDir) { // what a run that was killed did not install
		if err := h.Files.RemoveAll(downloadDir); err != nil {
			return err
		}
		r.Changed("removed %s", downloadDir)
	}
	for _, e := range h.Ledger.Created(host.KindFile, host.KindDir) {
		if err := h.Files.Undo(e); err != nil {
			return err
		}
		if e.Kind == host.KindFile {
			r.Changed("took back %s", e.Name)
		}
	}
	data := slices.DeleteFunc(h.Ledger.Created(host.KindData), func(e host.Entry) bool {
		return keepsImages(h) && h.Files.Exists(e.Name) // the next init, or a reset without --keep, needs to know whose it is
	})
	if err := h.Ledger.ForgetAll(slices.Concat(h.Ledger.Created(host.KindProgram), data, h.Ledger.Found())); err != nil {
		return err
	}
	return owned.Forget(h) // the node last: without it nothing is provably ocadm's
}

// Residue lists what of a node is still on the machine when everything was taken back; empty is clean. What has no entry in the ledger
// was looked for by the phase that removes it, while the ledger could still prove whose it is.
func Residue(h *host.Host) []string {
	var out []string
	for _, e := range h.Ledger.Created() {
		if e.Kind != host.KindDir && !(e.Kind == host.KindData && keepsImages(h)) {
			out = append(out, fmt.Sprintf("%s %s", e.Kind, e.Name))
		}
	}
	return out
}

func residueFound(left []string) error {
	if len(left) == 0 {
		return nil
	}
	return finding.New(CodeResidue, "Something is left on this machine after reset", strings.Join(left, ", "),
		"run ocadm reset again; what stays then is gone after a reboot").With(left...)
}

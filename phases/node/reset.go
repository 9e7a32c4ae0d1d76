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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// ResetPhases remove the node software, after kubeadm's part has removed the node: containers, pod network, units, kernel settings, programs, and then
// everything else in the ledger. The last phase reports what is left.
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
			Plan: workflow.Says[*host.Host]("check the ledger for what is left"),
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
			return err == nil && len(n.List())+len(owned.CNIState(h)) == 0, nil // Run reports what cannot be read
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
					"stop the programs that use it, or restart the machine, then: ocadm reset").With(left...)
			}
			return err
		},
	}
}

// undoPhase undoes the ledger entries of these kinds.
func undoPhase(name, short string, run func(context.Context, *host.Host, workflow.Reporter) error, kinds ...host.Kind) host.Phase {
	return host.Phase{Name: name, Short: short, Run: run, Timeout: 2 * time.Minute}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		return lists.Map(h.Ledger.Created(kinds...), func(e host.Entry) string { return fmt.Sprintf("revert %s %s", e.Kind, e.Name) }), nil
	})
}

// podLabel marks the containers that containerd made for the kubelet, as opposed to other clients. Source: containerd internal/cri/labels/labels.go.
const (
	podLabelName = "io.cri-containerd.kind"
	podLabel     = `labels."` + podLabelName + `"`
)

// stopContainers stops every container of a pod. This is for containers that an earlier request to the container runtime did not reach.
func stopContainers(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !containerdRuns(h) || !owned.NodeOf(h).Made {
		return nil
	}
	// A running kubelet would restart them.
	if h.Ledger.Has(host.KindUnit, kubeletUnit) {
		_, _ = h.Systemctl(ctx, "stop", kubeletUnit)
	}
	// Without an answer, containerd is gone; its containers are then found by their mounts.
	pods := ownContainers(ctx, h)
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
		r.Changed("stopped %s", lists.Counted(n, "container"))
	}
	return noteOthers(ctx, h, r)
}

// noteOthers records whether others keep containers or images in the containerd that ocadm installed: then its data stays.
func noteOthers(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	others := otherNamespaces(ctx, h)
	if len(others) == 0 {
		return nil
	}
	e := host.Entry{Kind: host.KindData, Name: othersData, Op: host.Found, Detail: strings.Join(others, " ")}
	if err := h.Ledger.Record(e); err != nil {
		return fmt.Errorf("recording that others use containerd: %w", err)
	}
	r.Info("%s stays: others use containerd, in its namespaces %s", containerdData, strings.Join(others, ", "))
	return nil
}

// otherNamespaces returns containerd's namespaces that others use. In Kubernetes' own, that means a container that belongs to no pod. If containerd does not
// answer, its database is read. One that cannot be read is of no use to anyone else either.
func otherNamespaces(ctx context.Context, h *host.Host) []string {
	var others []string
	if names, err := runCtr(ctx, h, "", "namespaces", "ls", "-q"); err == nil {
		others = slices.DeleteFunc(names, func(ns string) bool {
			containers := askContainerd(ctx, h, ns, "containers", "ls", "-q")
			if ns == k8sNamespace {
				return len(containers) == len(ownContainers(ctx, h))
			}
			return len(containers)+len(askContainerd(ctx, h, ns, "images", "ls", "-q")) == 0
		})
	} else {
		others = storedNamespaces(h)
	}
	others = append(others, runningNamespaces(h)...)
	return lists.Distinct(others)
}

// leftCommand begins the names of containers that Open vSwitch commands leave when they are killed (phases/compute/files/ovs.sh).
const leftCommand = "ocadm-ovs-"

// ownContainers returns the containers that go with the node: those of pods and of Open vSwitch commands.
func ownContainers(ctx context.Context, h *host.Host) []string {
	left := slices.DeleteFunc(askContainerd(ctx, h, k8sNamespace, "containers", "ls", "-q"), func(id string) bool { return !strings.HasPrefix(id, leftCommand) })
	return append(left, askContainerd(ctx, h, k8sNamespace, "containers", "ls", "-q", podLabel)...)
}

// askContainerd runs ctr in a namespace and returns the words of its output, none if containerd does not answer.
func askContainerd(ctx context.Context, h *host.Host, namespace string, args ...string) []string {
	words, _ := runCtr(ctx, h, namespace, args...)
	return words
}

func runCtr(ctx context.Context, h *host.Host, namespace string, args ...string) ([]string, error) {
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: args})
	if err != nil {
		return nil, err
	}
	return strings.Fields(res.Stdout), nil
}

func removeRuntimeData(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if ownContainerd(h) { // containerd may not have answered before; now that it is stopped, its database can be read
		if err := noteOthers(ctx, h, r); err != nil {
			return err
		}
	}
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

// removeNodeFiles removes the files that the cloud's agents put on the node, unless they were edited since.
func removeNodeFiles(h *host.Host, r workflow.Reporter) error {
	for name := range nodefiles.All() {
		name = path.Join(nodefiles.Dir, name)
		if got, err := h.Files.ReadFile(name); err != nil || !nodefiles.Unedited(string(got)) {
			continue
		}
		if err := h.Files.Remove(name); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
		r.Changed("removed %s", name)
	}
	return nil
}

// othersContainerd reports whether the machine has a containerd that ocadm did not install, even one too old to use: then the directories that every
// containerd has are not only ocadm's.
func othersContainerd(h *host.Host) bool {
	return slices.ContainsFunc([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}, func(dir string) bool {
		name := path.Join(dir, containerd)
		return h.Files.Exists(name) && !h.Ledger.Has(host.KindFile, name)
	})
}

// undoEverything undoes all remaining ledger entries, whichever part of ocadm wrote them.
func undoEverything(_ context.Context, h *host.Host, r workflow.Reporter) error {
	if h.Files.Exists(downloadDir) { // left by a killed run
		if err := h.Files.RemoveAll(downloadDir); err != nil {
			return err
		}
		r.Changed("removed %s", downloadDir)
	}
	for _, e := range h.Ledger.Created(host.KindFile, host.KindDir) {
		if owned.OfKubeadm(e) && !h.Files.Exists(e.Name) { // such as a manifest that "ocadm move" changed while its pod was stopped
			if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
				return err
			}
			continue
		}
		if err := h.Files.Undo(e); err != nil {
			return err
		}
		if e.Kind == host.KindFile {
			r.Changed("reverted %s", e.Name)
		}
	}
	data := slices.DeleteFunc(h.Ledger.Created(host.KindData), func(e host.Entry) bool {
		return keepsImages(h) && h.Files.Exists(e.Name) // the next init, or a reset without --keep, must know who made it
	})
	if err := h.Ledger.ForgetAll(slices.Concat(h.Ledger.Created(host.KindProgram), data, h.Ledger.Found())); err != nil {
		return err
	}
	return owned.Forget(h) // the node last: without it nothing can be proved to be ocadm's
}

// Residue lists what is left of a node on the machine after everything was undone; empty means clean. Things without a ledger entry were looked for by the
// phase that removes them, while the ledger could still prove who made them.
func Residue(h *host.Host) []string {
	return lists.Pick(h.Ledger.Created(), func(e host.Entry) (string, bool) {
		return fmt.Sprintf("%s %s", e.Kind, e.Name), e.Kind != host.KindDir && !(e.Kind == host.KindData && keepsImages(h))
	})
}

func residueFound(left []string) error {
	if len(left) == 0 {
		return nil
	}
	return finding.New(CodeResidue, "Something is left on this machine after reset", strings.Join(left, ", "),
		"run ocadm reset again; anything that still remains is gone after a reboot").With(left...)
}

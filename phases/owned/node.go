// SPDX-License-Identifier: Apache-2.0

// Package owned decides which things on this machine belong to the Kubernetes node that ocadm made of it, and removes them: files, mounts, CNI state,
// network links and packet filter rules. It does not touch what existed before or what another program created. Reset and rollback both use it.
//
// A thing belongs to the node if the ledger proves that ocadm made the machine a node, and if it has a name that only this node's kubelet, kubeadm,
// kube-proxy, flannel or CNI network uses. Things that the ledger lists as found stay.
package owned

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

const (
	kubernetesDir = "/etc/kubernetes"
	manifestsDir  = kubernetesDir + "/manifests"
	pkiDir        = kubernetesDir + "/pki"
	kubeletDir    = "/var/lib/kubelet"
	etcdDir       = "/var/lib/etcd"
	cniStateDir   = "/var/lib/cni"
	cniConfigDir  = "/etc/cni/net.d"

	// configFile is kubeadm's configuration, which init and join write first.
	configFile = "/etc/ocadm/kubeadm.yaml"
	patchesDir = "/etc/ocadm/patches"
	// coreDNSPatch is written on control-plane nodes only.
	coreDNSPatch = patchesDir + "/corednsdeployment+strategic.yaml"
)

const (
	controlPlane = "control-plane"
	worker       = "worker"
)

// Node is what the ledger proves about this machine.
type Node struct {
	// Made reports whether ocadm made this machine a node and has not undone that.
	Made         bool
	ControlPlane bool
}

// NodeOf reads the proof. Ledgers of earlier releases have no entry of kind "node": there, kubeadm's configuration is the proof, and files that only
// a control plane gets show the role.
func NodeOf(h *host.Host) Node {
	if h.Ledger == nil {
		return Node{}
	}
	if made := h.Ledger.Created(host.KindNode); len(made) > 0 {
		return Node{Made: true, ControlPlane: made[0].Detail == controlPlane}
	}
	if !h.Ledger.Has(host.KindFile, configFile) {
		return Node{}
	}
	raw, _ := h.Files.ReadFile(configFile) // a missing file proves nothing
	return Node{Made: true, ControlPlane: h.Ledger.Has(host.KindFile, coreDNSPatch) || strings.Contains(string(raw), "kind: InitConfiguration\n")}
}

// Note records, before a node's first file is written, that the machine becomes a node, and which of a node's names already exist: those belong to
// others. On a machine that is a node it changes nothing. If an unfinished reset has removed the node's files, the rest still belongs to the node,
// and the role is that of the new node.
func Note(h *host.Host, isControlPlane bool) error {
	if h.Ledger == nil {
		return nil
	}
	if n := NodeOf(h); n.Made {
		if h.Ledger.Has(host.KindFile, configFile) {
			return nil
		}
		// The kubeadm phases done for the former node do not count for this one.
		if err := h.Ledger.ForgetAll(h.Ledger.Found(host.KindPhase)); err != nil {
			return fmt.Errorf("removing the work of kubeadm for the former node from the ledger: %w", err)
		}
		if n.ControlPlane == isControlPlane {
			return nil
		}
		if err := h.Ledger.ForgetAll(h.Ledger.Created(host.KindNode)); err != nil {
			return fmt.Errorf("recording another role of this machine: %w", err)
		}
		return record(h, isControlPlane)
	}
	for _, n := range append(candidates(h, Node{Made: true, ControlPlane: true}), cniCandidates(h)...) {
		if err := found(h, host.KindFile, n); err != nil {
			return err
		}
	}
	for _, d := range slices.Concat(directories(), volumeDirectories()) {
		if h.Files.Exists(d) && !h.Ledger.Has(host.KindDir, d) {
			if err := found(h, host.KindDir, d); err != nil {
				return err
			}
		}
	}
	for _, l := range presentLinks(h) {
		if err := found(h, host.KindLink, l); err != nil {
			return err
		}
	}
	return record(h, isControlPlane)
}

func found(h *host.Host, kind host.Kind, name string) error {
	if err := h.Ledger.Record(host.Entry{Kind: kind, Name: name, Op: host.Found}); err != nil {
		return fmt.Errorf("recording that %s existed before: %w", name, err)
	}
	return nil
}

func record(h *host.Host, isControlPlane bool) error {
	role := worker
	if isControlPlane {
		role = controlPlane
	}
	if err := h.Ledger.Record(host.Entry{Kind: host.KindNode, Name: h.Config.Node.Name, Op: host.Created, Detail: role}); err != nil {
		return fmt.Errorf("recording that this machine becomes a node: %w", err)
	}
	return nil
}

// Keep records an earlier release's proof as a node entry, because the files that prove it are about to be removed.
func Keep(h *host.Host) error {
	n := NodeOf(h)
	if !n.Made {
		return nil
	}
	return record(h, n.ControlPlane)
}

// Forget removes the node, and everything noted when it was made, from the ledger.
func Forget(h *host.Host) error {
	if h.Ledger == nil {
		return nil
	}
	noted := h.Ledger.Found(host.KindFile, host.KindDir, host.KindLink, host.KindPhase)
	if err := h.Ledger.ForgetAll(append(h.Ledger.Created(host.KindNode), noted...)); err != nil {
		return fmt.Errorf("removing the node from the ledger: %w", err)
	}
	return nil
}

// OfKubeadm reports whether a file that ocadm changed is one that kubeadm made, which records nothing: it is a Kubernetes file and did not exist before the
// node. "ocadm move" and "ocadm ha enable" change such files. They go with the node, so there is nothing to restore.
func OfKubeadm(e host.Entry) bool {
	return e.Op == host.Changed && !e.Before && (strings.HasPrefix(e.Name, kubernetesDir+"/") || strings.HasPrefix(e.Name, kubeletDir+"/"))
}

// theirs reports whether a path must not be removed with the node: it existed before, or undoing the ledger restores it.
func theirs(h *host.Host, name string) bool {
	for _, k := range []host.Kind{host.KindFile, host.KindDir} {
		e, ok := h.Ledger.Get(k, name)
		if ok && (e.Op == host.Found || e.Op == host.Changed && !OfKubeadm(e)) {
			return true
		}
	}
	return false
}

// Foreign lists the signs of a node that ocadm did not make.
func Foreign(h *host.Host) []string {
	if NodeOf(h).Made {
		return nil
	}
	return lists.Filter([]string{
		path.Join(kubernetesDir, "admin.conf"), path.Join(kubernetesDir, "kubelet.conf"), path.Join(kubeletDir, "config.yaml"),
	}, h.Files.Exists)
}

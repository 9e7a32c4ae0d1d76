// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// An additional control-plane node joins in the order of kubeadm's own join: certificates and manifests, then the kubelet, then etcd, because its kubelet gets
// its certificate through its own API server, which needs a local etcd.

const (
	checkEtcdName = "check-etcd"
	// etcdJoinTimeout exceeds kubeadm's own waits: 2 minutes for the start, 2 for the promotion, 40 s for the health of all.
	etcdJoinTimeout = 7 * time.Minute
)

// NotControlPlane skips phases that only a control-plane node needs.
var NotControlPlane = workflow.SkipIf("this machine becomes a worker", func(h *host.Host) bool { return !h.Config.Join.ControlPlane })

func authorities() []certificate {
	return slices.DeleteFunc(certificates(), func(c certificate) bool { return c.ca != "" })
}

func leaves() []certificate {
	return slices.DeleteFunc(certificates(), func(c certificate) bool { return c.ca == "" })
}

func serviceAccountKeys() []string { return []string{pkiDir + "/sa.key", pkiDir + "/sa.pub"} }

// HasAuthorities reports whether the CAs and keys that control-plane nodes share are on this machine, so that nothing must be downloaded.
func HasAuthorities(ctx context.Context, h *host.Host) bool {
	whole, err := making(kubeadmPhase{}, authorities()).check(ctx, h)
	there, terr := filesThere(serviceAccountKeys()...)(ctx, h)
	return whole && there && errors.Join(err, terr) == nil
}

// prepareControlPlanePhases write certificates, kubeconfigs and manifests, and check etcd before anything joins it.
func prepareControlPlanePhases(after string) []host.Phase {
	// The kubelet gets its own from the cluster.
	written := slices.DeleteFunc(kubeconfigs(), func(k kubeconfig) bool { return k.name == "kubelet" || k.name == "super-admin" })
	prepare := host.Phase{
		Name: "control-plane-prepare", Short: "Write the certificates, kubeconfigs and manifests of a control-plane node", After: []string{after},
		Skip: NotControlPlane,
		Phases: []host.Phase{
			downloadCertsPhase(),
			joinStep(making(kubeadmPhase{name: "certs", short: "Create the certificates of this node"}, leaves())),
			joinStep(making(kubeadmPhase{name: "kubeconfig", short: "Write the kubeconfig files of the control plane"}, written)),
			joinStep(making(kubeadmPhase{name: "control-plane", short: "Write the static pods of the control plane"},
				lists.Map(constants.ControlPlaneComponents, func(c string) staticManifest { return staticManifest(c) }))),
		},
	}
	return []host.Phase{prepare, checkEtcdPhase(prepare.Name), formerMemberPhase(checkEtcdName)}
}

// joinStep returns a child of control-plane-prepare. Each follows the one before it.
func joinStep(k kubeadmPhase) host.Phase {
	k.args = []string{"join", "phase", "control-plane-prepare", k.name}
	return k.phase()
}

func downloadCertsPhase() host.Phase {
	k := making(kubeadmPhase{name: "download-certs", short: "Download the certificate authorities of the cluster", writes: serviceAccountKeys()}, authorities())
	k.check = func(ctx context.Context, h *host.Host) (bool, error) { return HasAuthorities(ctx, h), nil }
	k.clear = forgetOtherAuthority
	return joinStep(k)
}

// joinControlPlanePhases add this node's etcd member and wait for its own API server.
func joinControlPlanePhases(after string) []host.Phase {
	etcd := kubeadmPhase{
		name: "etcd-join", short: "Add a member to etcd and wait until it votes", args: []string{"join", "phase", "etcd-join"},
		writes: []string{manifest(constants.Etcd), "a member of etcd"}, check: memberVotes, after: []string{after},
	}.phase()
	etcd.Skip, etcd.Timeout = NotControlPlane, etcdJoinTimeout
	etcd.Long = "The member joins as a learner, which does not vote, and is promoted when it has caught up. After an interruption it continues with the same member."
	wait := host.Phase{
		Name: "wait-control-plane", Short: "Wait for the control plane of this node to answer", After: []string{"etcd-join"}, Skip: NotControlPlane,
		Phases: append([]host.Phase{
			stalePodsPhase(),
			waitPhase("apiserver", "Wait for the API server", probeAPIServer, hopelessAPIServer, diagnosePod(constants.KubeAPIServer, constants.Etcd)),
		}, managerPhases()...),
	}
	return []host.Phase{etcd, wait}
}

// markJoinedPhase labels the node.
func markJoinedPhase() host.Phase {
	p := kubeadmPhase{
		name: "mark-control-plane", short: "Label the node as a control-plane node", args: []string{"join", "phase", "control-plane-join", "mark-control-plane"},
		writes: []string{"label " + v1alpha1.LabelControlPlane, "label " + labelMaster}, check: live(controlPlaneMarked),
		finish: labelMasterNode, after: []string{"node-registered"},
	}.phase()
	p.Skip = NotControlPlane
	return p
}

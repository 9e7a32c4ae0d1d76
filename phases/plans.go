// SPDX-License-Identifier: Apache-2.0

// Package phases holds the plans of the installer: what init, join and reset do, each a list that fits on one screen. The phases themselves are in
// their own packages; this file defines which phases there are and which may overlap.
package phases

import (
	"slices"

	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/spread"
	"yunion.io/x/ocadm/phases/vip"
)

// APIServer is the phase of init after which the API server answers. Everything is applied after it, and waited for at the end.
const APIServer = "wait-control-plane/administrator"

// Init makes a control plane, the cluster's addons, and a cloud. Certificates and manifests are made while software is installed, and images are
// imported while the control plane starts. Pods that need an address of the pod network are applied only once it hands out addresses: an earlier pod
// fails, and the kubelet retries only after 10 to 15 seconds.
func Init() []host.Phase {
	return slices.Concat(
		[]host.Phase{
			preflight.Phase(preflight.Init),
			node.Software(), // after preflight
			node.Kernel(),   // after preflight
			node.Firewall(true),
			node.Units(),    // after node-files/runtime
			compute.Phase(), // after preflight
			node.Images(imagesOfControlPlane(), imageOfKeepalived(), imagesOfAddons(), imageOfTheOperator(), imagesOfTheCloud(), otherImages()),
		},
		kubernetes.InitPhases(kubernetes.Order{
			Software: []string{node.SoftwarePhase, node.KernelPhase, node.UnitsPhase, compute.PhaseName, "images/control-plane"},
			Network:  []string{addons.NetworkPhase},
		}),
		[]host.Phase{
			vip.Phase("kubeadm-config", "images/keepalived", "images/operator"),
			vip.StorePhase(APIServer, vip.PhaseName),
			after(addons.CNI(), APIServer, "images/addons"),
			after(addons.NetworkReady(), "cni"),
			after(addons.Storage(), APIServer, "images/addons", addons.NetworkPhase),
			after(addons.Ingress(), APIServer, "images/addons"),
			after(cloud.Guarded(addons.Database()), APIServer, "images/addons", addons.NetworkPhase),
			after(operator.Install(), APIServer, "images/operator", "images/cloud", addons.NetworkPhase),
			after(compute.LabelPhase(), "mark-control-plane"),
			after(cloud.Guarded(cloud.Settings()), "operator", "database"),
			depot.Phase(APIServer, imageOfTheOperator(), "images"),
			etcd.Phase(nil, APIServer, "images/operator"),
			node.Mirrors("kubelet-finalize", depot.PhaseName),
			after(addons.Ready(), "cni", "storage", "ingress", "database", "kubelet-finalize", "mark-control-plane", "addon"),
			after(operator.Ready(), "operator", "ready"),
			after(cloud.Restore(), "cloud-settings", "operator-ready", "upload-config"),
			after(cloud.Create(), "restore", "cloud-settings", "operator-ready", "upload-config", "bootstrap-token"),
		},
	)
}

// OperatorInstall installs the operator, and a cloud if one is requested, in a cluster that others built.
func OperatorInstall() []host.Phase {
	ready := addons.Ready()
	ready.Name, ready.Short, ready.Long = "database-ready", "Wait until the embedded database runs", ""
	return []host.Phase{
		preflight.Phase(preflight.Install),
		operator.InstallOnCluster(),
		forCloud(after(cloud.Guarded(addons.Database()), "operator")),
		forCloud(after(cloud.Guarded(cloud.Settings()), "operator")),
		after(operator.Ready(), "operator"),
		forCloud(after(ready, "database", "cloud-settings")), // the database runs on a node with the role
		after(cloud.Create(), "operator-ready", "database-ready"),
	}
}

// forCloud skips a phase if no cloud is requested.
func forCloud(p host.Phase) host.Phase {
	return p.Unless(func(h *host.Host) string {
		if h.Config.AsksForCloud() {
			return ""
		}
		return "no cloud was requested (--onecloud-version, --mysql-host)"
	})
}

// Join makes this machine a worker or, with --control-plane, a control-plane node.
func Join() []host.Phase {
	return slices.Concat(
		[]host.Phase{
			preflight.Phase(preflight.Join),
			node.Software(),
			node.Kernel(),
			node.Firewall(false),
			node.Units(),
			compute.Phase(),
			node.Images(imagesOfWorker(), imageOfTheOperator(), otherImages()),
		},
		kubernetes.JoinPhases(node.SoftwarePhase, node.KernelPhase, node.UnitsPhase, compute.PhaseName, "images/worker"),
		[]host.Phase{
			depot.Phase("mark-control-plane", imageOfTheOperator(), "images").Unless(kubernetes.NotControlPlane), // it copies what the others have
			vip.JoinPhase("mark-control-plane", "images"),
			etcd.Phase(kubernetes.NotControlPlane, "mark-control-plane", "images"),
			node.Mirrors("kubelet-wait-bootstrap", depot.PhaseName),
			after(compute.LabelPhase(), "node-registered"),
			spread.DNS("mark-control-plane", "images", node.MirrorsPhase, depot.PhaseName),
			spread.Operator(spread.PhaseName),
		},
	)
}

// Rollback undoes a failed init or join. It undoes everything, as Reset does.
func Rollback() []host.Phase { return slices.Concat([]host.Phase{kubernetes.WithdrawPhase()}, Reset()) }

// Reset removes the machine from its cluster and removes what ocadm made on it.
func Reset() []host.Phase {
	return slices.Concat([]host.Phase{vip.LeavePhase()}, kubernetes.ResetPhases(), compute.ResetPhases(), node.ResetPhases())
}

// after sets the phases that a phase waits for.
func after(p host.Phase, names ...string) host.Phase {
	p.After = names
	return p
}

// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

// ResetPhases remove the node that ocadm made of this machine: its Node object, its etcd member, its pods and files. They work without an API server and after a
// failed init. They leave the pod network and the software to package node.
func ResetPhases() []host.Phase {
	return []host.Phase{
		removeNodePhase(),
		removeEtcdMemberPhase(),
		cleanupNodePhase(),
	}
}

// removalTimeout bounds reset's requests to an API server that may be dying.
const removalTimeout = 8 * time.Second

func removeNodePhase() host.Phase {
	return host.Phase{
		Name: "remove-node", Short: "Delete this machine's node from the cluster", Timeout: 4 * removalTimeout,
		Skip: func(h *host.Host) string {
			if why := notMade(h); why != "" {
				return why
			}
			if h.Files.Exists(AdminKubeconfig) || h.Files.Exists(KubeletKubeconfig) {
				return ""
			}
			return "this machine is not a node"
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			if !h.Files.Exists(AdminKubeconfig) {
				return []string{"stop kubelet.service", "report to the cluster that Node " + h.Config.Node.Name + " has left"}, nil
			}
			return []string{"delete Node " + h.Config.Node.Name + " if the API server answers"}, nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			if !h.Files.Exists(AdminKubeconfig) {
				return leaveNode(ctx, h, r)
			}
			ctx, cancel := context.WithTimeout(ctx, removalTimeout)
			defer cancel()
			c, err := h.Kube(ctx)
			if err != nil {
				r.Info("the API server does not answer: its cluster is removed with this machine, or keeps Node %s", h.Config.Node.Name)
				return nil
			}
			deleteNode(ctx, c, h.Config.Node.Name, r)
			return nil
		},
	}
}

// deleteNode deletes a Node with administrator permissions. The machine leaves the cluster even if that fails.
func deleteNode(ctx context.Context, c client.Client, name string, r workflow.Reporter) {
	err := c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err == nil {
		r.Changed("deleted Node %s", name)
	} else if client.IgnoreNotFound(err) != nil {
		r.Info("Node %s could not be deleted: %v", name, err)
	}
}

// leaveNode marks the Node as gone, with the kubelet's permissions, which do not include deleting it: its pods are replaced immediately, and a machine of that name
// may join. Otherwise the Node would stay Ready until the controllers miss it.
func leaveNode(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	name := h.Config.Node.Name
	// A running kubelet would revert it. The kubelet may take longer to stop than the API server gets to answer.
	if _, err := h.Systemctl(ctx, "stop", "kubelet"); err != nil {
		r.Info("the kubelet could not be stopped: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	c, err := NodeClient(h)
	if err == nil {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err = c.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, left(time.Now())))
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.Info("this could not be reported to the cluster: %v", err)
	} else {
		r.Changed("reported to the cluster that Node %s has left", name)
	}
	r.Info("a worker is not allowed to delete its Node; on a control-plane node: kubectl delete node %s", name)
	return nil
}

// left returns the patch that marks a Node's machine as gone.
func left(now time.Time) []byte {
	at := metav1.NewTime(now)
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "NodeLeft", Message: "ocadm reset removed the machine from the cluster",
		LastHeartbeatTime: at, LastTransitionTime: at,
	}}}})
	if err != nil {
		panic(err) // a literal
	}
	return raw
}

func removeEtcdMemberPhase() host.Phase {
	return host.Phase{
		Name: "remove-etcd-member", Short: "Remove this machine's member from etcd", Timeout: 2 * time.Minute,
		Skip: func(h *host.Host) string {
			if why := notMade(h); why != "" {
				return why
			}
			// A machine that joins etcd gets the kubeconfig first. One that got only as far as its certificates has neither the kubeconfig nor a member.
			if _, err := OwnEtcd(h); !h.Files.Exists(etcdClientCert+".crt") || err != nil && !h.Files.Exists(AdminKubeconfig) {
				return "no etcd runs here"
			}
			return ""
		},
		Plan: workflow.Says[*host.Host]("remove the etcd member if the cluster has others"),
		Run:  leaveEtcd,
	}
}

func cleanupNodePhase() host.Phase {
	return host.Phase{
		Name: "cleanup-node", Short: "Stop the kubelet, remove its containers and files",
		Skip: notMade,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			left, err := residue(h)
			return err == nil && len(left) == 0 && !kubeletActive(ctx, h), err
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			left, err := residue(h)
			lines := []string{"stop kubelet.service", "remove every pod of the kubelet", "unmount all mounts of pods under " + kubeletDir}
			return append(lines, workflow.Lines("remove ", left)...), err
		},
		Run:    cleanupNode,
		Verify: nothingLeft,
	}
}

// notMade skips a node that is not in the ledger.
var notMade = workflow.SkipIf("ocadm did not make this machine a node", func(h *host.Host) bool { return !owned.NodeOf(h).Made })

// cleanupNode stops the kubelet and removes its pods and this node's files. kubeadm's own cleanup would empty whole directories, including other programs' files.
func cleanupNode(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := owned.Keep(h); err != nil {
		return err
	}
	if _, err := h.Systemctl(ctx, "stop", "kubelet"); err != nil {
		// It would remount volumes below the paths that are being removed. An interrupted run cannot know that it has stopped.
		if ctx.Err() != nil || kubeletActive(ctx, h) {
			return fmt.Errorf("stopping the kubelet: %w", err)
		}
		r.Info("the kubelet could not be stopped: %v", err)
	}
	// Containers outlive their runtime, which must answer to remove them. On a machine without containerd this fails harmlessly.
	_, _ = h.Systemctl(ctx, "start", "containerd")
	if err := removePods(ctx, h, r); err != nil {
		r.Info("not every pod could be removed through the container runtime: %v", err)
	}
	removed := map[string]int{}
	for _, f := range owned.Files(h) {
		if err := owned.Remove(h, f); err != nil {
			return err
		}
		removed[path.Dir(f)]++
	}
	for _, dir := range slices.Sorted(maps.Keys(removed)) {
		r.Changed("removed the node's part of %s (%d)", dir, removed[dir])
	}
	if err := unmountImages(h, r); err != nil {
		return err
	}
	owned.RemoveEmpty(h)
	return nil
}

// unmountImages unmounts the image service's volume, which its pod unmounts only if it is not killed.
func unmountImages(h *host.Host, r workflow.Reporter) error {
	mounts, err := owned.Mounts(h)
	if err != nil || !slices.Contains(mounts, owned.ImagesDir) {
		return err
	}
	if err := owned.Unmount(h, owned.ImagesDir); err != nil {
		return err
	}
	r.Changed("unmounted %s", owned.ImagesDir)
	return nil
}

// WithdrawPhase removes a machine from its cluster after its join as a control-plane node failed.
func WithdrawPhase() host.Phase {
	return host.Phase{Name: "withdraw", Short: "Remove this machine from etcd", Timeout: 9 * removalTimeout, Run: withdraw,
		Skip: workflow.SkipIf("this machine joined no etcd", func(h *host.Host) bool { return !h.Config.Join.ControlPlane }),
		Plan: workflow.Says[*host.Host]("remove the member of this machine from etcd")}
}

// withdraw removes a machine from its cluster after its join as a control-plane node failed, before its data is deleted: a lost voter of etcd counts against the
// majority, and one of two voters alone has none. It fails while the member cannot be removed.
func withdraw(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !h.Files.Exists(etcdClientCert+".crt") || !h.Files.Exists(AdminKubeconfig) {
		return nil // the join did not get that far
	}
	if err := leaveMember(ctx, h, r); err != nil {
		return finding.Errorf("OCA-4154", "The join cannot be rolled back: the cluster would keep a member of etcd that no longer exists",
			"run the join again to continue; or, when a majority of etcd answers, on this machine: ocadm reset", "%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	if k, err := h.Kube(ctx); err == nil {
		deleteNode(ctx, k, h.Config.Node.Name, r)
	}
	return nil
}

// undoInit undoes the phases of a failed init or join, for a rollback.
func undoInit(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !owned.NodeOf(h).Made {
		return nil
	}
	if h.Config.Join.ControlPlane {
		if err := withdraw(ctx, h, r); err != nil {
			return err
		}
	}
	if err := cleanupNode(ctx, h, r); err != nil {
		return err
	}
	if err := owned.RemoveNetwork(ctx, h, r); err != nil {
		return err
	}
	if err := owned.RemoveCNIState(h, r); err != nil {
		return err
	}
	owned.RemoveEmpty(h)
	if err := nothingLeft(ctx, h); err != nil {
		return err
	}
	return owned.Forget(h)
}

// residue returns the paths and mounts of this node that are left.
func residue(h *host.Host) ([]string, error) {
	mounts, err := owned.Mounts(h)
	return append(owned.Files(h), workflow.Lines("mount ", mounts)...), err
}

func nothingLeft(_ context.Context, h *host.Host) error {
	left, err := residue(h)
	if err != nil || len(left) == 0 {
		return err
	}
	return finding.New("OCA-9001", "Kubernetes left files or mounts on this machine",
		fmt.Sprintf("%d paths could not be removed; usually a program still uses them", len(left)),
		"fuser -vm "+kubeletDir+", end the processes that it lists, then: ocadm reset").With(left[:min(len(left), kubeletLines)]...)
}

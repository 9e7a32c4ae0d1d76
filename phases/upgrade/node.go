// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/removal"
)

const (
	// kubeletFile is the path where ocadm installs the kubelet.
	kubeletFile   = "/usr/local/bin/kubelet"
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	keptKubelet   = kubernetes.UpgradeDir + "/kubelet"
	keptConfig    = kubernetes.UpgradeDir + "/kubelet-config.yaml"

	// snapshotDir is separate from the hourly snapshots, which replace each other within a day. The last two are kept.
	snapshotDir = etcd.Dir + "/before-upgrade"

	drainTimeout    = 30 * time.Minute
	kubeletTimeout  = 5 * time.Minute
	kubeletPatience = 3 * time.Minute
	addonsPatience  = 5 * time.Minute
)

func snapshotStep() Step {
	return Step{
		Name: "snapshot", Short: "Save and verify a snapshot of etcd", Timeout: 15 * time.Minute,
		Check: func(_ context.Context, u *Upgrade) (bool, error) { // of a run that was killed before it replaced anything, it may be days old
			return u.Record.Snapshot != "" && u.Host.Files.Exists(u.Record.Snapshot) && exchanged(u.Host), nil
		},
		Plan: workflow.Says[*Upgrade]("save a snapshot of etcd in " + snapshotDir),
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			m, err := kubernetes.OwnEtcd(u.Host)
			if err != nil {
				return err
			}
			info, err := etcd.Take(ctx, u.Host.Files, m.ClientURL, snapshotDir, snapshot.Keep{Last: 2})
			if err != nil {
				return err
			}
			r.Changed("saved a snapshot of etcd: %s (revision %d, verified)", info.File, info.Revision)
			u.Record.Snapshot = info.File
			return u.Record.save(u.Host)
		},
	}
}

func drainStep() Step {
	return Step{
		Name: "drain", Short: "Move the pods of this node to others", Timeout: drainTimeout,
		Skip: workflow.SkipIf("no --drain: pods keep running", func(u *Upgrade) bool { return !u.Drain }),
		Check: func(ctx context.Context, u *Upgrade) (bool, error) {
			return !u.Record.Reconfigure && kubeletIs(ctx, u, u.Record.To) == "", nil
		},
		Plan: func(ctx context.Context, u *Upgrade) ([]string, error) {
			return removal.Evictions(ctx, u.K, u.Host.Config.Node.Name)
		},
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			var n corev1.Node
			if err := u.K.Get(ctx, client.ObjectKey{Name: u.Host.Config.Node.Name}, &n); err != nil {
				return fmt.Errorf("reading this node: %w", err)
			}
			if !n.Spec.Unschedulable && !u.Record.Cordoned {
				u.Record.Cordoned = true
				if err := u.Record.save(u.Host); err != nil {
					return err
				}
			}
			return removal.Drain(ctx, u.K, n.Name, "or run the same command again without --drain: the pods then keep running", r)
		},
	}
}

func uncordonStep() Step {
	return Step{
		Name: "uncordon", Short: "Let new pods run on this node again", Timeout: time.Minute,
		Skip: workflow.SkipIf("the node was not drained", func(u *Upgrade) bool { return !u.Record.Cordoned && !u.Drain }),
		Plan: workflow.Says[*Upgrade](),
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			if !u.Record.Cordoned { // another client cordoned it
				return nil
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: u.Host.Config.Node.Name}}
			back := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`))
			if err := u.K.Patch(ctx, n, back, client.FieldOwner(kube.FieldManager)); err != nil {
				return fmt.Errorf("uncordoning node %s: %w", n.Name, err)
			}
			r.Changed("uncordoned this node")
			return nil
		},
	}
}

// runtimeStep restarts containerd if its program was replaced. Containers keep running.
func runtimeStep() Step {
	const unit = "containerd.service"
	return Step{
		Name: "runtime", Short: "Restart containerd if it has changed; containers keep running", Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			return u.Host.Start(ctx, r, unit, true)
		},
	}.Todo(func(ctx context.Context, u *Upgrade) ([]string, error) {
		if u.Host.OwnUnit(unit) && u.Host.Outdated(ctx, unit) {
			return []string{"restart " + unit}, nil
		}
		return nil, nil
	})
}

// keepKubelet copies the kubelet and its settings for a rollback. It skips a kubelet that a package manager replaces.
func keepKubelet(h *host.Host) error {
	if !ownKubelet(h) {
		return nil
	}
	for from, to := range map[string]string{kubeletFile: keptKubelet, kubeletConfig: keptConfig} {
		if !h.Files.Exists(from) || h.Files.Exists(to) {
			continue
		}
		if err := h.Files.Copy(from, to); err != nil {
			return fmt.Errorf("saving the current kubelet: %w", err)
		}
	}
	return nil
}

func kubeletStep() Step {
	return Step{
		Name: "kubelet", Short: "Bring the kubelet's settings up to date and restart it", Timeout: 2 * kubeletTimeout,
		Check: func(ctx context.Context, u *Upgrade) (bool, error) {
			if u.Record.Reconfigure {
				return false, nil
			}
			home := !u.ControlPlane || kubernetes.KubeletAsksAt(u.Host, kubernetes.LocalEndpoint(u.Host))
			return home && kubeletIs(ctx, u, u.Record.To) == "", nil
		},
		Plan: workflow.Line(func(u *Upgrade) string { return "restart the kubelet with " + u.Record.To }),
		Run:  restartKubelet,
	}
}

// kubeletIs returns why the node is not Ready with the given version, "" if it is.
func kubeletIs(ctx context.Context, u *Upgrade, version string) string {
	var n corev1.Node
	if err := u.K.Get(ctx, client.ObjectKey{Name: u.Host.Config.Node.Name}, &n); err != nil {
		return err.Error()
	}
	switch is := nodeOf(n, nil, ""); {
	case is.Kubelet != version:
		return "its kubelet is " + is.Kubelet
	case !is.Ready:
		return "it is not Ready"
	}
	return ""
}

// restartKubelet restarts the kubelet with the new program and settings. If the node does not become Ready, it restores the previous kubelet.
func restartKubelet(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
	h := u.Host
	version, err := host.AskVersion(ctx, h.Exec, kubeletPath(h))
	switch {
	case err != nil:
		return err
	case version != u.Record.To && !ownKubelet(h):
		return ForeignKubelet(kubeletPath(h))
	case version != u.Record.To:
		return finding.New("OCA-4506", "The source has a different kubelet", fmt.Sprintf("%s has installed %s, and %s is required", u.Target.Name, version, u.Record.To),
			"give --bundle FILE with Kubernetes "+u.Record.To)
	}
	if err := kubernetes.WriteUpgradeConfig(h, u.Record.To); err != nil {
		return err
	}
	if u.ControlPlane { // kubeadm's phase for this cannot run alone
		if err := kubernetes.WriteKubeletEndpoint(h, kubernetes.LocalEndpoint(h)); err != nil {
			return err
		}
	}
	for _, phase := range []string{"kubelet-config", "post-upgrade"} {
		if err := kubernetes.KubeadmUpgrade(ctx, h, r, u.Record.First, phase); err != nil {
			return err
		}
	}
	if err := h.Start(ctx, r, "kubelet", true); err != nil {
		return err
	}
	if err = awaitKubelet(ctx, u, u.Record.To, r); err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	f := finding.Errorf("OCA-4508", "The node does not become Ready with kubelet "+u.Record.To,
		"journalctl -u kubelet -n 50; then run the same command again", "%w", err)
	if back := putKubeletBack(ctx, u, r); back != nil {
		f.Cause += "; the previous kubelet could not be restored: " + back.Error()
		return f
	}
	f.Cause += "; the previous kubelet was restored"
	return f
}

func awaitKubelet(ctx context.Context, u *Upgrade, version string, r workflow.Reporter) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletPatience)
	defer cancel()
	return wait.Until(ctx, "the kubelet", time.Second, func(ctx context.Context) (bool, string, error) {
		why := kubeletIs(ctx, u, version)
		return why == "", why, nil
	}, func(why string) { r.Waiting("node "+u.Host.Config.Node.Name, why) })
}

func putKubeletBack(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
	h := u.Host
	if !ownKubelet(h) {
		return fmt.Errorf("%s is not ocadm's", kubeletPath(h))
	}
	if !h.Files.Exists(keptKubelet) {
		return errors.New("no copy of it was saved")
	}
	for from, to := range map[string]string{keptKubelet: kubeletFile, keptConfig: kubeletConfig} {
		if err := h.Files.Copy(from, to); err != nil {
			return err
		}
	}
	if err := h.Start(ctx, r, "kubelet", true); err != nil {
		return err
	}
	return awaitKubelet(ctx, u, u.Record.From, r)
}

// depotStep adds the software that this node was upgraded with to the depot, for the other nodes and for joins.
func depotStep() Step {
	return Step{
		Name: "depot", Short: "Store the new software for the other nodes", Timeout: time.Hour,
		Skip: func(u *Upgrade) string {
			switch {
			case !u.ControlPlane || !depot.Has(u.Host):
				return "this machine has no depot"
			case u.Target.Source == SourceDepot:
				return "the depot has it"
			case u.Target.Source == SourceInternet && !u.Record.First:
				return "the other nodes download it"
			}
			return ""
		},
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error { return depot.Fill(ctx, u.Host, r) },
	}.Todo(func(ctx context.Context, u *Upgrade) ([]string, error) { return depot.Lacking(ctx, u.Host) })
}

// addonsStep upgrades CoreDNS and kube-proxy once the whole control plane has the version: kube-proxy must not be newer than an API server.
func addonsStep() Step {
	return Step{
		Name: "addons", Short: "Upgrade CoreDNS and kube-proxy once all control-plane nodes are upgraded", Timeout: 2 * addonsPatience,
		Check: func(ctx context.Context, u *Upgrade) (bool, error) {
			behind, err := planesBehind(ctx, u)
			if err != nil || len(behind) > 0 {
				return false, err
			}
			return proxyIs(ctx, u) == "" && !dnsBehind(ctx, u), nil
		},
		Plan: workflow.Says[*Upgrade]("upgrade CoreDNS and kube-proxy, if this is the last control-plane node"),
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			behind, err := planesBehind(ctx, u)
			if err != nil {
				return err
			}
			if len(behind) > 0 {
				r.Info("CoreDNS and kube-proxy follow with the last control-plane node: %s", strings.Join(behind, ", "))
				return nil
			}
			if err := kubernetes.WriteUpgradeConfig(u.Host, u.Record.To); err != nil {
				return err
			}
			for _, addon := range []string{dnsName, proxyName} {
				if err := kubernetes.KubeadmUpgrade(ctx, u.Host, r, u.Record.First, "addon", addon); err != nil {
					return err
				}
			}
			r.Changed("upgraded CoreDNS and kube-proxy to the versions of %s", u.Record.To)
			return awaitAddons(ctx, u, r)
		},
	}
}

// planesBehind returns the control-plane nodes whose API server has another version. The record of this node's API server follows its restart a moment later.
func planesBehind(ctx context.Context, u *Upgrade) (behind []string, _ error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := wait.Until(limited, "the record of the API server", time.Second, func(ctx context.Context) (bool, string, error) {
		var pods corev1.PodList
		if err := u.K.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-apiserver"}); err != nil {
			return false, "", fmt.Errorf("listing the API servers: %w", err)
		}
		behind = nil
		own := false
		for _, p := range pods.Items {
			at := len(p.Spec.Containers) > 0 && kubernetes.Tag(p.Spec.Containers[0].Image) == u.Record.To
			if p.Spec.NodeName == u.Host.Config.Node.Name {
				own = own || at
			} else if !at {
				behind = append(behind, p.Spec.NodeName)
			}
		}
		return own, "it still has the previous version", nil
	}, func(string) {})
	return behind, err
}

// proxyIs returns why kube-proxy does not have the version everywhere.
func proxyIs(ctx context.Context, u *Upgrade) string {
	var d appsv1.DaemonSet
	if err := u.K.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: proxyName}, &d); err != nil {
		if client.IgnoreNotFound(err) == nil { // another program serves Services
			return ""
		}
		return err.Error()
	}
	if c := d.Spec.Template.Spec.Containers; len(c) == 0 || kubernetes.Tag(c[0].Image) != u.Record.To {
		return "it has the previous version"
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedNumberScheduled < s.DesiredNumberScheduled || s.NumberAvailable < s.DesiredNumberScheduled {
		return fmt.Sprintf("%d of %d nodes have the new one", min(s.UpdatedNumberScheduled, s.NumberAvailable), s.DesiredNumberScheduled)
	}
	return ""
}

// dnsBehind reports whether CoreDNS has another version than this program installs. With kube-proxy, that one shows whether both were upgraded.
func dnsBehind(ctx context.Context, u *Upgrade) bool {
	list, err := addonsOf(ctx, u.K)
	if err != nil || slices.ContainsFunc(list, func(a Addon) bool { return a.Name == proxyName }) {
		return false
	}
	images, err := kubernetes.Images(u.Host.Config)
	return err == nil && slices.ContainsFunc(list, func(a Addon) bool {
		return a.Name == dnsName && !slices.ContainsFunc(images, func(i string) bool { return strings.HasSuffix(i, "/"+dnsName+":"+a.Version) })
	})
}

// awaitAddons waits for kube-proxy. A node that is down delays its rollout, but must not fail the upgrade.
func awaitAddons(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
	limited, cancel := context.WithTimeout(ctx, addonsPatience)
	defer cancel()
	err := wait.Until(limited, proxyName, time.Second, func(ctx context.Context) (bool, string, error) {
		why := proxyIs(ctx, u)
		return why == "", why, nil
	}, func(why string) { r.Waiting(proxyName, why) })
	if err != nil && ctx.Err() == nil {
		r.Info("kube-proxy is not updated on all nodes yet: %s; follow it with kubectl -n kube-system rollout status daemonset/kube-proxy", proxyIs(ctx, u))
		return nil
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Step is a step of a move.
type Step = workflow.Phase[*Move]

// interval is the polling interval of steps that wait.
const interval = time.Second

// Steps returns the steps that move a node.
func Steps() []Step {
	return []Step{
		{
			Name: "begin", Short: "Record the move", Timeout: time.Minute,
			Check: func(_ context.Context, m *Move) (bool, error) { return m.Moved() || m.noted(), nil },
			Plan:  workflow.Says[*Move](),
			Run:   begin,
		},
		Step{
			Name: "certificates", Short: "Add the new address to the certificates of the control plane", Skip: ownControlPlane,
			Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
				return kubernetes.AddNames(ctx, m.Host, r, kubernetes.NodeCertificates(), m.To)
			},
		}.Todo(func(_ context.Context, m *Move) ([]string, error) {
			files, err := kubernetes.CertificatesWithout(m.Host, kubernetes.NodeCertificates(), m.To)
			for i, f := range files {
				files[i] = "add " + m.To + " to " + f
			}
			return files, err
		}),
		stopStep(),
		Step{
			Name: "files", Short: "Write the new address into the files of this machine", Timeout: time.Minute, Run: writeFiles,
		}.Todo(func(_ context.Context, m *Move) ([]string, error) {
			if m.Moved() {
				return nil, nil
			}
			files, err := changes(m.Host, m.From, m.To)
			return files.Todo(m.Host), err
		}),
		{
			Name: "kubelet", Short: "Restart the kubelet", Timeout: time.Minute,
			Check: func(_ context.Context, m *Move) (bool, error) {
				return m.Moved() || !m.Restarted.IsZero() && m.Restarted.Before(time.Now()), nil
			},
			Plan: workflow.Says[*Move]("restart kubelet.service"),
			Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
				at := time.Now()
				if err := m.Host.Start(ctx, r, "kubelet", true); err != nil {
					return err
				}
				m.Restarted = at
				return m.save()
			},
		},
		startStep(), etcdStep(), apiServerStep(), SettingsStep(), CloudStep(), nodeStep(), podsStep(), networkStep(), markStep(),
		{
			Name: "finish", Short: "Record the end of the move", Timeout: time.Minute,
			Check: func(_ context.Context, m *Move) (bool, error) { return !m.Host.Files.Exists(recordFile), nil },
			Plan:  workflow.Says[*Move](),
			Run: func(_ context.Context, m *Move, _ workflow.Reporter) error {
				if err := m.Host.Files.Remove(recordFile); err != nil {
					return fmt.Errorf("recording the end of the move: %w", err)
				}
				return nil
			},
		},
	}
}

// markStep records on the Node that it has followed. A move of the virtual address reads the mark.
func markStep() Step {
	return Step{
		Name: "mark", Short: "Record on the node where it looks for the control plane", Timeout: 2 * time.Minute,
		Skip: workflow.SkipIf("the node does not follow a move of the control plane", func(m *Move) bool { return !m.Follow }),
		Check: func(ctx context.Context, m *Move) (bool, error) {
			n, _, err := m.node(ctx)
			return err == nil && n.Annotations[ofEndpoint] == m.To, err
		},
		Plan: workflow.Says[*Move](),
		Run: func(ctx context.Context, m *Move, _ workflow.Reporter) error {
			c, err := kubernetes.NodeClient(m.Host)
			if err != nil {
				return err
			}
			return mark(ctx, c, m.Host.Config.Node.Name, m.To)
		},
	}
}

var ownControlPlane = workflow.SkipIf("this machine is not a control-plane node", func(m *Move) bool { return !m.ControlPlane })

var ownAddress = workflow.SkipIf("this machine keeps its address", func(m *Move) bool { return m.Follow })

// noted reports whether the record on disk is that of this move.
func (m *Move) noted() bool {
	other := Move{Host: m.Host, Follow: m.Follow}
	return m.Host.Files.Exists(recordFile) && other.resume(m.To, time.Time{}) == nil && !other.Since.IsZero()
}

// begin records the move, and the pods with the former address. The API server may not answer, for example if the only control-plane node lost its
// address while it ran; the pods step then records them.
func begin(ctx context.Context, m *Move, r workflow.Reporter) error {
	if !m.Follow {
		pods, err := m.hostPods(ctx)
		if err != nil {
			r.Info("the pods of this node are not known yet: %v", err)
		}
		m.Pods = uids(pods)
	}
	return m.save()
}

func uids(pods []corev1.Pod) []types.UID {
	return lists.Map(pods, func(p corev1.Pod) types.UID { return p.UID })
}

// hostPods returns the pods in this machine's network that use the address, except static pods. If only the control plane's address changes, that is
// the health agent.
func (m *Move) hostPods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := kubernetes.NodeClient(m.Host)
	if err != nil {
		return nil, err
	}
	list, err := kube.PodsOn(ctx, c, m.Host.Config.Node.Name)
	return slices.DeleteFunc(list, func(p corev1.Pod) bool {
		return !p.Spec.HostNetwork || p.Annotations[corev1.MirrorPodAnnotationKey] != "" || m.Follow && p.Labels[v1alpha1.LabelApp] != kubernetes.HealthAgent
	}), err
}

func writeFiles(_ context.Context, m *Move, r workflow.Reporter) error {
	files, err := changes(m.Host, m.From, m.To)
	if err != nil {
		return err
	}
	// The kubelet must be restarted after any of these changes.
	if !m.Restarted.IsZero() {
		m.Restarted = time.Time{}
		if err := m.save(); err != nil {
			return err
		}
	}
	_, err = files.Write(m.Host, r)
	return err
}

// nodeStep waits until the node reports to the cluster again, with its new address or at the control plane's new address.
func nodeStep() Step {
	return Step{
		Name: "node", Short: "Wait until the node is Ready again", Timeout: 5 * time.Minute,
		Plan:  workflow.Says[*Move](),
		Check: func(ctx context.Context, m *Move) (bool, error) { return m.Moved(), nil },
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			return m.until(ctx, r, "the node", func(ctx context.Context) (bool, string, error) {
				n, lease, err := m.node(ctx)
				if err != nil {
					return false, "", err
				}
				switch {
				case lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(m.Restarted):
					return false, "its kubelet has not reported", nil
				case !kube.NodeReady(n):
					return false, "it is not Ready", nil
				case !m.Follow && !slices.Contains(kube.InternalIPs(n), m.To):
					return false, "it does not have the address " + m.To, nil
				}
				return true, "", nil
			})
		},
	}
}

func (m *Move) until(ctx context.Context, r workflow.Reporter, what string, check func(context.Context) (bool, string, error)) error {
	return wait.Until(ctx, what, interval, check, func(why string) { r.Waiting(what, why) })
}

func (m *Move) node(ctx context.Context) (*corev1.Node, *coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := kubernetes.NodeClient(m.Host)
	if err != nil {
		return nil, nil, err
	}
	name := m.Host.Config.Node.Name
	var n corev1.Node
	var lease coordinationv1.Lease
	return &n, &lease, errors.Join(c.Get(ctx, client.ObjectKey{Name: name}, &n), c.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, &lease))
}

// podsStep deletes the pods that were started with the former address, see hostPods.
func podsStep() Step {
	return Step{
		Name: "pods", Short: "Restart the pods that use the former address", Timeout: 5 * time.Minute,
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			old, err := m.oldPods(ctx)
			if err != nil {
				return err
			}
			if len(m.Pods) == 0 { // their replacements have other UIDs, whatever the clock says
				m.Pods = uids(old)
				if err := m.save(); err != nil {
					return err
				}
			}
			c, err := kubernetes.NodeClient(m.Host)
			if err != nil {
				return err
			}
			for _, p := range old {
				if err := client.IgnoreNotFound(c.Delete(ctx, &p, client.Preconditions{UID: &p.UID})); err != nil {
					return fmt.Errorf("deleting pod %s/%s: %w", p.Namespace, p.Name, err)
				}
				r.Changed("restarted pod %s/%s", p.Namespace, p.Name)
			}
			return m.until(ctx, r, "pods with the former address", func(ctx context.Context) (bool, string, error) {
				left, err := m.oldPods(ctx)
				return err == nil && len(left) == 0, fmt.Sprintf("%d have not ended", len(left)), err
			})
		},
	}.Todo(func(ctx context.Context, m *Move) ([]string, error) {
		old, err := m.oldPods(ctx)
		return lists.Map(old, func(p corev1.Pod) string { return "restart pod " + p.Namespace + "/" + p.Name }), err
	})
}

// oldPods returns the recorded pods that still exist; without a record, it returns all.
func (m *Move) oldPods(ctx context.Context) ([]corev1.Pod, error) {
	if m.Moved() {
		return nil, nil
	}
	all, err := m.hostPods(ctx)
	if !m.noted() {
		return all, err
	}
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return !m.isOld(&p) }), err
}

// isOld reports whether a pod was started with the former address. If begin could not record those pods, they are the ones started by a kubelet
// without the new address. Its clock is this machine's.
func (m *Move) isOld(p *corev1.Pod) bool {
	if len(m.Pods) > 0 {
		return slices.Contains(m.Pods, p.UID)
	}
	return p.Status.StartTime != nil && p.Status.StartTime.Time.Before(cmp.Or(m.Restarted, m.Since))
}

// flannelAddress is the annotation by which flannel on other nodes finds this one. Source: flannel-io/flannel pkg/subnet/kube/annotations.go.
const flannelAddress = "flannel.alpha.coreos.com/public-ip"

// networkStep waits until the pod network uses the new address, which flannel writes when it starts.
func networkStep() Step {
	return Step{
		Name: "pod-network", Short: "Wait until the pod network has the new address", Timeout: 5 * time.Minute, Skip: ownAddress,
		Plan: workflow.Says[*Move](),
		Check: func(ctx context.Context, m *Move) (bool, error) {
			n, _, err := m.node(ctx)
			return err == nil && (n.Annotations[flannelAddress] == "" || n.Annotations[flannelAddress] == m.To), err
		},
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			return m.until(ctx, r, "the pod network", func(ctx context.Context) (bool, string, error) {
				n, _, err := m.node(ctx)
				if err != nil {
					return false, "", err
				}
				at := n.Annotations[flannelAddress]
				return at == "" || at == m.To, "flannel has the address " + at, nil
			})
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/vip"
)

// Job is the state shared by the steps.
type Job struct {
	Host *host.Host
	K    client.WithWatch
	// Is is what the cluster had of the node when the command started.
	Is Inventory
	// DeleteVolumes deletes the claims and volumes that were on the node.
	DeleteVolumes bool
}

// Step is a step of the removal.
type Step = workflow.Phase[*Job]

const (
	// leaseSilence is how long a silent kubelet must also have left its lease unrenewed: it renews it every ten seconds.
	leaseSilence = 15 * time.Second
	// leaseWaits limits the number of such waits while the API server is unavailable.
	leaseWaits   = 3
	drainTimeout = 5 * time.Minute
)

// Steps remove the node. Each step reads from the cluster whether it is done, so an interrupted command continues where it stopped.
func Steps() []Step {
	return []Step{
		lossStep(), drainStep(), etcdStep(), peerStep(), agentsStep(), nodeStep(), podsStep(), volumesStep(),
	}
}

// Refuse returns a finding if the node cannot be removed at all.
func (i *Inventory) Refuse(ctx context.Context, h *host.Host, k client.Client) error {
	if i.Node == h.Config.Node.Name {
		return finding.New("OCA-4140", "A node cannot remove itself", i.Node+" is this machine",
			"ocadm reset on this machine; or run this command on another control-plane node")
	}
	if i.member == nil {
		return nil
	}
	all, err := members(ctx, h, k)
	if err != nil {
		return err
	}
	return mustStay(all, i.member)
}

func mustStay(all []etcd.Observed, m *etcd.Observed) error {
	why := etcd.MustStay(all, m.ID)
	if why == "" {
		return nil
	}
	return finding.New("OCA-4141", "The member "+m.Name+" of etcd cannot be removed", why,
		"repair the other control-plane nodes first: ocadm ha status names them; if those nodes are lost, too: ocadm etcd restore --help").
		With(lists.Map(all, func(o etcd.Observed) string {
			return strings.TrimSpace(fmt.Sprintf("%s at %s: %s", o.Name, o.Peer, map[bool]string{true: "answers", false: o.Problem}[o.Answers]))
		})...)
}

// lossStep makes sure that a machine whose kubelet does not answer is lost: otherwise pods of a StatefulSet might run twice.
func lossStep() Step {
	return Step{
		Name: "confirm-loss", Short: "Make sure that the machine no longer runs", Timeout: time.Minute,
		Skip: func(j *Job) string {
			switch {
			case !j.Is.Registered:
				return "the Node does not exist"
			case j.Is.Alive:
				return "the machine answers"
			case !j.Is.ready && !j.Is.etcdAnswers():
				return "the Node is not Ready"
			}
			return ""
		},
		Plan: workflow.Says[*Job]("wait " + leaseSilence.String() + " for a sign of life from the kubelet, because the Node still counts as Ready"),
		Run:  confirmLoss,
	}
}

func confirmLoss(ctx context.Context, j *Job, r workflow.Reporter) error {
	if j.Is.etcdAnswers() {
		return finding.New("OCA-4142", "The machine of node "+j.Is.Node+" still runs",
			"its kubelet does not answer at "+strings.Join(j.Is.Addresses, ", ")+" port "+kubeletPort+", but its member of etcd does: its containers run, too",
			"on it: systemctl status kubelet, or ocadm reset; or turn it off; then run the same command again")
	}
	was, said := "", ""
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: j.Is.Node}}
	renewed := func(o client.Object) (bool, string) {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Spec.RenewTime == nil {
			said = "the lease of the kubelet does not exist"
			return false, said
		}
		was = cmp.Or(was, l.Spec.RenewTime.String())
		said = "the kubelet does not answer; its lease was renewed at " + was
		return was != l.Spec.RenewTime.String(), said
	}
	away := ""
	for range leaseWaits { // an API server that was unavailable proves nothing: no kubelet could renew its lease there
		away = ""
		limited, cancel := context.WithTimeout(ctx, leaseSilence)
		err := kube.WaitFor(limited, j.K, lease.DeepCopy(), renewed, func(why string) {
			if why != said {
				away = why
			}
			r.Waiting("a sign of life from "+j.Is.Node, why)
		})
		cancel()
		runs, seen := err == nil, was
		if !runs && (ctx.Err() != nil || !errors.Is(context.Cause(limited), context.DeadlineExceeded)) {
			return err
		}
		if !runs {
			if err := j.K.Get(ctx, client.ObjectKeyFromObject(lease), lease); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("making sure that the machine of node %s is lost: %w", j.Is.Node, err)
			}
			runs, _ = renewed(lease)
		}
		if runs {
			return finding.New("OCA-4142", "The machine of node "+j.Is.Node+" still runs",
				"its kubelet renews its lease, but does not answer at "+strings.Join(j.Is.Addresses, ", ")+" port "+kubeletPort,
				"run ocadm reset on it, or turn it off; then run the same command again")
		}
		if away == "" && was == seen {
			return nil
		}
	}
	return fmt.Errorf("making sure that the machine of node %s is lost: the API server did not show its lease for %s: %s", j.Is.Node, leaseSilence, cmp.Or(away, "no answer"))
}

// drainStep moves the pods of a running machine.
func drainStep() Step {
	return Step{
		Name: "drain", Short: "Move the pods of a machine that runs to other nodes", Timeout: drainTimeout,
		Skip: workflow.SkipIf("the machine does not answer", func(j *Job) bool { return !j.Is.Alive }),
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			return Drain(ctx, j.K, j.Is.Node, "or turn the machine off, then run the same command again", r)
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		if gone, err := j.gone(ctx); gone || err != nil {
			return nil, err
		}
		return Evictions(ctx, j.K, j.Is.Node)
	})
}

// Evictions returns the pods that Drain moves away from a node, as lines of a plan.
func Evictions(ctx context.Context, k client.Client, node string) ([]string, error) {
	pods, err := kube.PodsOn(ctx, k, node)
	return lists.Pick(pods, func(p corev1.Pod) (string, bool) {
		return "evict pod " + p.Namespace + "/" + p.Name, kube.Evictable(&p)
	}), err
}

// Drain keeps new pods from a node and evicts those that can run elsewhere, as far as disruption budgets allow. otherwise is the alternative to suggest if they do not.
func Drain(ctx context.Context, k client.Client, node, otherwise string, r workflow.Reporter) error {
	if err := kube.Cordon(ctx, k, node, kube.FieldManager); err != nil {
		return err
	}
	left, err := kube.Evict(ctx, k, k, node, 500*time.Millisecond, 10*time.Second, r.Waiting)
	if err != nil && wait.Interrupted(err) && !errors.Is(context.Cause(ctx), context.Canceled) {
		return finding.New("OCA-4143", "Pods do not leave node "+node, strings.Join(left, ", "),
			"kubectl get poddisruptionbudgets -A; "+otherwise)
	}
	if err == nil {
		r.Changed("moved all pods that can run elsewhere from node %s", node)
	}
	return err
}

func etcdStep() Step {
	return Step{
		Name: "etcd-member", Short: "Remove the member of etcd", Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			c, all, err := kubernetes.ObserveEtcd(ctx, opener(j.Host, j.K))
			if err != nil {
				return err
			}
			defer c.Close()
			m := j.Is.memberIn(all)
			if m == nil {
				return nil
			}
			if err := mustStay(all, m); err != nil {
				return err
			}
			if err := c.Remove(ctx, m.Listed()); err != nil {
				return err
			}
			r.Changed("removed member %s of etcd, at %s", j.Is.Node, m.Peer)
			return nil
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		all, err := members(ctx, j.Host, j.K)
		if m := j.Is.memberIn(all); err == nil && m != nil {
			return []string{"remove member " + j.Is.Node + " of etcd, at " + m.Peer}, nil
		}
		return nil, err
	})
}

func peerStep() Step {
	return Step{
		Name: "virtual-address", Short: "Remove the node from the group of the virtual address", Timeout: time.Minute,
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			for _, p := range j.Is.Peers {
				if err := vip.RemovePeer(ctx, j.K, p); err != nil {
					return err
				}
				r.Changed("removed %s from the group of the virtual address", p)
			}
			return nil
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		s, _, err := vip.Load(ctx, j.K)
		return lists.Pick(j.Is.Peers, func(p string) (string, bool) {
			return "remove " + p + " from the group of the virtual address", slices.Contains(s.Peers, p)
		}), err
	})
}

// gone reports whether the Node from the start of the command no longer exists.
func (j *Job) gone(ctx context.Context) (bool, error) {
	var n corev1.Node
	found, err := kube.Find(ctx, j.K, client.ObjectKey{Name: j.Is.Node}, &n, "node "+j.Is.Node)
	return err == nil && (!found || n.UID != j.Is.uid), err
}

func nodeStep() Step {
	return Step{
		Name: "node", Short: "Delete the Node", Timeout: time.Minute,
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: j.Is.Node}}
			if err := j.K.Delete(ctx, n, client.Preconditions{UID: &j.Is.uid}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting node %s: %w", j.Is.Node, err)
			}
			r.Changed("deleted Node %s", j.Is.Node)
			return nil
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		if gone, err := j.gone(ctx); gone || err != nil || !j.Is.Registered {
			return nil, err
		}
		return []string{"delete Node " + j.Is.Node}, nil
	})
}

// podsStep removes the pods that the cluster still lists as running there. It runs after the Node is gone, because DaemonSet pods would be created again.
func podsStep() Step {
	return Step{
		Name: "pods", Short: "Remove the records of the pods that were on the node", Timeout: time.Minute,
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			if gone, err := j.gone(ctx); err != nil || !gone && j.Is.Registered {
				return errors.Join(err, errors.New("removing pods: the Node still exists"))
			}
			pods, err := kube.PodsOn(ctx, j.K, j.Is.Node)
			for i := range pods {
				p := &pods[i]
				if derr := j.K.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(derr) != nil {
					err = errors.Join(err, fmt.Errorf("deleting pod %s/%s: %w", p.Namespace, p.Name, derr))
				}
			}
			if err == nil {
				r.Changed("removed the records of %s", lists.Counted(len(pods), "pod"))
			}
			return err
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		pods, err := kube.PodsOn(ctx, j.K, j.Is.Node)
		return lists.Map(pods, func(p corev1.Pod) string { return "remove the record of pod " + p.Namespace + "/" + p.Name }), err
	})
}

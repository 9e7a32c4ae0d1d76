// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// drainTimeout is how long pods may take to leave a node.
const drainTimeout = 15 * time.Minute

// nodeOf returns the Node of a machine, nil if it has none.
func nodeOf(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) (*corev1.Node, error) {
	n := &corev1.Node{}
	if found, err := kube.Find(ctx, c, client.ObjectKey{Name: m.Name}, n, "node "+m.Name); !found || !joined(n, m) {
		return nil, err
	}
	return n, nil
}

// abandoned reports whether a user has abandoned the contents of the machine.
func abandoned(m *v1alpha1.OnecloudMachine) bool {
	return m.Annotations[v1alpha1.AnnotationAbandonMachine] == "true"
}

// mayReset checks that the machine answers and that no virtual machines run on it, before the pods are moved: nothing moves them back.
func (w work) mayReset() operation.Step {
	return operation.Step{
		Name: stepMayReset, Short: "Check that no virtual machines run on the machine", ReadOnly: true, Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, r *operation.Run, _ workflow.Reporter) error {
			m, err := w.machineOf(ctx, r)
			if err != nil || abandoned(m) || m.CallsIn() {
				return err
			}
			n, err := nodeOf(ctx, w.Direct, m)
			if err != nil || n == nil {
				return err
			}
			m, c, err := w.open(ctx, r)
			if err != nil {
				return err
			}
			defer c.Close()
			return plain(ctx, m.Name, stepReset, c, bootstrap.NoGuestsScript, "guests")
		},
	}
}

// drain cordons the node and evicts its pods.
func (w work) drain() operation.Step {
	return operation.Step{
		Name: stepDrain, Short: "Move the pods to other nodes", Timeout: drainTimeout + time.Minute,
		Run: w.onNode(func(ctx context.Context, m *v1alpha1.OnecloudMachine, n *corev1.Node, report workflow.Reporter) error {
			if abandoned(m) {
				report.Info("not moving the pods: the machine is abandoned")
				return nil
			}
			if !n.Spec.Unschedulable {
				if err := kube.Cordon(ctx, w.Client, n.Name, v1alpha1.ManagerOperator); err != nil {
					return err
				}
				report.Changed("cordoned node %s", n.Name)
			}
			ctx, cancel := context.WithTimeout(ctx, drainTimeout)
			defer cancel()
			// It polls, also because the operator has no permission to watch other pods.
			left, err := kube.Evict(ctx, w.Direct, w.Client, n.Name, time.Second, 15*time.Second, report.Waiting)
			if len(left) > 0 && wait.Interrupted(err) {
				return fmt.Errorf("waiting for the pods of node %s: %s are still there", n.Name, strings.Join(lists.Some(left, 5), ", "))
			}
			return err
		}),
	}
}

// onNode wraps work on the machine's Node into a step. Without a Node it does nothing.
func (w work) onNode(
	work func(context.Context, *v1alpha1.OnecloudMachine, *corev1.Node, workflow.Reporter) error,
) func(context.Context, *operation.Run, workflow.Reporter) error {
	return func(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
		m, err := w.machineOf(ctx, r)
		if err != nil {
			return err
		}
		n, err := nodeOf(ctx, w.Direct, m)
		if err != nil || n == nil {
			return err
		}
		return work(ctx, m, n, report)
	}
}

// mayLeave checks whether etcd survives without a control-plane node, before anything is changed.
func (w work) mayLeave() operation.Step {
	return operation.Step{
		Name: stepMayLeave, Short: "Check that etcd works without the node", ReadOnly: true, Timeout: 2 * time.Minute, Skip: worker, Run: w.leaveEtcd(true),
	}
}

// leave removes a control-plane node from etcd and the VRRP group. If the machine answers, ocadm reset has done so already.
func (w work) leave() operation.Step {
	return operation.Step{Name: stepLeave, Short: "Remove the node from etcd", Timeout: 5 * time.Minute, Skip: worker, Run: w.leaveEtcd(false)}
}

func (w work) leaveEtcd(check bool) func(context.Context, *operation.Run, workflow.Reporter) error {
	return func(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
		if w.Leave == nil {
			return elsewhere(r.Operation.MachineName())
		}
		m, err := w.machineOf(ctx, r)
		if err != nil {
			return err
		}
		n, err := nodeOf(ctx, w.Direct, m)
		if err != nil {
			return err
		}
		if n == nil && m.Status.NodeRef == nil && m.Status.JoinBegun == "" {
			report.Info("the machine never joined: an etcd member with its name belongs to another machine")
			return nil
		}
		return w.Leave(ctx, r.Operation.MachineName(), check, report)
	}
}

// OnlyControlPlane returns the finding about a machine without which the cluster would have no control plane.
func OnlyControlPlane(machine string) finding.Finding {
	return finding.New("OCA-4141", "Machine "+machine+" cannot be removed", "it is the only control-plane node and holds all data of the cluster",
		"add another control-plane machine first; to remove the entire cluster: ocadm reset on every machine")
}

// IsOnlyControlPlane reports whether a machine's Node is the only control-plane node.
func IsOnlyControlPlane(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) (bool, error) {
	if !m.ControlPlane() {
		return false, nil
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.HasLabels{v1alpha1.LabelControlPlane}); err != nil {
		return false, fmt.Errorf("listing control-plane nodes: %w", err)
	}
	return len(nodes.Items) == 1 && joined(&nodes.Items[0], m), nil
}

// elsewhere returns the finding about work that is only possible on a control-plane node.
func elsewhere(machine string) error {
	return finding.New("OCA-7627", "Machine "+machine+" is a control-plane node, on which the operator cannot work",
		"this needs a Job on a control-plane node, but the operator is not allowed to create Jobs or does not run in a pod",
		finding.InstallOperator)
}

// worker returns why a step for control-plane nodes is skipped.
func worker(r *operation.Run) string {
	if r.Operation.Spec.Machine.ControlPlane {
		return ""
	}
	return "the machine is not a control-plane node"
}

// codeNotReset is the code of the finding about a machine without a login on which ocadm reset has not run yet.
const codeNotReset = "OCA-7625"

// Left reports whether ocadm reset has recorded in a Node that its machine is gone.
func Left(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Reason == ReasonLeft
	})
}

// ReasonLeft is the reason that ocadm reset records for a Node that is not Ready. A test compares it with the installer's.
const ReasonLeft = "NodeLeft"

// awaitReset handles the reset of a machine without a login: a user runs it, and the Node shows the result.
func awaitReset(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) error {
	n, err := nodeOf(ctx, c, m)
	if err != nil || n == nil || Left(n) {
		return err
	}
	return finding.New(codeNotReset, "Machine "+m.Name+" calls in, so the operator cannot log in to reset it", "its Node has no pods left to move",
		"run on the machine: ocadm reset; the removal then continues automatically. If the machine no longer exists: ocadm machine remove "+m.Name+" --abandon")
}

// reset runs ocadm reset on the machine, which verifies that nothing is left.
func (w work) reset() operation.Step {
	return operation.Step{
		Name: stepReset, Short: "Remove what ocadm installed on the machine", Timeout: 30 * time.Minute,
		Run: func(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
			m, err := w.machineOf(ctx, r)
			if err != nil {
				return err
			}
			if abandoned(m) {
				report.Info("nothing on the machine is removed: it is abandoned")
				return nil
			}
			if m.CallsIn() {
				return awaitReset(ctx, w.Direct, m)
			}
			m, c, err := w.open(ctx, r)
			if err != nil {
				return err
			}
			defer c.Close()
			return w.clean(ctx, m, c, report)
		},
	}
}

// clean resets a machine with an open login. If the machine never joined, it only removes what was sent: the address may belong to anything. A host that
// claims to be this node of this cluster is also reset if there is no Node of that name: its address may have been changed since.
func (w work) clean(ctx context.Context, m *v1alpha1.OnecloudMachine, c *ssh.Conn, report workflow.Reporter) error {
	n, err := nodeOf(ctx, w.Direct, m)
	if err != nil {
		return err
	}
	is, err := whatIs(ctx, m.Name, c)
	if err != nil {
		return err
	}
	mine := resets(m, n)
	if !mine && is.surely(m.Name, w.Authority) {
		found, err := kube.Find(ctx, w.Direct, client.ObjectKey{Name: m.Name}, &corev1.Node{}, "Node "+m.Name)
		if err != nil {
			return err
		}
		mine = !found // there is no Node of this name at all
	}
	if !mine {
		report.Info("the machine has not started to join at %s: only the files that were sent there are removed", place(m))
		return plain(ctx, m.Name, stepReset, c, bootstrap.TidyScript)
	}
	if err := is.of(m.Name, w.Authority); err != nil {
		return err
	}
	return Reset(ctx, m.Name, c, report)
}

func (w work) deleteNode() operation.Step {
	return operation.Step{
		Name: stepNode, Short: "Delete the Node", Timeout: 2 * time.Minute,
		Run: w.onNode(func(ctx context.Context, _ *v1alpha1.OnecloudMachine, n *corev1.Node, report workflow.Reporter) error {
			if err := client.IgnoreNotFound(w.Client.Delete(ctx, n, client.Preconditions{UID: &n.UID})); err != nil {
				return fmt.Errorf("deleting node %s: %w", n.Name, err)
			}
			report.Changed("deleted node %s", n.Name)
			return nil
		}),
	}
}

// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// LabelHost is the label of compute nodes. Its value is v1alpha1.Enable, and it makes the agents run on the node.
const LabelHost = v1alpha1.NodeRolePrefix + "host"

// LabelPhase labels this machine's node as a compute node. The kubelet sets the role only when it registers a node, so a node that becomes a compute
// node later needs this phase. The label is removed with the node.
func LabelPhase() host.Phase {
	return host.Phase{
		Name: "compute-labels", Short: "Label the node as a compute node",
		Skip: Phase().Skip,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			done, err := labelled(ctx, h)
			return err == nil && done, nil // without an answer, the phase runs and reports why
		},
		Plan: workflow.Says[*host.Host](fmt.Sprintf("label the node %s=%s", LabelHost, v1alpha1.Enable)),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			done, err := labelled(ctx, h)
			if err != nil || done {
				return err
			}
			// The host agent starts now.
			if err := accepted(h); err != nil {
				return err
			}
			for _, line := range consequences(h) {
				r.Info("%s", line)
			}
			c, err := kubernetes.NodeClient(h)
			if err != nil {
				return err
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name}}
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{LabelHost: v1alpha1.Enable}}}
			if err := kube.Merge(ctx, c, n, kube.FieldManager, patch); err != nil {
				return fmt.Errorf("labelling the node: %w", err)
			}
			r.Changed("labelled the node %s=%s", LabelHost, v1alpha1.Enable)
			return nil
		},
	}
}

// StillHost returns what to say after a run without --enable-host-agent on a node that is a compute node already, otherwise "": such a run removes
// neither the label nor the host agent. Without an answer of the cluster it says nothing.
func StillHost(ctx context.Context, h *host.Host) string {
	if h.Config.Node.EnableHostAgent {
		return ""
	}
	if done, err := labelled(ctx, h); err != nil || !done {
		return ""
	}
	return "this node stays a compute node, because it was one before; to stop its host agent, run on a control-plane node: ocadm node disable-host-agent " +
		h.Config.Node.Name
}

func labelled(ctx context.Context, h *host.Host) (bool, error) {
	c, err := kubernetes.NodeClient(h)
	if err != nil {
		return false, err
	}
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: h.Config.Node.Name}, &n); err != nil {
		return false, fmt.Errorf("reading the node: %w", err)
	}
	return n.Labels[LabelHost] == v1alpha1.Enable, nil
}

// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Labels of a compute node. The first one brings the agents. The second one says that the executor runs there and qemu-img is installed:
// services that convert images on the node run only there.
const (
	LabelHost     = v1alpha1.NodeRolePrefix + "host"
	LabelExecutor = v1alpha1.NodeRolePrefix + "executor"
)

// LabelPhase labels this machine's node as a compute node. The kubelet gives the role only to a node that it registers, so a node that
// becomes a compute node later needs this. Its removal is that of the node.
func LabelPhase() host.Phase {
	return host.Phase{
		Name: "compute-labels", Short: "Label the node as a compute node",
		Skip: Phase().Skip,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			missing, err := missingLabels(ctx, h)
			return err == nil && len(missing) == 0, nil // no answer: the phase runs, and says why
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			var lines []string
			for key, value := range labels(h) {
				if value != nil {
					lines = append(lines, fmt.Sprintf("label the node %s=%s", key, value))
				}
			}
			return lines, nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			missing, err := missingLabels(ctx, h)
			if err != nil || len(missing) == 0 {
				return err
			}
			if missing[LabelHost] != nil { // the host agent starts now, which the kubelet's registration did not bring
				if err := accepted(h); err != nil {
					return err
				}
				for _, line := range consequences(h) {
					r.Info("%s", line)
				}
			}
			c, err := kubernetes.NodeClient(h)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": missing}})
			if err != nil {
				return fmt.Errorf("labelling the node: %w", err)
			}
			if _, err := c.CoreV1().Nodes().Patch(ctx, h.Config.Node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("labelling the node: %w", err)
			}
			for key, value := range missing {
				if value == nil {
					r.Changed("removed the label %s of the node", key)
				} else {
					r.Changed("labelled the node %s=%s", key, value)
				}
			}
			return nil
		},
	}
}

// labels are those that the node should have; nil is for one that it must not have.
func labels(h *host.Host) map[string]any {
	out := map[string]any{LabelHost: v1alpha1.Enable, LabelExecutor: nil}
	if _, ok := host.LookPath(h.Files, "qemu-img"); ok {
		out[LabelExecutor] = v1alpha1.Enable
	}
	return out
}

// missingLabels are the labels that have to be changed, as a merge patch has them.
func missingLabels(ctx context.Context, h *host.Host) (map[string]any, error) {
	c, err := kubernetes.NodeClient(h)
	if err != nil {
		return nil, err
	}
	n, err := c.CoreV1().Nodes().Get(ctx, h.Config.Node.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the node: %w", err)
	}
	return difference(n.Labels, labels(h)), nil
}

func difference(have map[string]string, want map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range want {
		now, there := have[key]
		if value == nil && there || value != nil && now != value {
			out[key] = value
		}
	}
	return out
}

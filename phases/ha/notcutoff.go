// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/spread"
)

// cutFault is the fault that cuts a whole node off.
const cutFault = "node"

// NotCutOff is a control-plane node whose loss the test did not cover.
type NotCutOff struct {
	Node string `json:"node"`
	// Own is set for the node that runs the test, which it cannot cut off.
	Own bool `json:"own,omitempty"`
	// Runs lists the parts of the cluster and its clouds that run only there.
	Runs []string `json:"runsThereAlone,omitempty"`
}

// CutOff chooses the node to cut off; "" leaves the choice to the test.
func (t *Test) CutOff(ctx context.Context, node string) error {
	if node == "" {
		return nil
	}
	names, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	own := t.Host.Config.Node.Name
	if !slices.Contains(names, node) || node == own {
		others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == own })
		cause := "the control-plane nodes are " + strings.Join(names, ", ")
		if node == own {
			cause = "the test runs on this node, and would measure nothing"
		}
		return finding.New("OCA-4176", "Node "+node+" cannot be cut off here", cause,
			"ocadm ha test --node "+strings.Join(others, " or ")+"; to cut off "+own+", run the test on another control-plane node")
	}
	t.Cut = node
	return nil
}

// NotCutOff returns the control-plane nodes that the test did not cut off, or would not in a dry run.
func (t *Test) NotCutOff(ctx context.Context) ([]NotCutOff, error) {
	names, err := t.nodes(ctx)
	if err != nil {
		return nil, err
	}
	cut := ""
	if i := slices.IndexFunc(t.Outcomes, func(o Outcome) bool { return o.Fault == cutFault }); i >= 0 {
		cut = t.Outcomes[i].Node
	} else if t.Host.Files.DryRun {
		if cut, err = other(ctx, t); err != nil {
			return nil, err
		}
	}
	var out []NotCutOff
	for _, name := range names {
		if name == cut {
			continue
		}
		runs, err := spread.Runs(ctx, t.K, name)
		if err != nil {
			return nil, err
		}
		out = append(out, NotCutOff{Node: name, Own: name == t.Host.Config.Node.Name, Runs: runs})
	}
	return out, nil
}

// nodes returns the names of the control-plane nodes.
func (t *Test) nodes(ctx context.Context) ([]string, error) {
	list, err := kubernetes.ControlPlanes(ctx, t.K)
	if err != nil {
		return nil, err
	}
	names := lists.Map(list, func(n corev1.Node) string { return n.Name })
	slices.Sort(names)
	return names, nil
}

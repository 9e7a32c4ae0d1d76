// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
)

// AddonSteps upgrade the cluster's addons to this release, one by one. A failed one is rolled back; those before it stay upgraded.
func AddonSteps(all []addons.Installed) []Step {
	steps := []Step{
		on(node.Images(node.ImageGroup{Name: "addons", Short: "Import or pull the images of the addons", Need: func(*host.Host) ([]string, error) {
			return slices.Concat(lists.Map(all, addons.Installed.Images)...), nil
		}})),
		depotStep(),
	}
	return append(steps, lists.Map(all, func(i addons.Installed) Step { return on(i.Phase()) })...)
}

// MayUpgradeAddons returns what prevents an upgrade of the addons: an unfinished upgrade of this machine, and nodes that are not Ready. Pods of the
// new version would not start there, and the addon would be rolled back.
func MayUpgradeAddons(ctx context.Context, h *host.Host, c client.Client) (finding.List, error) {
	before, err := Unfinished(h)
	if err != nil {
		return nil, err
	}
	if before != nil {
		return finding.List{finding.New("OCA-4514", "An upgrade of this machine is not complete", "it was started at "+before.Begun.Format(time.RFC3339),
			"continue it: ocadm upgrade node, or apply on the node where that was interrupted; ocadm upgrade plan shows the state of all nodes")}, nil
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, kube.Explain(err)
	}
	down := lists.Pick(nodes.Items, func(n corev1.Node) (string, bool) { return n.Name, !kube.NodeReady(&n) })
	if len(down) > 0 {
		return finding.List{finding.New("OCA-4502", "Nodes are not Ready", strings.Join(down, ", "), "ocadm why "+down[0]+"; ocadm node remove removes a lost node")}, nil
	}
	return nil, nil
}

// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// NetworkPhase is the name of NetworkReady.
const NetworkPhase = "network-ready"

// flannelSubnet is the file to which flannel writes the pod addresses of this node. Its CNI plugin fails until the file exists, although the node is Ready
// earlier.
const flannelSubnet = "/run/flannel/subnet.env"

// subnetInterval is how often to look for that file once flannel runs.
const subnetInterval = 100 * time.Millisecond

// NetworkReady waits until the pod network can give addresses to pods of this node.
func NetworkReady() host.Phase {
	return host.Await(host.Phase{
		Name: NetworkPhase, Short: "Wait until pods can get addresses",
		Long: "Waits until flannel runs on this node and has its addresses. Pods that are installed later then start at once: a pod without an address\n" +
			"would be retried only after 10 to 15 seconds.",
		Patience: readyPatience,
		Skip: func(h *host.Host) string {
			if slices.Contains(h.Config.Run.SkipPhases, "cni") {
				return "--skip-phases"
			}
			return flannel().Skip(h.Config)
		},
	}, func(ctx context.Context, h *host.Host, c client.WithWatch) bool {
		return h.Files.Exists(flannelSubnet) && network(h).ready(ctx, c)
	}, func(ctx context.Context, h *host.Host, c client.WithWatch, r workflow.Reporter) error {
		if err := waitAll(ctx, c, []target{network(h)}, r); err != nil {
			return err
		}
		return awaitSubnet(ctx, h, r)
	})
}

func awaitSubnet(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	t := network(h)
	err := wait.Until(ctx, t.what, subnetInterval, func(context.Context) (bool, string, error) {
		return h.Files.Exists(flannelSubnet), flannelSubnet + " does not exist yet", nil
	}, func(why string) { r.Waiting(t.what, why) })
	if err != nil {
		return notReady(t, err)
	}
	return nil
}

// network returns flannel's pod on this node.
func network(h *host.Host) target {
	return target{what: "the pod network", on: h.Config.Node.Name, obj: &appsv1.DaemonSet{ObjectMeta: named("kube-flannel", "kube-flannel-ds")}}
}

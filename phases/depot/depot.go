// SPDX-License-Identifier: Apache-2.0

// Package depot makes a control-plane node the source of images and programs for the other nodes: it fills the store and writes the static pod that serves it.
package depot

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"time"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
)

// PhaseName is the name of Phase.
const PhaseName = "depot"

// CodeNotServing is the finding for a depot that does not answer on its own node.
const CodeNotServing = "OCA-2315"

// Reserve is the number of bytes that the depot leaves free on its disk.
const Reserve = 2 << 30

// Phase fills the depot and starts it. own is its pod's image, which another release has not brought to the node. images names the phases that bring
// images to the node, api the one after which the API server answers.
func Phase(api string, own node.ImageGroup, images ...string) host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Keep images and programs for other nodes, and serve them",
		Long: "Stores the content of the bundle and this program in " + depot.DefaultDir + ", and starts a static pod that serves it to other nodes\n" +
			"on port " + strconv.Itoa(config.DepotPort) + ". Those nodes join without a bundle, and pull images from the depot first.",
		After: []string{api}, AnyRelease: true,
		Skip: workflow.SkipIf("--depot none", func(h *host.Host) bool { return h.Config.Node.Depot == config.None }),
		Phases: []host.Phase{
			certificatePhase(),
			startPhase(own),
			fillPhase(images),
			{
				Name: "serve", Short: "Wait for the depot to answer", After: []string{PhaseName + "/start"}, Patience: 2 * time.Minute,
				Check: func(ctx context.Context, h *host.Host) (bool, error) { return probe(ctx, h) == "", nil },
				Plan:  workflow.Says[*host.Host](),
				Run:   awaitDepot,
			},
		},
	}
}

func startPhase(own node.ImageGroup) host.Phase {
	p := host.Writes(host.Phase{
		Name: "start", Short: "Write the static pod of the depot", After: []string{PhaseName + "/certificate", "images/operator"},
	}, manifest)
	write := p.Run
	p.Run = func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
		if _, err := own.Bring(ctx, h, r); err != nil { // the depot cannot serve its own image while it is being replaced
			return err
		}
		return write(ctx, h, r)
	}
	return p
}

func fillPhase(after []string) host.Phase {
	return host.Phase{
		Name: "fill", Short: "Store the content of the bundle and this program", After: after, Timeout: time.Hour, AnyRelease: true,
		Run: Fill,
	}.Todo(Lacking)
}

// Open opens the depot of this machine and creates it if necessary.
func Open(h *host.Host) (*depot.Store, error) {
	return depot.Open(h.Files.Path(depot.DefaultDir), Reserve)
}

const askInterval = 500 * time.Millisecond

// probe returns why this node's depot does not answer, or "" if it does.
func probe(ctx context.Context, h *host.Host) string {
	pool, err := depot.Authorities(h.Files.Path(authority))
	if err != nil {
		return err.Error()
	}
	address := net.JoinHostPort(cmp.Or(h.Config.Node.AdvertiseAddress, h.Config.Node.IP), strconv.Itoa(config.DepotPort))
	return kubernetes.Probe(ctx, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, "https://"+address+depot.HealthPath)
}

func awaitDepot(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	err := wait.Until(ctx, "the depot", askInterval, func(ctx context.Context) (bool, string, error) {
		why := probe(ctx, h)
		return why == "", why, nil
	}, func(why string) { r.Waiting("the depot", why) })
	return finding.Failed(ctx, err, CodeNotServing, "The depot of this node does not answer",
		"kubectl -n kube-system logs -l app=ocadm-depot; then run the command again")
}

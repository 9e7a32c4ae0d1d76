// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
)

func newDepotAdd(a *app) *cobra.Command {
	var image string
	c := &cobra.Command{
		Use: "add FILE", Short: "Store the ocadm of another architecture in the depot",
		Long: "Stores a file with this version of ocadm for another architecture, as a program and under the name of an image, in the depot of this\n" +
			"control-plane node. Machines of that architecture then download it from the depot, and pull the operator's image there.",
		Example: "  # from the release's archive for arm64\n  ocadm depot add ocadm-arm64\n\n" +
			"  # where the cloud's images have another registry\n  ocadm depot add ocadm-arm64 --name registry.example.org/cloud/ocadm:" + exampleVersion,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			h, err := registeredHost(c.Context())
			if err != nil {
				return err
			}
			if !depotphase.Has(h) {
				return noDepot(errors.New("there is nothing to add the program to"))
			}
			s := a.story()
			arch, err := depotphase.AddProgram(c.Context(), h, s, args[0], image)
			s.Close()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s for %s is in the depot\n", image, arch)
			return err
		},
	}
	c.Flags().StringVar(&image, "name", images.OperatorRef("", version.Version), "name of the image")
	return c
}

// exampleVersion keeps the reference the same in every build.
const exampleVersion = "v0.1.0"

// lacksProgram returns a finding if the depot has no image of this program for the architecture of a node.
func lacksProgram(ctx context.Context, h *host.Host, image string) error {
	k, err := h.Kube(ctx)
	if err != nil {
		return noCluster(err)
	}
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	archs := lists.Pick(nodes.Items, func(n corev1.Node) (string, bool) {
		return n.Status.NodeInfo.Architecture, n.Status.NodeInfo.Architecture != ""
	})
	return depotphase.Lacks(ctx, h, image, lists.Distinct(archs))
}

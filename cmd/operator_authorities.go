// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/removal"
)

// newOperatorShareAuthorities returns the command of a Job on a control-plane node that runs before another one joins.
func newOperatorShareAuthorities(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "share-authorities", Short: "Store the authorities of the cluster for joins", Hidden: true,
		Long: "Stores the certificate authorities and keys of this control-plane node in the cluster, encrypted with a key, for two hours. As the first\n" +
			"process of a container it runs itself again, forwards signals to that process, and reaps processes that lost their parent.",
		Example: "  ocadm operator share-authorities --key-file /secrets/key\n  ocadm operator share-authorities --key-file key",
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Getpid() == firstProcess {
				return runBelow()
			}
			key, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("reading the certificate key: %w", err)
			}
			h, err := controlPlaneHost(c.Context(), false)
			if err != nil {
				return err
			}
			if err := kubernetes.ShareAuthorities(c.Context(), h, strings.TrimSpace(string(key))); err != nil {
				return err
			}
			fmt.Fprintln(a.Err, "stored the authorities of the cluster, encrypted, for two hours")
			return nil
		},
	}
	c.Flags().StringVar(&file, "key-file", "", "file with the key")
	return c
}

// leaveControlPlane removes another node from etcd and the VRRP group, and restarts the agents that must know the others. With check, it only checks
// whether etcd survives without the node.
func leaveControlPlane(ctx context.Context, node string, check bool, report workflow.Reporter) error {
	h, err := controlPlaneHost(ctx, check)
	if err != nil {
		return err
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return noCluster(err)
	}
	is, err := removal.Look(ctx, h, k, node)
	if err != nil {
		return err
	}
	if err := is.Refuse(ctx, h, k); err != nil || check {
		return err
	}
	j := &removal.Job{Host: h, K: k, Is: is}
	for _, s := range removal.Steps() {
		if !slices.Contains([]string{"etcd-member", "virtual-address", "health-agents"}, s.Name) {
			continue
		}
		if done, err := s.Check(ctx, j); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := s.Run(ctx, j, report); err != nil {
			return err
		}
	}
	return nil
}

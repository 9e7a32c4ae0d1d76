// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/test/lab/machine"
)

func deployCommand() *cobra.Command {
	var name, archive, image string
	cmd := &cobra.Command{
		Use: "deploy", Args: cobra.NoArgs,
		Short: "Run an image as the operator of a lab's cluster",
		Long: "Imports the image into the containerd of every machine, sets it on the operator's Deployment and waits until its pod is ready.\n" +
			"\"make deploy-dev\" builds the image from the checkout first.",
		Example: "  lab deploy --archive dist/ocadm-image.tar --image registry.example/ocadm:dev-0123456789ab",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return machine.ErrNotRoot
			}
			lab, err := machine.Open(name, logf)
			if err != nil {
				return err
			}
			return deploy(cmd.Context(), lab, archive, image)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().StringVar(&archive, "archive", "", "docker-archive of the image")
	cmd.Flags().StringVar(&image, "image", "", "the image's reference in the archive")
	for _, flag := range []string{"archive", "image"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

// deployed is where the archive lies on a machine while it is imported.
const deployed = "/tmp/ocadm-image.tar"

func deploy(ctx context.Context, lab *machine.Lab, archive, image string) error {
	g, importing := errgroup.WithContext(ctx)
	for _, n := range lab.Nodes() {
		g.Go(func() error {
			logf("importing %s on %s", image, n.Name)
			if err := n.CopyIn(importing, archive, deployed); err != nil {
				return err
			}
			if _, stderr, err := n.Exec(importing, "ctr", "-n", "k8s.io", "images", "import", "--local", deployed); err != nil {
				return fmt.Errorf("importing the image on %s: %w: %s", n.Name, err, stderr)
			}
			_, _, err := n.Exec(importing, "rm", "-f", deployed)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	logf("setting the operator's image")
	for _, args := range [][]string{
		{"set", "image", "deployment/onecloud-operator", "onecloud-operator=" + image},
		{"rollout", "status", "deployment/onecloud-operator", "--timeout=2m"},
	} {
		argv := append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud"}, args...)
		if err := lab.Node(1).Run(ctx, machine.Streams{Out: os.Stderr, Err: os.Stderr}, argv...); err != nil {
			return fmt.Errorf("running kubectl %s: %w", args[0], err)
		}
	}
	return nil
}

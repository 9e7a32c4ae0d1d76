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
	var archive, image string
	cmd := ofLab("deploy", "Run an image as the operator of a lab's cluster", cobra.NoArgs, func(cmd *cobra.Command, name string, _ []string) error {
		if os.Geteuid() != 0 {
			return machine.ErrNotRoot
		}
		lab, err := machine.Open(name, logf)
		if err != nil {
			return err
		}
		return deploy(cmd.Context(), lab, archive, image)
	})
	cmd.Long = "Imports the image into the containerd of every machine, sets it on the operator's Deployment and waits until its pod is ready.\n" +
		"\"make deploy-dev\" builds the image from the checkout first."
	cmd.Flags().StringVar(&archive, "archive", "dist/ocadm-image.tar", "docker-archive of the image")
	cmd.Flags().StringVar(&image, "image", "", "the image's reference in the archive")
	return cmd
}

func deploy(ctx context.Context, lab *machine.Lab, archive, image string) error {
	g, importing := errgroup.WithContext(ctx)
	for _, n := range lab.Nodes() {
		g.Go(func() error {
			logf("importing %s on %s", image, n.Name)
			f, err := os.Open(archive)
			if err != nil {
				return fmt.Errorf("importing the image: %w", err)
			}
			defer f.Close()
			return n.Run(importing, machine.Streams{In: f, Err: os.Stderr}, "ctr", "-n", "k8s.io", "images", "import", "--local", "-")
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

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/test/lab/machine"
)

func deployCommand() *cobra.Command {
	var ocadm, repository string
	cmd := ofLab("deploy", "Run a program as the operator of a lab's cluster", cobra.NoArgs, func(cmd *cobra.Command, name string, _ []string) error {
		if os.Geteuid() != 0 {
			return machine.ErrNotRoot
		}
		lab, err := machine.Open(name, logf)
		if err != nil {
			return err
		}
		return deploy(cmd.Context(), lab, ocadm, repository)
	})
	cmd.Long = "Packs the program into an image, imports it into the containerd of every machine, sets it on the operator's Deployment and waits until its pod is ready.\n" +
		"\"make deploy-dev\" builds the program from the checkout first."
	cmd.Flags().StringVar(&ocadm, "ocadm", "bin/ocadm", "the program")
	cmd.Flags().StringVar(&repository, "repository", images.DefaultRepository+"/"+images.Operator, "the image's name; its tag is made of its content")
	return cmd
}

func deploy(ctx context.Context, lab *machine.Lab, ocadm, repository string) error {
	img, err := ownimage.Pack(ocadm)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	ref, err := ownimage.Reference(repository, "dev-"+digest.Hex[:12], false)
	if err != nil {
		return err
	}
	source := bundle.ImageSource{Name: ownimage.FullName(ref), Image: img}
	if err := distribute(ctx, lab, source); err != nil {
		return err
	}
	logf("setting the operator's image")
	for _, args := range [][]string{
		{"set", "image", "deployment/onecloud-operator", "onecloud-operator=" + source.Name},
		{"rollout", "status", "deployment/onecloud-operator", "--timeout=2m"},
	} {
		argv := append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud"}, args...)
		if err := lab.Node(1).Run(ctx, machine.Streams{Out: os.Stderr, Err: os.Stderr}, argv...); err != nil {
			return fmt.Errorf("running kubectl %s: %w", args[0], err)
		}
	}
	return nil
}

// distribute imports an image on every machine.
func distribute(ctx context.Context, lab *machine.Lab, source bundle.ImageSource) error {
	nodes := lab.Nodes()
	return lists.Each(ctx, nodes, len(nodes), func(ctx context.Context, n *machine.Node) error {
		logf("importing %s on %s", source.Name, n.Name)
		r, w := io.Pipe()
		go func() { w.CloseWithError(bundle.WriteImage(ctx, w, source)) }()
		defer r.Close()
		return n.Run(ctx, machine.Streams{In: r, Err: os.Stderr}, "ctr", "-n", "k8s.io", "images", "import", "--local", "-")
	})
}

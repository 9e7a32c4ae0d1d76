// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/debian"
)

func prepareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "prepare", Args: cobra.NoArgs,
		Short: "Install on this host the Debian packages that the lab and the tests need",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return debian.Prepare(cmd.Context(), logf)
		},
	}
}

func bundleCommand() *cobra.Command {
	o, out := assemble.Options{Logf: logf}, ""
	cmd := &cobra.Command{
		Use: "bundle", Args: cobra.NoArgs,
		Short:   "Write the bundle: node programs and every image, in one archive",
		Example: "  lab bundle -o dist/ocadm.bundle\n  lab bundle -o dist/v1.35.bundle --kubernetes-version v1.35.8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return assemble.Bundle(cmd.Context(), out, o)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "dist/ocadm.bundle", "the bundle's file")
	cmd.Flags().StringVar(&o.CloudVersion, "version", "v4.0.3", "the tag of the cloud's images")
	cmd.Flags().StringVar(&o.KubernetesVersion, "kubernetes-version", "", "a version that the lab has a module of (default: that of this ocadm)")
	cmd.Flags().StringVar(&o.Fakecloud, "fakecloud", "", "the stand-in binary (default: built from test/fakecloud)")
	cmd.Flags().StringVar(&o.ServiceImages, "service-images", os.Getenv("LAB_SERVICE_IMAGES"),
		"a directory of image archives (docker save) that take the place of the stand-ins; default $LAB_SERVICE_IMAGES")
	return cmd
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/lab/images"
)

func materialCommands() []*cobra.Command {
	return []*cobra.Command{prepareCommand(), binariesCommand(), imagesCommand(), bundleCommand()}
}

func prepareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "prepare", Args: cobra.NoArgs,
		Short: "Install on this host the Debian packages that the lab and the tests need",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return debian.Prepare(cmd.Context(), logf)
		},
	}
}

func binariesCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "binaries", Args: cobra.NoArgs,
		Short:   "Build the programs of nodes, images and tests from Go modules, and print where they are",
		Example: "  # One program, built if need be\n  lab binaries --print kube-apiserver",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				b, err := binaries.Get(cmd.Context(), name, logf)
				if err != nil {
					return err
				}
				fmt.Println(b.Path)
				return nil
			}
			all, err := binaries.All(cmd.Context(), logf)
			for _, b := range all {
				fmt.Printf("%s\t%s\t%s\n", b.Name, b.Version, b.Path)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "print", "", "only this program, and only its path")
	return cmd
}

func bundleCommand() *cobra.Command {
	o := assemble.Options{Logf: logf}
	cmd := &cobra.Command{
		Use: "bundle", Args: cobra.NoArgs,
		Short:   "Write the bundle: node programs and every image, in one archive",
		Example: "  lab bundle --ocadm bin/ocadm -o dist/ocadm.bundle",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return assemble.Bundle(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Out, "output", "o", "dist/ocadm.bundle", "the bundle's file")
	imageFlags(cmd, &o)
	return cmd
}

func imagesCommand() *cobra.Command {
	o := assemble.Options{Logf: logf}
	cmd := &cobra.Command{
		Use: "images", Args: cobra.NoArgs,
		Short: "Make the images, and print their names, digests and sizes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := assemble.Images(cmd.Context(), &o)
			if err != nil {
				return err
			}
			for _, i := range list {
				if err := printImage(i); err != nil {
					return err
				}
			}
			return nil
		},
	}
	imageFlags(cmd, &o)
	return cmd
}

func imageFlags(cmd *cobra.Command, o *assemble.Options) {
	cmd.Flags().StringVar(&o.CloudVersion, "version", "v4.0.3", "the tag of the cloud's images")
	cmd.Flags().StringVar(&o.Ocadm, "ocadm", "bin/ocadm", "the ocadm binary, for the operator's image")
	cmd.Flags().StringVar(&o.OcadmVersion, "ocadm-version", "", "its version (default: what it says itself)")
	cmd.Flags().StringVar(&o.Standin, "standin", "", "the stand-in binary (default: built from test/standin)")
	cmd.Flags().StringVar(&o.ServiceImages, "service-images", os.Getenv("LAB_SERVICE_IMAGES"),
		"a directory of image archives (docker save) that take the place of the stand-ins; default $LAB_SERVICE_IMAGES")
}

func printImage(i images.Named) error {
	digest, err := i.Image.Digest()
	if err != nil {
		return fmt.Errorf("reading the image %s: %w", i.Name, err)
	}
	manifest, err := i.Image.Manifest()
	if err != nil {
		return fmt.Errorf("reading the image %s: %w", i.Name, err)
	}
	var size int64
	for _, l := range manifest.Layers {
		size += l.Size
	}
	fmt.Printf("%s\t%s\t%.1f MiB\n", i.Name, digest, float64(size)/(1<<20))
	return nil
}

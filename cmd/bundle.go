// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/ui"
)

func newBundle(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "bundle", Short: "List or verify a bundle of node software and images",
		Long: "A bundle is one file with all programs and images that a node needs. Give it to init and join with --bundle.",
		Example: `  # list the content
  ocadm bundle list ocadm.bundle

  # verify it
  ocadm bundle verify ocadm.bundle`,
		Args: cobra.ArbitraryArgs, RunE: groupRunE,
	}
	c.AddCommand(newBundleList(a), newBundleVerify(a))
	return c
}

func newBundleList(a *app) *cobra.Command {
	output := ui.NewFormat("table", "json", "yaml")
	c := &cobra.Command{
		Use: "list FILE", Short: "List the content of a bundle", Long: "Lists the files and images of a bundle. It reads only the index.",
		Example: "  ocadm bundle list ocadm.bundle\n  ocadm bundle list ocadm.bundle -o json | jq -r '.images[].name'",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return withBundle(c.Context(), args[0], func(b *bundle.Bundle) error {
				contents := b.Contents()
				return ui.Print(a.Out, output.String(), contents, func(w io.Writer) error { return bundleTable(w, contents) })
			})
		},
	}
	c.Flags().VarP(output, "output", "o", "output format")
	return c
}

func bundleTable(w io.Writer, c bundle.Contents) error {
	if _, err := fmt.Fprintf(w, "for %s/%s, Kubernetes %s\n\n", c.Info.OS, c.Info.Arch, c.Info.KubernetesVersion); err != nil {
		return err
	}
	var rows [][]string
	for _, f := range c.Files {
		rows = append(rows, []string{"file", f.Path, ui.Bytes(f.Size)})
	}
	for _, i := range c.Images {
		rows = append(rows, []string{"image", i.Name, ui.Bytes(i.Size)})
	}
	return ui.Table(w, []string{"KIND", "NAME", "SIZE"}, rows)
}

// verified is what "bundle verify -o json" prints. A damaged bundle is an error.
type verified struct {
	File   string `json:"file"`
	Files  int    `json:"files"`
	Images int    `json:"images"`
	Whole  bool   `json:"whole"`
}

func newBundleVerify(a *app) *cobra.Command {
	output := ui.NewFormat("text", "json", "yaml")
	c := &cobra.Command{
		Use: "verify FILE", Short: "Verify the checksums of a bundle",
		Long:    "Reads the whole bundle and verifies every checksum. It fails if anything is missing or damaged.",
		Example: "  ocadm bundle verify ocadm.bundle\n  ocadm bundle verify ocadm.bundle -o json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return withBundle(c.Context(), args[0], func(b *bundle.Bundle) error {
				if err := a.verifyBundle(c.Context(), b); err != nil {
					return err
				}
				contents := b.Contents()
				v := verified{File: args[0], Files: len(contents.Files), Images: len(contents.Images), Whole: true}
				return ui.Print(a.Out, output.String(), v, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is complete: %d files, %d images\n", v.File, v.Files, v.Images)
					return err
				})
			})
		},
	}
	c.Flags().VarP(output, "output", "o", "output format")
	return c
}

func (a *app) verifyBundle(ctx context.Context, b *bundle.Bundle) error {
	return a.withProgress("verify", func(report func(done, total int64)) error { return b.Verify(ctx, report) })
}

func withBundle(ctx context.Context, path string, use func(*bundle.Bundle) error) error {
	b, err := bundle.Open(ctx, path)
	if err != nil {
		return err
	}
	return errors.Join(use(b), b.Close())
}

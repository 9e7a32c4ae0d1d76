// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
)

func newBundle(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "bundle", Short: "Create, check and use bundles of node software and images",
		Long: "A bundle is one file with all programs and images that nodes need. Create it on a machine with internet access, and give it to init\n" +
			"with --bundle.",
		Example: `  # download everything for a cloud
  ocadm bundle create --onecloud-version v4.0.3 -o ocadm.bundle

  # list the content
  ocadm bundle list ocadm.bundle

  # verify it
  ocadm bundle verify ocadm.bundle`,
	}, newBundleCreate(a, artifacts.Embedded), newBundleList(a), newBundleVerify(a), newBundleDiff(a), newBundleExtract(a), newBundleServe(a))
}

// listed is the output of "bundle list -o json".
type listed struct {
	bundle.Contents
	// ID is the digest of the index.
	ID        string        `json:"id"`
	Platforms []string      `json:"platforms"`
	Signed    bool          `json:"signed"`
	Since     *bundle.Since `json:"since,omitempty"`
}

func newBundleList(a *app) *cobra.Command {
	var arch string
	output := ui.NewFormat("table", "json", "yaml", "spdx")
	c := &cobra.Command{
		Use: "list FILE", Short: "List the content of a bundle",
		Long: "Lists the files and images of a bundle for one architecture. It reads only the index. -o spdx prints a bill of materials for all\n" +
			"architectures.",
		Example: "  ocadm bundle list ocadm.bundle\n  ocadm bundle list ocadm.bundle --arch arm64\n" +
			"  ocadm bundle list ocadm.bundle -o json | jq -r '.images[].name'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withBundle(c.Context(), args[0], arch, func(b *bundle.Bundle) error {
				if output.String() == "spdx" {
					return writeSBOM(b, a.Out)
				}
				l := listed{Contents: b.Contents(), ID: b.ID().String(), Platforms: b.Platforms(), Signed: b.Signed(), Since: b.Since()}
				return a.print(output, l, func(p *page) { bundleTable(p, l) })
			})
		},
	}
	c.Flags().VarP(output, "output", "o", "output format")
	c.Flags().StringVar(&arch, "arch", "", "architecture (default: this machine's, otherwise the first)")
	completeArch(c)
	return c
}

func bundleTable(p *page, l listed) {
	p.line("for %s/%s, Kubernetes %s\nID %s", l.Info.OS, l.Info.Arch, l.Info.KubernetesVersion, l.ID)
	if len(l.Platforms) > 1 {
		p.line("all platforms: %s", strings.Join(l.Platforms, ", "))
	}
	if l.Since != nil {
		p.line("together with %s (%s)", l.Since.Name, l.Since.ID)
	}
	if l.Signed {
		p.line("signed; verify it with --key")
	}
	p.line("")
	rows := lists.Map(l.Files, func(f bundle.FileInfo) []string { return []string{"file", f.Path, ui.Bytes(f.Size)} })
	rows = append(rows, lists.Map(l.Images, func(i bundle.ImageInfo) []string { return []string{"image", i.Name, ui.Bytes(i.Size)} })...)
	p.table([]string{"KIND", "NAME", "SIZE"}, rows)
}

// writeSBOM writes the bill of materials, dated like the bundle's file.
func writeSBOM(b *bundle.Bundle, w io.Writer) error {
	st, err := os.Stat(b.Name())
	if err != nil {
		return fmt.Errorf("reading the time of the bundle: %w", err)
	}
	return b.WriteSBOM(w, st.ModTime())
}

func saveSBOM(b *bundle.Bundle, file string) error {
	var text bytes.Buffer
	if err := writeSBOM(b, &text); err != nil {
		return err
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, text.Bytes()) {
		return nil
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil { //nolint:gosec // not a secret
		return fmt.Errorf("writing the bill of materials: %w", err)
	}
	return nil
}

// verified is the output of "bundle verify -o json". A damaged bundle is an error.
type verified struct {
	File   string `json:"file"`
	Files  int    `json:"files"`
	Images int    `json:"images"`
	// Platforms lists all of them; Files and Images count over all.
	Platforms []string `json:"platforms"`
	Whole     bool     `json:"whole"`
	// Trusted reports whether a signature was verified.
	Trusted bool `json:"trusted"`
}

func newBundleVerify(a *app) *cobra.Command {
	var key string
	c := shows(a, &cobra.Command{
		Use: "verify FILE", Short: "Verify the checksums and the signature of a bundle",
		Long: "Reads the whole bundle and verifies every checksum. It fails if anything is missing or damaged. Checksums detect damage, but not an attack:\n" +
			"with --key, the bundle must also be signed by the owner of this public key.",
		Example: "  ocadm bundle verify ocadm.bundle\n  ocadm bundle verify ocadm.bundle --key public.pem\n  ocadm bundle verify ocadm.bundle -o json",
		Args:    cobra.ExactArgs(1),
	}, "text", func(c *cobra.Command, args []string) (v verified, err error) {
		err = withBundle(c.Context(), args[0], "", func(b *bundle.Bundle) error {
			if err := checkSignature(b, "--key", key); err != nil {
				return err
			}
			if err := a.withProgress("verify", func(report func(done, total int64)) error { return b.Verify(c.Context(), report) }); err != nil {
				return err
			}
			v = verified{File: args[0], Platforms: b.Platforms(), Whole: true, Trusted: key != ""}
			for _, view := range b.Views() {
				contents := view.Contents()
				v.Files, v.Images = v.Files+len(contents.Files), v.Images+len(contents.Images)
			}
			return nil
		})
		return v, err
	}, func(p *page, v verified) {
		signed := ""
		if v.Trusted {
			signed = ", and the signature is valid"
		}
		p.line("%s is complete: %s, %d files, %d images%s", v.File, strings.Join(v.Platforms, " and "), v.Files, v.Images, signed)
	})
	c.Flags().StringVar(&key, "key", "", "file with the Ed25519 public key, in PEM, of the signer of the bundle")
	return c
}

// checkSignature checks the signature with the key in a file, if any.
func checkSignature(b *bundle.Bundle, flag, file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		var key ed25519.PublicKey
		if key, err = bundle.PublicKey(text); err == nil {
			return b.CheckSignature(key)
		}
	}
	return badKey(flag, "openssl pkey -in PRIVATE.pem -pubout -out "+file, err)
}

// withBundle opens a bundle for an architecture, "" for this machine's or the first.
func withBundle(ctx context.Context, path, arch string, use func(*bundle.Bundle) error) error {
	b, err := bundle.Open(ctx, path)
	if err != nil {
		return err
	}
	used := b
	if arch != "" {
		used, err = b.On(arch)
	}
	if err == nil {
		err = use(used)
	}
	return errors.Join(err, b.Close())
}

// completeArch completes --arch with the architectures of nodes. Whether the bundle and its programs exist for them is checked later.
func completeArch(c *cobra.Command) {
	// It fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("arch", cobra.FixedCompletions([]string{"amd64", "arm64"}, cobra.ShellCompDirectiveNoFileComp))
}

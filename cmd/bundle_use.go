// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
)

func newBundleDiff(a *app) *cobra.Command {
	var arch string
	c := shows(a, &cobra.Command{
		Use: "diff OLD NEW", Short: "Show the differences between two bundles",
		Long: "Lists the files and images that were added, removed or changed, and the size of a bundle that holds only what OLD lacks (bundle create\n" +
			"--since OLD). It reads only the indexes.",
		Example: "  ocadm bundle diff old.bundle new.bundle\n  ocadm bundle diff old.bundle new.bundle -o json | jq .size",
		Args:    cobra.ExactArgs(2),
	}, "table", func(c *cobra.Command, args []string) (d bundle.Difference, err error) {
		err = withBundle(c.Context(), args[0], "", func(older *bundle.Bundle) error {
			return withBundle(c.Context(), args[1], "", func(newer *bundle.Bundle) (err error) {
				d, err = diff(older, newer, arch)
				return err
			})
		})
		return d, err
	}, diffTable)
	c.Flags().StringVar(&arch, "arch", "", "architecture (default: the one of NEW)")
	completeArch(c)
	return c
}

func diff(older, newer *bundle.Bundle, arch string) (d bundle.Difference, err error) {
	arch = cmp.Or(arch, newer.Contents().Info.Arch)
	if older, err = older.On(arch); err != nil {
		return d, err
	}
	if newer, err = newer.On(arch); err != nil {
		return d, err
	}
	return bundle.Diff(older, newer), nil
}

func diffTable(p *page, d bundle.Difference) {
	if len(d.Changes) == 0 {
		p.line("the bundles have the same content")
		return
	}
	table(p, []string{"CHANGE", "KIND", "NAME", "SIZE"}, d.Changes, func(c bundle.Change) []string { return []string{c.Change, c.Kind, c.Name, ui.Bytes(c.Size)} })
	p.line("\na bundle created with --since OLD has %s", ui.Bytes(d.Size))
}

// imagesFile is the archive of the extracted images.
const imagesFile = "images.tar"

func newBundleExtract(a *app) *cobra.Command {
	var to, arch string
	c := &cobra.Command{
		Use: "extract FILE [NAME...]", Short: "Write the files and images of a bundle to a directory",
		Long: "Writes the files of a bundle below a directory, and its images into DIR/" + imagesFile + ", an OCI image layout for ctr images import.\n" +
			"NAME is the path of a file, the last part of the path, or the full name of an image; without a NAME, everything is written.\n" +
			"Prints the names of the files that it writes.",
		Example: "  ocadm bundle extract ocadm.bundle --to content\n" +
			"  ocadm bundle extract ocadm.bundle kubectl --to . --arch arm64\n" +
			"  ocadm bundle extract ocadm.bundle registry.k8s.io/pause:3.10.2 --to . && ctr -n k8s.io images import " + imagesFile,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withBundle(c.Context(), args[0], arch, func(b *bundle.Bundle) error {
				return a.extract(c.Context(), b, to, args[1:])
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "directory to write to (required)")
	_ = c.MarkFlagRequired("to") // it exists
	c.Flags().StringVar(&arch, "arch", "", "architecture (default: this machine's, otherwise the first)")
	completeArch(c)
	return c
}

func (a *app) extract(ctx context.Context, b *bundle.Bundle, to string, names []string) error {
	files, images, err := chosen(b.Contents(), names)
	if err != nil {
		return err
	}
	dir, err := openDir(to)
	if err != nil {
		return cannotExtract(to, err)
	}
	defer func() { _ = dir.Close() }() // it holds no data
	for _, f := range files {
		err := extractTo(dir, strings.TrimPrefix(f.Path, "/"), f.Mode, func(w io.Writer) error {
			in, err := b.OpenFile(f.Path)
			if err != nil {
				return err
			}
			_, err = io.Copy(w, in)
			return errors.Join(err, in.Close())
		})
		if err != nil {
			return cannotExtract(to, err)
		}
		fmt.Fprintln(a.Out, path.Join(to, f.Path))
	}
	if len(images) == 0 {
		return nil
	}
	err = a.withProgress("extract", func(report func(done, total int64)) error {
		written, size := int64(0), b.ImagesSize(images)
		count := func(n int64) {
			written += n
			report(min(written, size), size)
		}
		return extractTo(dir, imagesFile, 0o644, func(w io.Writer) error { return b.WriteImages(ctx, fetch.Writer(w, count), images) })
	})
	if err != nil {
		return cannotExtract(to, err)
	}
	_, err = fmt.Fprintln(a.Out, path.Join(to, imagesFile))
	return err
}

// chosen returns the files and images with these names, or all.
func chosen(c bundle.Contents, names []string) (files []bundle.FileInfo, images []string, err error) {
	used := map[string]bool{}
	named := func(forms ...string) bool {
		for _, f := range forms {
			if slices.Contains(names, f) {
				used[f] = true
				return true
			}
		}
		return len(names) == 0
	}
	files = lists.Filter(c.Files, func(f bundle.FileInfo) bool { return named(f.Path, path.Base(f.Path)) })
	images = lists.Pick(c.Images, func(i bundle.ImageInfo) (string, bool) { return i.Name, named(i.Name) })
	if i := slices.IndexFunc(names, func(n string) bool { return !used[n] }); i >= 0 {
		return nil, nil, misused(fmt.Sprintf("the bundle has no file or image %q", names[i]), "list its content: ocadm bundle list FILE")
	}
	return files, images, nil
}

func openDir(name string) (*os.Root, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(name)
}

// extractTo replaces a file only when the new one is complete.
func extractTo(dir *os.Root, name string, mode fs.FileMode, write func(io.Writer) error) error {
	if err := dir.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temp := name + ".new"
	f, err := dir.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Chmod(mode), f.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return nil
}

func cannotExtract(dir string, err error) error {
	if len(finding.Of(err)) > 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return finding.Errorf("OCA-2328", "The content of the bundle cannot be written to "+dir, "name a directory that you can write to, on a disk with enough space", "%w", err)
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
)

// Brought is what ocadm has brought to this node: files by their names, images by their full names, both sorted.
type Brought struct{ Files, Images []string }

// Installed is what a node without ocadm's own image would need to be like this one. Programs and images of others are left out. While containerd does not
// answer, every image counts as present: Export then fails, where a root of the depot without images would pass for complete.
func Installed(ctx context.Context, h *host.Host) Brought {
	var b Brought
	for _, e := range h.Ledger.Created(host.KindFile) {
		if target(e.Name) == e.Name && h.Files.Exists(e.Name) {
			b.Files = append(b.Files, e.Name)
		}
	}
	have := PresentImages(ctx, h)
	for _, e := range h.Ledger.Created(host.KindImage) {
		own := h.Config.PacksOperator() && path.Base(e.Name) == path.Base(h.Config.OperatorImage())
		if (have == nil || have[e.Name] != "") && !own {
			b.Images = append(b.Images, e.Name)
		}
	}
	slices.Sort(b.Files)
	slices.Sort(b.Images)
	return b
}

// Export gives an archive of images, an OCI image layout of this machine's architecture, to read.
func Export(ctx context.Context, h *host.Host, images []string, read func(io.Reader) error) error {
	if len(images) == 0 {
		return nil
	}
	// Without --local, ctr ends before the last of the archive has been written (containerd 2.4.2: the goroutine that copies it is not awaited).
	args := append([]string{"-n", k8sNamespace, "images", "export", "--local", "--platform", "linux/" + h.Facts.Arch, "-"}, images...)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(pr)
		pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		done <- err
	}()
	_, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: args, Stdout: pw})
	pw.CloseWithError(err) // nil is the end of the archive
	rerr := <-done
	if rerr != nil {
		return rerr
	}
	if err != nil {
		return fmt.Errorf("exporting images from containerd: %w", err)
	}
	return nil
}

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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

// Brought lists what ocadm brought to this node: file names and full image names, both sorted.
type Brought struct{ Files, Images []string }

// Installed returns what another node would need to be like this one, except ocadm's own image and other people's programs and images. If containerd does
// not answer, every image counts as present: then Export fails, rather than produce a depot without images that looks complete.
func Installed(ctx context.Context, h *host.Host) Brought {
	b := Brought{Files: lists.Pick(h.Ledger.Created(host.KindFile), func(e host.Entry) (string, bool) {
		return e.Name, target(e.Name) == e.Name && h.Files.Exists(e.Name)
	})}
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

// Export passes an archive of images, an OCI image layout for this machine's architecture, to read.
func Export(ctx context.Context, h *host.Host, images []string, read func(io.Reader) error) error {
	if len(images) == 0 {
		return nil
	}
	// Without --local, ctr exits before the end of the archive is written (containerd 2.4.2: it does not wait for the goroutine that copies it).
	args := append([]string{"-n", k8sNamespace, "images", "export", "--local", "--platform", "linux/" + h.Facts.Arch, "-"}, images...)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(pr)
		pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		done <- err
	}()
	_, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: args, Stdout: pw})
	pw.CloseWithError(err) // nil ends the archive
	rerr := <-done
	if rerr != nil {
		return rerr
	}
	if err != nil {
		return fmt.Errorf("exporting images from containerd: %w", err)
	}
	return nil
}

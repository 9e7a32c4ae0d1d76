// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// ImageGroup is a set of images that are imported together, and for which the same phases wait.
type ImageGroup struct {
	// Name and Short are those of the phase "images/NAME".
	Name, Short string
	// Need returns the images that this node must have.
	Need func(*host.Host) ([]string, error)
	// Own marks the image of this program, which is in no bundle and no registry.
	Own bool
	// Optional images may also be pulled later: it is no error if a registry lacks one.
	Optional bool
}

// Images loads the groups' images into containerd, from the bundle or from registries, one group at a time, in the order in which other phases wait for
// them. It overlaps with every phase that does not name it in After.
func Images(groups ...ImageGroup) host.Phase {
	return host.Phase{Name: "images", Short: "Import or pull container images", After: []string{UnitsPhase}, Phases: lists.Map(groups, ImageGroup.phase)}
}

func (g ImageGroup) phase() host.Phase {
	return host.Phase{
		Name: g.Name, Short: g.Short,
		Long:     g.long(),
		Patience: pullPatience,
		Skip:     otherRuntime,
		Run:      g.run,
		Verify: func(ctx context.Context, h *host.Host) error {
			todo, err := g.missing(ctx, h)
			if err == nil && len(todo) > 0 && (h.Bundled() || !g.Optional) {
				return finding.New(CodeImport, "Images are missing after their import", strings.Join(todo, ", "),
					"ctr -n k8s.io images ls, then run the same command again").With(todo...)
			}
			return err
		},
		Undo: undoImages,
	}.Todo(func(ctx context.Context, h *host.Host) ([]string, error) {
		todo, err := g.missing(ctx, h)
		if h.Source() == nil && !g.Own {
			return workflow.Lines("pull ", todo), err
		}
		return workflow.Lines("import ", todo), err
	})
}

func (g ImageGroup) long() string {
	if g.Own {
		return "Packs this program into an image and streams it into containerd, so that no registry needs to have the operator's image. With\n" +
			"--operator-image, or another --operator-version, it does nothing."
	}
	return "Streams the images from the bundle, or on join from the cluster's depot, into containerd, checking every blob on the way. Images\n" +
		"that neither has are pulled from their registries. Existing images are not changed."
}

// missing returns the group's images that containerd lacks, or has in another version than the bundle or this program.
func (g ImageGroup) missing(ctx context.Context, h *host.Host) ([]string, error) {
	need, err := g.Need(h)
	if err != nil {
		return nil, fmt.Errorf("listing the images of %s: %w", g.Name, err)
	}
	have := PresentImages(ctx, h)
	if g.Own {
		return outdated(h, have, need)
	}
	if !h.Bundled() { // even if the depot or a registry has another image of that name now
		return slices.DeleteFunc(slices.Clone(need), func(i string) bool { return have[i] != "" }), nil
	}
	// The names are the same for every architecture, and a wrong image would replace the right one even if it cannot be unpacked.
	if err := h.Source().CheckPlatform(h.Facts.Arch, ""); err != nil {
		return nil, err
	}
	if err := h.Source().CheckImages(need); err != nil && !finding.Ignored(BundleCheck, h.Config.Run.IgnorePreflightErrors) {
		return nil, err
	}
	return lists.Pick(h.Source().Contents().Images, func(i bundle.ImageInfo) (string, bool) {
		return i.Name, slices.Contains(need, i.Name) && have[i.Name] != i.Digest
	}), nil
}

// outdated returns the names for which containerd's image is not this program.
func outdated(h *host.Host, have map[string]string, names []string) (out []string, _ error) {
	for _, name := range names {
		if have[name] != "" { // packing takes half a second
			img, err := h.Own()
			if err != nil {
				return nil, err
			}
			if digest, err := img.Digest(); err != nil || have[name] == digest.String() {
				return nil, err
			}
		}
		out = append(out, name)
	}
	return out, nil
}

// PresentImages returns the images in containerd with their digests; none if it does not answer.
func PresentImages(ctx context.Context, h *host.Host) map[string]string {
	res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: []string{"-n", k8sNamespace, "images", "ls"}})
	if err != nil {
		return nil
	}
	have := map[string]string{}
	for line := range strings.Lines(res.Stdout) { // REF TYPE DIGEST SIZE …
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "sha256:") {
			have[f[0]] = f[2]
		}
	}
	return have
}

// Bring imports missing images, and reports whether the machine has a runtime for them.
func (g ImageGroup) Bring(ctx context.Context, h *host.Host, r workflow.Reporter) (bool, error) {
	if !containerdRuns(h) || !h.Files.Exists(programPath(h, ctr)) {
		return false, nil
	}
	return true, g.run(ctx, h, r)
}

func (g ImageGroup) run(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	todo, err := g.missing(ctx, h)
	if err != nil {
		return err
	}
	for _, name := range todo {
		if err := h.Ledger.Record(host.Entry{Kind: host.KindImage, Name: name, Op: host.Created}); err != nil {
			return err
		}
	}
	if g.Own {
		return importOwn(ctx, h, r, todo)
	}
	var elsewhere []string
	if s := h.Source(); s == nil {
		elsewhere = todo
	} else {
		has := lists.Set(s.Contents().Images, func(i bundle.ImageInfo) string { return i.Name })
		elsewhere = slices.DeleteFunc(slices.Clone(todo), func(i string) bool { return has[i] })
		err := importFrom(ctx, h, r, s, slices.DeleteFunc(todo, func(i string) bool { return !has[i] }))
		switch {
		case err != nil && g.Optional && !h.Bundled() && !canceled(ctx):
			r.Info("the other images are pulled when they are needed: %v", err)
		case err != nil:
			return err
		}
	}
	forbidden, err := Forbidden(h, elsewhere)
	if err != nil {
		return err
	}
	if len(forbidden) > 0 && !g.Optional {
		return finding.New(CodePull, "Images are missing on this machine, and --offline does not allow pulling them", "neither the bundle nor the depot has "+
			strings.Join(forbidden, ", "), "give a bundle that has them: add --bundle FILE to this command; or a mirror: --registry-mirror REGISTRY=URL; "+
			"or allow it: --offline=false").With(forbidden...)
	}
	for _, i := range forbidden {
		r.Info("%s is not on this machine: --offline does not allow pulling it", i)
	}
	elsewhere = slices.DeleteFunc(elsewhere, func(i string) bool { return slices.Contains(forbidden, i) })
	if len(elsewhere) == 0 {
		return nil
	}
	return g.pull(ctx, h, r, elsewhere)
}

// importFrom streams images into ctr.
func importFrom(ctx context.Context, h *host.Host, r workflow.Reporter, s host.Source, names []string) error {
	if len(names) == 0 {
		return nil
	}
	size, write, err := s.Archive(ctx, names)
	if err != nil {
		return err
	}
	if err := importImages(ctx, h, r, size, write); err != nil {
		return err
	}
	for _, name := range names {
		r.Changed("imported %s", name)
	}
	return nil
}

// importOwn streams this program into ctr.
func importOwn(ctx context.Context, h *host.Host, r workflow.Reporter, names []string) error {
	for _, name := range names {
		img, err := h.Own()
		if err != nil {
			return err
		}
		size, err := ownimage.Size(img)
		if err != nil {
			return err
		}
		source := bundle.ImageSource{Name: name, Image: img}
		if err := importImages(ctx, h, r, size, func(w io.Writer) error { return bundle.WriteImage(ctx, w, source) }); err != nil {
			return err
		}
		r.Changed("imported %s", name)
	}
	return nil
}

// importImages streams an archive of images into ctr. total is its approximate size in bytes.
func importImages(ctx context.Context, h *host.Host, r workflow.Reporter, total int64, write func(io.Writer) error) error {
	// --local: ctr reads the stream itself, which took a quarter less time in a measurement than passing it on.
	args := []string{"-n", k8sNamespace, "images", "import", "--local", "-"}
	pr, pw := io.Pipe()
	var done atomic.Int64
	written := make(chan error, 1)
	go func() {
		err := write(fetch.Writer(pw, func(n int64) { r.Progress(min(done.Add(n), total), total, "B") }))
		pw.CloseWithError(err)
		written <- err
	}()
	_, err := h.Exec.Run(ctx, exec.Command{
		Path: programPath(h, ctr), Args: args, Stdin: pr, OnLine: r.Output,
	})
	pr.CloseWithError(io.ErrClosedPipe)
	werr := <-written
	switch {
	case len(finding.Of(werr)) > 0: // a damaged bundle explains ctr's error
		return werr
	case err != nil && canceled(ctx):
		return context.Cause(ctx)
	case err != nil:
		return finding.Errorf(CodeImport, "Images cannot be imported into containerd", "look at journalctl -u containerd -n 50 and df -h /var/lib/containerd", "%w", err)
	case errors.Is(werr, io.ErrClosedPipe): // ctr read no further than it needed
		return nil
	}
	return werr
}

// undoImages removes the imported images from a containerd that stays.
func undoImages(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	stays := !ownContainerd(h)
	have := map[string]string{}
	if stays && !keepsImages(h) {
		have = PresentImages(ctx, h)
	}
	for _, e := range h.Ledger.Created(host.KindImage) {
		if _, ok := have[e.Name]; ok {
			if _, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: []string{"-n", k8sNamespace, "images", "rm", e.Name}}); err != nil {
				return err
			}
			r.Changed("removed the image %s", e.Name)
		}
		if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

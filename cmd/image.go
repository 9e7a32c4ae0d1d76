// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/host"
)

func newImage(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "image", Short: "Save or push this program as a container image",
		Long: "The operator runs from an image that holds nothing but ocadm. init and join pack that image from their own program and import it on\n" +
			"their node, so no registry has to hold it. These commands are for other container runtimes, and for clusters that pull it.\n" +
			"The same program always produces the same digest.",
		Example: "  ocadm image save ocadm-image.tar\n  ocadm image push registry.example.org/you/ocadm:dev",
	}, newImageSave(a), newImagePush(a))
}

// savedImage is the output of "image save" and "image push" with -o json.
type savedImage struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
	// Size is the number of bytes of its blobs.
	Size int64  `json:"size"`
	File string `json:"file,omitempty"`
}

func addProgram(c *cobra.Command, program *string) {
	c.Flags().StringVar(program, "program", "", "static ocadm to pack, also of another architecture (default: this program)")
}

// packed returns the image of a program, by default of this one, under a name.
func packed(program, image string, insecure bool) (v1.Image, name.Tag, savedImage, error) {
	var s savedImage
	ref, err := ownimage.Reference(image, version.Version, insecure)
	if err != nil {
		return nil, ref, s, misused(err.Error(), "give a name such as registry.example.org/you/ocadm:"+version.Version)
	}
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, ref, s, fmt.Errorf("finding this program: %w", err)
		}
	}
	img, err := ownimage.Pack(program)
	if err != nil {
		return nil, ref, s, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, ref, s, err
	}
	size, err := ownimage.Size(img)
	return img, ref, savedImage{Image: ownimage.FullName(ref), Digest: digest.String(), Size: size}, err
}

func newImageSave(a *app) *cobra.Command {
	var program, image string
	var output *ui.Choice
	c := &cobra.Command{
		Use: "save FILE", Short: "Write the image to a file",
		Long: "Writes the image as an archive that ctr, nerdctl, podman and docker load; - writes to standard output. The archive is an OCI image\n" +
			"layout and a docker archive at once.",
		Example: "  ocadm image save ocadm-image.tar\n" +
			"  ocadm image save - | ssh root@node2 ctr -n k8s.io images import -\n" +
			"  ocadm image save ocadm-image.tar --name registry.example.org/you/ocadm:dev -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "-" && output.String() != "text" {
				return misused("the image itself goes to standard output", "leave out --output")
			}
			img, _, s, err := packed(program, image, false)
			if err != nil {
				return err
			}
			source := bundle.ImageSource{Name: s.Image, Image: img}
			if s.File = args[0]; s.File == "-" {
				return bundle.WriteImage(c.Context(), a.Out, source)
			}
			if err := saveImage(c.Context(), s.File, source); err != nil {
				return err
			}
			return a.print(output, s, func(p *page) { p.line("%s is in %s (%s)", s.Image, s.File, ui.Bytes(s.Size)) })
		},
	}
	c.Flags().StringVar(&image, "name", images.OperatorRef("", version.Version), "name of the image in the archive")
	addProgram(c, &program)
	output = addOutput(c, "text")
	return c
}

// saveImage replaces the file only when the archive is complete.
func saveImage(ctx context.Context, file string, source bundle.ImageSource) error {
	dir, err := os.OpenRoot(filepath.Dir(file))
	if err == nil {
		err = extractTo(dir, filepath.Base(file), 0o644, func(w io.Writer) error { return bundle.WriteImage(ctx, w, source) })
		err = errors.Join(err, dir.Close())
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return finding.Errorf("OCA-2203", "The image cannot be written to "+file,
		"name a file in a directory that you can write to and that has 40 MiB free", "%w", err)
}

func newImagePush(a *app) *cobra.Command {
	var program string
	var insecure bool
	c := shows(a, &cobra.Command{
		Use: "push NAME", Short: "Push the image to a registry",
		Long: "Pushes the image under a name, by default with this program's version as its tag, and prints its digest. The credentials come from\n" +
			"~/.docker/config.json, where docker login puts them; without that file, from podman login.",
		Example: "  ocadm image push registry.example.org/you/ocadm:dev\n" +
			"  ocadm image push registry.example.org:5000/yunionio/ocadm --insecure\n" +
			"  ocadm image push registry.example.org/you/ocadm:arm64 --program bin/ocadm-arm64",
		Args: cobra.ExactArgs(1),
	}, "text", func(c *cobra.Command, args []string) (savedImage, error) {
		img, ref, s, err := packed(program, args[0], insecure)
		if err != nil {
			return s, err
		}
		return s, a.withProgress("push", func(report func(done, total int64)) error {
			return ownimage.Push(c.Context(), ref, img, ownimage.Options{Insecure: insecure, Progress: report})
		})
	}, func(p *page, s savedImage) { p.line("%s@%s", s.Image, s.Digest) })
	c.Flags().BoolVar(&insecure, "insecure", false, "allow plain HTTP, and HTTPS with an unknown certificate")
	addProgram(c, &program)
	return c
}

// withProgress shows on a terminal how many bytes an action has processed.
func (a *app) withProgress(name string, do func(report func(done, total int64)) error) error {
	if !ui.IsTerminal(a.Err) {
		return do(func(int64, int64) {})
	}
	r := ui.New(a.Err, ui.Options{})
	defer r.Close()
	r.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseStarted, Phase: name, Count: 1})
	return do(func(done, total int64) {
		r.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseProgress, Phase: name, Done: done, Total: total, Unit: "B"})
	})
}

// bringOperator imports this program as the operator's image on its node, and stores it in that node's depot. It returns a finding for nodes of an
// architecture without an image in the depot. It warns if nodes have to pull the image from a registry.
func (a *app) bringOperator(ctx context.Context, s story, image string) error {
	if os.Geteuid() == 0 {
		unlock, err := workflow.Lock(lockFile)
		if err != nil {
			return err
		}
		defer unlock()
		h, err := registeredHost(ctx)
		if err != nil {
			return err
		}
		imported, stored, err := phases.BringOperator(ctx, h, s, image)
		switch {
		case err != nil:
			return err
		case stored:
			return lacksProgram(ctx, h, image)
		case imported:
			a.warn("%s is only on this node, which has no depot; other nodes pull it from a registry: ocadm image push %s", image, image)
			return nil
		}
	}
	a.warn("%s was not imported, because this command does not run as root on a node with containerd; push it to a registry: ocadm image push %s", image, image)
	return nil
}

// usePodImage lets pods run this program under a name that the cluster can pull: the running operator's image with this program's version. If the
// operator runs another version, it imports this program first.
func (a *app) usePodImage(ctx context.Context, h *host.Host, dryRun bool) error {
	k, err := h.Kube(ctx)
	if err != nil {
		return noCluster(err)
	}
	running, err := cluster.RunningOperatorImage(ctx, k)
	if err != nil || running == "" {
		return err
	}
	image := images.At(running, version.Version)
	h.Config.Cloud.OperatorImage = image
	if dryRun || image == running {
		return nil
	}
	s := a.story()
	defer s.Close()
	return a.bringOperator(ctx, s, image)
}

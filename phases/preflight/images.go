// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/node"
)

// The findings of the check of images.
const (
	CodeUnreachable = "OCA-2101"
	CodeNoImage     = "OCA-2102"
	CodeDenied      = "OCA-2103"
	CodeBusy        = "OCA-2104"
)

const (
	// imagesTimeout bounds asking for all images, imageTimeout for one.
	imagesTimeout = time.Minute
	imageTimeout  = 20 * time.Second
	// imagesAtOnce is how many are asked for at the same time: few enough for a small registry of one's own.
	imagesAtOnce = 16
)

// asksRegistries reports whether images are pulled from registries: a bundle has them, and a node that joins gets them from the depot.
func asksRegistries(k Kind, c *config.Config) bool {
	return c.Node.Bundle == "" && (k == Init || c.Node.Depot == config.None)
}

// checkImages asks registries, through mirrors and proxies, for the images that would be pulled.
func checkImages(ctx context.Context, m *machine) []finding.Finding {
	if m.h.Config.Node.Offline {
		return m.checkOffline(ctx)
	}
	if m.h.Files.Root != "" && !m.h.Files.Exists(registry.HostsDir) {
		return nil // a directory that stands for the machine reaches no registry but those that it names
	}
	need, found := m.lackedImages(ctx)
	if found != nil {
		return found
	}
	client, err := node.Registries(m.h)
	if err != nil {
		return finding.Of(err)
	}
	return imageFindings(need, ask(ctx, client, need))
}

// lackedImages are those that the run needs and containerd does not have.
func (m *machine) lackedImages(ctx context.Context) ([]string, []finding.Finding) {
	need, err := Images(m.h.Config, m.kind)
	if err != nil {
		return nil, []finding.Finding{finding.New(CodeNoImage, "The list of images cannot be made", err.Error(), "ocadm config images list")}
	}
	have := node.PresentImages(ctx, m.h)
	return slices.DeleteFunc(need, func(i string) bool { return have[i] != "" }), nil
}

// checkOffline reports the images that --offline does not allow to be pulled.
func (m *machine) checkOffline(ctx context.Context) []finding.Finding {
	need, found := m.lackedImages(ctx)
	if found != nil {
		return found
	}
	missing, err := node.Forbidden(m.h, need)
	if err != nil {
		return finding.Of(err)
	}
	if len(missing) == 0 {
		return nil
	}
	return []finding.Finding{finding.New(CodeNoImage, "--offline needs a bundle", fmt.Sprintf("this machine lacks %d images, and --offline does not allow "+
		"them to be pulled", len(missing)),
		fmt.Sprintf("where there is internet: ocadm bundle create -o FILE; here: ocadm %s --offline --bundle FILE, or leave out --offline", m.kind)).With(missing...)}
}

// ask returns why each image cannot be had, nil for those that can.
func ask(ctx context.Context, client registry.Client, images []string) []*registry.Error {
	out := make([]*registry.Error, len(images))
	slots := make(chan struct{}, imagesAtOnce)
	var wg sync.WaitGroup
	for i, image := range images {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, imageTimeout)
			defer cancel()
			errors.As(client.Find(ctx, image), &out[i])
		})
	}
	wg.Wait()
	return out
}

// imageFindings makes one finding of all images that a registry lacks for the same reason.
func imageFindings(images []string, why []*registry.Error) []finding.Finding {
	type group struct {
		registry, server string
		kind             registry.Kind
	}
	var order []group
	members := map[group][]int{}
	for i, e := range why {
		if e == nil {
			continue
		}
		g := group{e.Registry, e.Server, e.Kind}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], i)
	}
	var out []finding.Finding
	for _, g := range order {
		var names, causes []string
		for _, i := range members[g] {
			names = append(names, images[i])
			if cause := strings.ReplaceAll(why[i].Error(), "\n", "; "); !slices.Contains(causes, cause) {
				causes = append(causes, cause)
			}
		}
		f := imageFinding(g.kind, g.registry, g.server, len(names))
		if f.Cause = causes[0]; len(causes) > 1 {
			f.Cause += fmt.Sprintf(" (and %d other answers)", len(causes)-1)
		}
		out = append(out, f.With(names...))
	}
	return out
}

func imageFinding(kind registry.Kind, from, server string, n int) finding.Finding {
	images := fmt.Sprintf("%d images", n)
	if n == 1 {
		images = "an image"
	}
	switch kind {
	case registry.Missing:
		return finding.New(CodeNoImage, fmt.Sprintf("The registry %s does not have %s", from, images), "",
			"check the version and --image-repository; to copy images into a registry of your own: ocadm config images list")
	case registry.Denied:
		return finding.New(CodeDenied, fmt.Sprintf("%s refuses %s of the registry %s", server, images, from), "",
			fmt.Sprintf("docker login %s, and add --registry-config ~/.docker/config.json", server))
	case registry.Busy:
		return finding.Warn(CodeBusy, fmt.Sprintf("The registry %s cannot answer for %s now", from, images), "", "run the command again later")
	}
	return finding.New(CodeUnreachable, fmt.Sprintf("The registry %s cannot be reached for %s", from, images), "",
		fmt.Sprintf("curl -v https://%s/v2/; give --registry-mirror %s=URL, --image-repository HOST/PATH, --https-proxy URL or --bundle FILE", from, from))
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/config"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/node"
)

// The findings of the image check.
const (
	CodeUnreachable = "OCA-2101"
	CodeNoImage     = "OCA-2102"
	CodeDenied      = "OCA-2103"
	CodeBusy        = "OCA-2104"
)

const (
	// imagesTimeout bounds the check of all images, imageTimeout that of one.
	imagesTimeout = time.Minute
	imageTimeout  = 20 * time.Second
	// imagesAtOnce is the number of concurrent requests: few enough for a small private registry.
	imagesAtOnce = 16
)

// checkImages looks for the images that would be pulled. A joining node gets its images from the depot, so only those that the depot lacks are looked for.
func checkImages(ctx context.Context, m *machine) []finding.Finding {
	var need []string
	var err error
	switch c := m.h.Config; {
	case m.kind == Init || c.Node.Depot == config.None:
		need, err = Images(c, m.kind)
	case m.joined(), m.h.Depot == nil && (depotphase.Wanted(c) || !c.Node.Offline):
		return nil
	case m.h.Depot == nil:
		need, err = NodeImages(c)
	default:
		have := m.h.Depot.Contents().Images
		need, err = NodeImages(c, have...)
		need = without(need, imageNames(have))
	}
	if found := finding.Of(err); len(found) > 0 {
		return found
	} else if err != nil {
		return []finding.Finding{finding.New(CodeNoImage, "The list of images cannot be created", err.Error(), "ocadm config images list")}
	}
	return m.findImages(ctx, need)
}

// findImages checks registries, through mirrors and proxies, for the images that containerd lacks. With --offline it only reports images that cannot be
// pulled, and sends no request.
func (m *machine) findImages(ctx context.Context, need []string) []finding.Finding {
	have := node.PresentImages(ctx, m.h)
	need = slices.DeleteFunc(need, func(i string) bool { return have[i] != "" })
	if m.h.Config.Node.Offline {
		missing, err := node.Forbidden(m.h, need)
		if err != nil {
			return finding.Of(err)
		}
		return m.offlineFindings(missing)
	}
	if m.h.Files.Root != "" && !m.h.Files.Exists(registry.HostsDir) {
		return nil // a test's directory reaches only the registries that it names
	}
	client, err := node.Registries(m.h)
	if err != nil {
		return finding.Of(err)
	}
	return imageFindings(need, ask(ctx, client, need))
}

func (m *machine) offlineFindings(missing []string) []finding.Finding {
	if len(missing) == 0 {
		return nil
	}
	where := "this machine lacks"
	if m.h.Depot != nil {
		where = "this machine and the depot lack"
	}
	return []finding.Finding{finding.New(CodeNoImage, "--offline needs a bundle",
		where+" "+lists.Counted(len(missing), "image")+", and --offline does not allow pulling",
		fmt.Sprintf("on a machine with internet access: ocadm bundle create -o FILE; on this machine: ocadm %s --offline --bundle FILE; "+
			"or with a mirror: --registry-mirror REGISTRY=URL; or with --offline=false", m.kind)).
		With(missing...)}
}

// ask returns why each image is unavailable, nil for available ones.
func ask(ctx context.Context, client registry.Client, images []string) []*registry.Error {
	return lists.Parallel(images, imagesAtOnce, func(_ int, image string) *registry.Error {
		ctx, cancel := context.WithTimeout(ctx, imageTimeout)
		defer cancel()
		_, err := client.Find(ctx, image)
		failed, _ := errors.AsType[*registry.Error](err)
		return failed
	})
}

// imageFindings groups the images that a registry lacks for the same reason into one finding.
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
			"check the version and --image-repository; to copy images into your own registry: ocadm config images list")
	case registry.Denied:
		return finding.New(CodeDenied, fmt.Sprintf("%s refuses %s of the registry %s", server, images, from), "",
			fmt.Sprintf("docker login %s, and add --registry-config ~/.docker/config.json", server))
	case registry.Busy:
		return finding.Warn(CodeBusy, fmt.Sprintf("The registry %s cannot serve %s now", from, images), "", "run the command again later")
	}
	return finding.New(CodeUnreachable, fmt.Sprintf("The registry %s cannot be reached for %s", from, images), "",
		fmt.Sprintf("curl -v %s/v2/; give --registry-mirror %s=URL, --image-repository HOST/PATH, --https-proxy URL or --bundle FILE", registry.Upstream(from), from))
}

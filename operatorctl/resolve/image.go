// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"yunion.io/x/ocadm/operatorctl/component"
)

// savedFrom is how many images must agree on a release before they are taken for a saved file's defaults rather than for choices.
const savedFrom = 5

// images resolves references: a person's image, else repository, imageName and tag of the block, else those of the cloud.
type images struct {
	spec    view
	cluster *component.Cluster
	facts   Facts
	// saved is the release that a saved file's images show, if they do.
	saved ref
	// earlier tells that the file was saved from the earlier operator, which overwrote every image in every pass: there is no choice in it.
	earlier bool
}

func newImages(spec view, c *component.Cluster, f Facts) images {
	im := images{spec: spec, cluster: c, facts: f}
	im.earlier = im.wasEarlier()
	im.saved = im.savedRelease()
	return im
}

// wasEarlier tells whether the spec has what only the earlier operator wrote into it.
func (im images) wasEarlier() bool {
	for _, path := range [][]string{{"telegraf", "initContainerImage"}, {"notify", "plugins", "image"}, {"etcd", "createdSecrets"}} {
		if _, there := im.spec.get(path...); there {
			return true
		}
	}
	return false
}

// ref is a reference in three parts; sep is ":" or "@".
type ref struct{ repository, name, sep, tag string }

func (r ref) String() string {
	s := r.name + r.sep + r.tag
	if r.repository != "" {
		s = r.repository + "/" + s
	}
	return s
}

// parse splits a reference. A registry's port is no tag.
func parse(s string) ref {
	var r ref
	if head, digest, found := strings.Cut(s, "@"); found {
		s, r.sep, r.tag = head, "@", digest
		// A tag beside a digest says nothing more.
		if i := strings.LastIndex(s, ":"); i > strings.LastIndex(s, "/") {
			s = s[:i]
		}
	} else if i := strings.LastIndex(s, ":"); i > strings.LastIndex(s, "/") {
		s, r.sep, r.tag = s[:i], ":", s[i+1:]
	}
	r.name = s
	if i := strings.LastIndex(s, "/"); i >= 0 {
		r.repository, r.name = s[:i], s[i+1:]
	}
	return r
}

// resolve gives the reference of one container whose block lies at a path of the spec.
func (im images) resolve(container string, image component.Image, at []string) (full string, pinned bool, err error) {
	def, err := im.byDefault(container, image, at)
	if err != nil {
		return "", false, err
	}
	full = def.String()
	if chosen, _ := im.spec.get(append(at[:len(at):len(at)], "image")...); im.spec.personal(append(at[:len(at):len(at)], "image")...) {
		if s, ok := chosen.(string); ok && s != "" && s != full && s != im.facts.LastImages[container] && !im.isSaved(container, s, def, image) {
			full, pinned = s, true
		}
	}
	if _, err := name.ParseReference(full, name.WeakValidation); err != nil {
		return full, pinned, fmt.Errorf("spec.%s: %w", strings.Join(at, "."), err)
	}
	return full, pinned, nil
}

// beside gives the reference of a container without a block of its own: it has the registry of the component's block at a path of the
// spec, and nothing else of it.
func (im images) beside(container string, image component.Image, at []string) (string, error) {
	at = at[:len(at):len(at)]
	r, err := im.byDefault(container, image, append(at, container))
	r.repository = strings.TrimRight(im.spec.text(r.repository, append(at, "repository")...), "/")
	return r.String(), err
}

// byDefault is the reference that nobody chose as a whole.
func (im images) byDefault(container string, image component.Image, at []string) (ref, error) {
	r := ref{repository: im.repository(), name: im.name(container, image), sep: ":", tag: im.cluster.Version}
	if tag := image.TagFor(im.cluster.Version); tag != "" {
		r.tag = tag
	}
	if image.Reference != "" {
		s := image.Reference
		if !strings.Contains(s, "/") {
			s = im.facts.Images[s]
		}
		if s == "" {
			return ref{}, fmt.Errorf("image %q of %s is not in templates/images.yaml", image.Reference, container)
		}
		r = parse(s)
		// A private registry holds these, too, under their last element (docs/decisions/0005).
		if private := im.repository(); private != DefaultRepository {
			r.repository = private
		}
	}
	key := func(k string) []string { return append(at[:len(at):len(at)], k) }
	r.repository = strings.TrimRight(im.spec.text(r.repository, key("repository")...), "/")
	if name := im.chosenName(container, image, key("imageName")); name != "" {
		r.name = name
	}
	tag := im.spec.text("", key("tag")...)
	if tag == "" && image.TagKey != "" {
		tag = im.spec.text("", key(image.TagKey)...)
	}
	switch digest := strings.TrimPrefix(tag, "@"); {
	case strings.HasPrefix(digest, "sha256:"):
		r.sep, r.tag = "@", digest
	case tag != "":
		r.sep, r.tag = ":", tag
	}
	return r, nil
}

func (im images) repository() string {
	return strings.TrimRight(im.spec.text(DefaultRepository, "imageRepository"), "/")
}

// name of an image nobody named: the one big image beats the edition's.
func (im images) name(container string, image component.Image) string {
	ee := slices.Contains(image.EEFor, im.cluster.Edition)
	switch {
	case image.Hyper && im.cluster.Spec.UseHyperImage && (ee && image.EE != "" || im.cluster.Edition == component.EE):
		return hyperEE
	case image.Hyper && im.cluster.Spec.UseHyperImage:
		return hyper
	case ee && image.EE != "":
		return image.EE
	case image.Name != "":
		return image.Name
	}
	return container
}

// The one big image, by edition.
const hyper, hyperEE = "cloudpods", "cloudpods-ee"

// chosenName is the image name somebody chose. The earlier operator wrote the edition's name into some blocks.
func (im images) chosenName(container string, image component.Image, path []string) string {
	name := strings.Trim(im.spec.text("", path...), "/")
	if !im.spec.personal(path...) || im.earlier && slices.Contains(ownNames(container, image), name) {
		return ""
	}
	return name
}

// ownNames are the names an image may have in one cloud or another without anybody having chosen one.
func ownNames(container string, image component.Image) []string {
	names := []string{container}
	if image.Name != "" {
		names[0] = image.Name
	}
	if image.EE != "" {
		names = append(names, image.EE)
	}
	if image.Hyper {
		names = append(names, hyper, hyperEE)
	}
	return names
}

// savedRelease finds the release of a file that was saved with the images of another release in it: `kubectl get oc -o yaml`, edited in
// spec.version only. Nobody pins many components one by one to the same registry and tag that they would have had by default.
func (im images) savedRelease() ref {
	count := map[ref]int{}
	var best ref
	for _, k := range im.facts.Components {
		at := place(k)
		path := append(at[:len(at):len(at)], "image")
		image, _ := im.spec.get(path...)
		s, ok := image.(string)
		if !ok || !im.spec.personal(path...) || k.Image.Tag != "" || k.Image.Reference != "" {
			continue
		}
		r := parse(s)
		if !slices.Contains(ownNames(k.Name, k.Image), r.name) || r.sep != ":" {
			continue
		}
		r.name = ""
		count[r]++
		if n := count[r]; n >= savedFrom && (n > count[best] || n == count[best] && r.String() < best.String()) {
			best = r
		}
	}
	return best
}

// isSaved tells whether an image is one of a saved file's defaults. The tag of an image that is not released with the cloud was another
// one in every release of the earlier operator: any will do in a file of it.
func (im images) isSaved(container, s string, def ref, image component.Image) bool {
	if im.saved == (ref{}) {
		return false
	}
	r := parse(s)
	own := slices.Contains(append(ownNames(container, image), def.name), r.name)
	where := r.repository == im.saved.repository || r.repository == def.repository
	when := r.tag == im.saved.tag || r.sep == def.sep && r.tag == def.tag || image.Tag != "" && (r.tag == image.Tag || im.earlier)
	return own && where && when
}

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
		if s, ok := chosen.(string); ok && s != "" && s != full && s != im.facts.LastImages[container] && !im.isSaved(s, def, image) {
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
	if image.Tag != "" {
		r.tag = image.Tag
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
	}
	key := func(k string) []string { return append(at[:len(at):len(at)], k) }
	r.repository = strings.TrimRight(im.spec.text(r.repository, key("repository")...), "/")
	if im.spec.personal(key("imageName")...) {
		r.name = strings.Trim(im.spec.text(r.name, key("imageName")...), "/")
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
	case image.Hyper && im.cluster.Spec.UseHyperImage && (ee || im.cluster.Edition == component.EE):
		return "cloudpods-ee"
	case image.Hyper && im.cluster.Spec.UseHyperImage:
		return "cloudpods"
	case ee && image.EE != "":
		return image.EE
	case image.Name != "":
		return image.Name
	}
	return container
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
		def, err := im.byDefault(k.Name, k.Image, at)
		if !ok || !im.spec.personal(path...) || err != nil || k.Image.Tag != "" || k.Image.Reference != "" {
			continue
		}
		r := parse(s)
		if r.name != def.name || r.sep != ":" {
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

func (im images) isSaved(s string, def ref, image component.Image) bool {
	if im.saved == (ref{}) {
		return false
	}
	r := parse(s)
	return r.repository == im.saved.repository && r.name == def.name && (r.tag == im.saved.tag || r.tag == image.Tag)
}

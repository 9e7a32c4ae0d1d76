// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"yunion.io/x/ocadm/api/v1alpha1"
	reference "yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/component"
)

// images resolves image references: a user's image, or else repository, imageName and tag of the block, or else those of the cloud.
type images struct {
	spec    view
	cluster *component.Cluster
	facts   Facts
	// saved is the default repository and tag that the operator recorded in a saved file; zero if there is no record.
	saved reference.Reference
	// earlier is true if the spec comes from the earlier operator, which wrote image names into it.
	earlier bool
}

func newImages(spec view, cr *v1alpha1.OnecloudCluster, c *component.Cluster, f Facts) images {
	im := images{spec: spec, cluster: c, facts: f, saved: reference.Split(cr.Annotations[v1alpha1.AnnotationDefaultImages])}
	im.earlier = isEarlier(func(path []string) bool {
		_, there := spec.get(path...)
		return there
	})
	return im
}

// ref is a split image reference; sep is ":" or "@".
type ref struct{ repository, name, sep, tag string }

func (r ref) String() string {
	s := r.name + r.sep + r.tag
	if r.repository != "" {
		s = r.repository + "/" + s
	}
	return s
}

// parse splits a reference. A tag next to a digest is redundant and dropped.
func parse(s string) ref {
	of := reference.Split(s)
	repository, name := path.Split(of.Repository)
	r := ref{repository: strings.TrimSuffix(repository, "/"), name: name}
	switch {
	case of.Digest != "":
		r.sep, r.tag = "@", of.Digest
	case of.Tag != "":
		r.sep, r.tag = ":", of.Tag
	}
	return r
}

// resolve returns the reference of a container whose block is at a path of the spec. It clips the path.
func (im images) resolve(container string, image component.Image, at []string) (full string, pinned bool, err error) {
	def, err := im.byDefault(container, image, at)
	if err != nil {
		return "", false, err
	}
	full = def.String()
	if chosen, _ := im.spec.get(append(at, "image")...); im.spec.personal(append(at, "image")...) {
		if s, ok := chosen.(string); ok && s != "" && s != full && s != im.facts.LastImages[container] && !im.isSaved(container, s, def, image, at) {
			full, pinned = s, true
		}
	}
	if _, err := name.ParseReference(full, name.WeakValidation); err != nil {
		return full, pinned, fmt.Errorf("spec.%s: %w", strings.Join(at, "."), err)
	}
	return full, pinned, nil
}

// beside returns the reference of a container without a block of its own. Of the component's block it uses the registry only.
func (im images) beside(container string, image component.Image, at []string) (string, error) {
	r, err := im.byDefault(container, image, append(at, container))
	r.repository = strings.TrimRight(im.spec.text(r.repository, append(at, "repository")...), "/")
	return r.String(), err
}

// byDefault returns the reference without regard to the field image.
func (im images) byDefault(container string, image component.Image, at []string) (ref, error) {
	r := ref{repository: im.repository(), name: im.name(container, image), sep: ":", tag: cmp.Or(image.TagFor(im.cluster.Version), im.cluster.Version)}
	if image.Reference != "" {
		s := image.Reference
		if !strings.Contains(s, "/") {
			s = im.facts.Images[s]
		}
		if image.Reference == component.OwnImage { // the operator runs from this image, wherever it is
			own := parse(cmp.Or(s, im.repository()+"/"+component.OwnImage+":latest"))
			return im.chosenParts(own, container, image, at), nil
		}
		if s == "" {
			return ref{}, fmt.Errorf("image %q of %s is not in templates/images.yaml", image.Reference, container)
		}
		r = parse(s)
		// A private registry also holds these images, under the last element of their path (docs/decisions/0005).
		if private := im.repository(); private != DefaultRepository {
			r.repository = private
		}
	}
	return im.chosenParts(r, container, image, at), nil
}

// chosenParts replaces the parts of a reference that a block of the spec sets.
func (im images) chosenParts(r ref, container string, image component.Image, at []string) ref {
	r.repository = strings.TrimRight(im.spec.text(r.repository, append(at, "repository")...), "/")
	if name := im.chosenName(container, image, append(at, "imageName")); name != "" {
		r.name = name
	}
	tag := im.spec.text("", append(at, "tag")...)
	if image.TagKey != "" {
		tag = cmp.Or(tag, im.spec.text("", append(at, image.TagKey)...))
	}
	switch digest := strings.TrimPrefix(tag, "@"); {
	case strings.HasPrefix(digest, "sha256:"):
		r.sep, r.tag = "@", digest
	case tag != "":
		r.sep, r.tag = ":", tag
	}
	return r
}

func (im images) repository() string { return im.spec.repository() }

// repository returns the registry of the cloud's images.
func (v view) repository() string {
	return strings.TrimRight(v.text(DefaultRepository, "imageRepository"), "/")
}

// name returns the default name of an image. The single big image takes precedence over the edition's.
func (im images) name(container string, image component.Image) string {
	ee := slices.Contains(image.EEFor, im.cluster.Edition)
	switch {
	case image.Hyper && im.cluster.Spec.UseHyperImage && (ee && image.EE != "" || im.cluster.Edition == component.EE):
		return hyperEE
	case image.Hyper && im.cluster.Spec.UseHyperImage:
		return hyper
	case ee && image.EE != "":
		return image.EE
	}
	return cmp.Or(image.Name, container)
}

// The single big image, by edition.
const hyper, hyperEE = "cloudpods", "cloudpods-ee"

// chosenName returns the image name that a user chose. The earlier operator wrote the edition's name into some blocks.
func (im images) chosenName(container string, image component.Image, path []string) string {
	name := strings.Trim(im.spec.text("", path...), "/")
	if !im.spec.personal(path...) || im.earlier && slices.Contains(ownNames(container, image), name) {
		return ""
	}
	return name
}

// ownNames returns the names that an image may have without a user's choice.
func ownNames(container string, image component.Image) []string {
	names := []string{cmp.Or(image.Name, container)}
	if image.EE != "" {
		names = append(names, image.EE)
	}
	if image.Hyper {
		names = append(names, hyper, hyperEE)
	}
	return names
}

// isSaved reports whether an image is a default in a saved file: `kubectl get oc -o yaml`, edited in spec.version and applied. The file records the
// release whose images it shows, so no guess is needed. A third-party image is a default if that release had its tag.
func (im images) isSaved(container, s string, def ref, image component.Image, at []string) bool {
	r := parse(s)
	if !slices.Contains(append(ownNames(container, image), def.name), r.name) {
		return false
	}
	if im.ofEarlierFile(s, append(at, "image")) {
		return r.sep == ":" && (r.repository == def.repository || r.repository == im.earlierRepository())
	}
	if im.saved == (reference.Reference{}) {
		return false
	}
	tag := cmp.Or(image.TagFor(im.saved.Tag), im.saved.Tag)
	where := r.repository == im.saved.Repository || r.repository == def.repository
	return where && r.sep == ":" && (r.tag == tag || r.sep == def.sep && r.tag == def.tag)
}

// ofEarlierFile reports whether an image comes from a file saved from the earlier operator. That operator overwrote every image in every reconciliation,
// so none of them is a choice; a tag, a repository or a digest is.
func (im images) ofEarlierFile(image string, path []string) bool {
	if im.spec.owned == nil {
		return im.earlier && im.saved == (reference.Reference{})
	}
	return im.spec.owned.ofEarlierFile(image, path...)
}

// earlierRepository returns the registry of the images in a file saved from the earlier operator, read from the fields that only it wrote.
func (im images) earlierRepository() string {
	for _, path := range earlierMarks() {
		value, _ := im.spec.get(path...)
		if image, ok := value.(string); ok && image != "" {
			return parse(image).repository
		}
	}
	return ""
}

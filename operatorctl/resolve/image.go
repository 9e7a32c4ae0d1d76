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

// images resolves references: a user's image, else repository, imageName and tag of the block, else those of the cloud.
type images struct {
	spec    view
	cluster *component.Cluster
	facts   Facts
	// saved is the repository and tag of the images in a saved file, which the operator wrote; zero if there is no record of it.
	saved reference.Reference
	// earlier reports that the spec comes from the earlier operator, which wrote names of images into it.
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

// defaultImages is the value of the annotation that records which images the spec shows.
func defaultImages(repository, version string) string { return repository + ":" + version }

// ref is a reference in three parts; sep is ":" or "@".
type ref struct{ repository, name, sep, tag string }

func (r ref) String() string {
	s := r.name + r.sep + r.tag
	if r.repository != "" {
		s = r.repository + "/" + s
	}
	return s
}

// parse splits a reference. A tag beside a digest says nothing more.
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

// resolve gives the reference of one container whose block lies at a path of the spec, which is clipped.
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

// beside gives the reference of a container without a block of its own: it has the registry of the component's block at a path of the
// spec, and nothing else of it.
func (im images) beside(container string, image component.Image, at []string) (string, error) {
	r, err := im.byDefault(container, image, append(at, container))
	r.repository = strings.TrimRight(im.spec.text(r.repository, append(at, "repository")...), "/")
	return r.String(), err
}

// byDefault is the reference without the field image.
func (im images) byDefault(container string, image component.Image, at []string) (ref, error) {
	r := ref{repository: im.repository(), name: im.name(container, image), sep: ":", tag: cmp.Or(image.TagFor(im.cluster.Version), im.cluster.Version)}
	if image.Reference != "" {
		s := image.Reference
		if !strings.Contains(s, "/") {
			s = im.facts.Images[s]
		}
		if image.Reference == component.OwnImage { // wherever it is, the operator runs from it
			own := parse(cmp.Or(s, im.repository()+"/"+component.OwnImage+":latest"))
			return im.chosenParts(own, container, image, at), nil
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
	return im.chosenParts(r, container, image, at), nil
}

// chosenParts is a reference with the parts that a block of the spec sets.
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

// repository is where the cloud's images come from.
func (v view) repository() string {
	return strings.TrimRight(v.text(DefaultRepository, "imageRepository"), "/")
}

// name of an image that the spec does not name: the one big image beats the edition's.
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

// The one big image, by edition.
const hyper, hyperEE = "cloudpods", "cloudpods-ee"

// chosenName is the image name that a user chose. The earlier operator wrote the edition's name into some blocks.
func (im images) chosenName(container string, image component.Image, path []string) string {
	name := strings.Trim(im.spec.text("", path...), "/")
	if !im.spec.personal(path...) || im.earlier && slices.Contains(ownNames(container, image), name) {
		return ""
	}
	return name
}

// ownNames are the names an image may have in one cloud or another without a choice of a user.
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

// isSaved reports whether an image is a default that stands in a saved file: `kubectl get oc -o yaml`, edited in spec.version and applied.
// The file carries the record of the release whose images it shows, so this needs no guess. An image that is not the cloud's own is a
// default if that release had its tag.
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

// ofEarlierFile reports whether an image stands in a file saved from the earlier operator. That operator overwrote every image in every
// reconcile, so none of them is a choice; a tag, a repository or a digest is.
func (im images) ofEarlierFile(image string, path []string) bool {
	if im.spec.owned == nil {
		return im.earlier && im.saved == (reference.Reference{})
	}
	return im.spec.owned.ofEarlierFile(image, path...)
}

// earlierRepository is where the images of a file saved from the earlier operator came from, as the fields say that only it wrote.
func (im images) earlierRepository() string {
	for _, path := range earlierMarks() {
		value, _ := im.spec.get(path...)
		if image, ok := value.(string); ok && image != "" {
			return parse(image).repository
		}
	}
	return ""
}

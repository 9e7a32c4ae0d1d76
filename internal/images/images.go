// SPDX-License-Identifier: Apache-2.0

// Package images knows the images that are neither Kubernetes' own nor services of the cloud (templates/images.yaml), and how a
// reference is rewritten for a private registry. It fetches nothing.
package images

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/templates"
)

// DefaultRepository is where the images of the cloud's services and of ocadm itself are published.
const DefaultRepository = "registry.cn-beijing.aliyuncs.com/yunionio"

// Operator is the name of the image that holds this program.
const Operator = "ocadm"

// Image is one row of the table.
type Image struct {
	// Name is unique in the table.
	Name string `json:"name"`
	// Repository is the reference without tag.
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
	// For says what it is needed for.
	For string `json:"for"`
}

// Ref is the complete reference in the given private repository, or where the image comes from if that is empty.
func (i Image) Ref(imageRepository string) string {
	return Rewrite(i.Repository+":"+i.Tag, imageRepository)
}

// RepositoryOf is the private repository from which a reference to the image, of any version, comes: "" if it comes from where the image does by default.
func (i Image) RepositoryOf(ref string) string {
	repository := Split(ref).Repository
	if repository == i.Repository {
		return ""
	}
	return repository[:max(0, strings.LastIndexByte(repository, '/'))]
}

// Table is every third-party image.
type Table []Image

// Load reads the embedded table.
func Load() (Table, error) {
	raw, err := fs.ReadFile(templates.Files(), "images.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the table of images: %w", err)
	}
	return Parse(raw)
}

// Parse reads a table and refuses what is incomplete, unknown or double.
func Parse(raw []byte) (Table, error) {
	var t Table
	if err := yaml.UnmarshalStrict(bytes.TrimSpace(raw), &t); err != nil {
		return nil, fmt.Errorf("parsing the table of images: %w", err)
	}
	seen := map[string]bool{}
	for n, i := range t {
		if i.Name == "" || i.Repository == "" || i.Tag == "" || i.For == "" {
			return nil, fmt.Errorf("parsing the table of images: row %d (%q) is incomplete", n+1, i.Name)
		}
		if seen[i.Name] {
			return nil, fmt.Errorf("parsing the table of images: %q is there twice", i.Name)
		}
		seen[i.Name] = true
	}
	return t, nil
}

// Get returns an image by its name.
func (t Table) Get(name string) (Image, error) {
	for _, i := range t {
		if i.Name == name {
			return i, nil
		}
	}
	return Image{}, fmt.Errorf("no image is named %q in templates/images.yaml", name)
}

// Ref is the complete reference of a named image in the given private repository, or where it comes from if that is empty.
func (t Table) Ref(name, imageRepository string) (string, error) {
	i, err := t.Get(name)
	if err != nil {
		return "", err
	}
	return i.Ref(imageRepository), nil
}

// Refs are the complete references where the images come from by default, by name.
func (t Table) Refs() map[string]string {
	out := make(map[string]string, len(t))
	for _, i := range t {
		out[i.Name] = i.Ref("")
	}
	return out
}

// OperatorRef is the image of the operator.
func OperatorRef(imageRepository, version string) string {
	return Reference{Repository: strings.TrimRight(cmp.Or(imageRepository, DefaultRepository), "/") + "/" + Operator, Tag: version}.String()
}

// At is an image at another version: the same repository, with the version as its tag.
func At(image, version string) string {
	return Reference{Repository: Split(image).Repository, Tag: version}.String()
}

// PullPolicy is Always for a tag that moves ("dev", "latest", "NAME-dev"), so that every new pod pulls what was pushed last, and
// IfNotPresent for versions and commits. The version of this program never moves: the node has its image, and no registry need have it.
func PullPolicy(ref string) string {
	if tag := Split(ref).Tag; tag == version.Version {
		return "IfNotPresent"
	} else if tag == "dev" || tag == "latest" || strings.HasSuffix(tag, "-dev") {
		return "Always"
	}
	return "IfNotPresent"
}

// Rewrite moves a reference into a private repository, which holds <imageRepository>/<last path element>. An empty repository
// leaves it where it is.
func Rewrite(ref, imageRepository string) string {
	imageRepository = strings.TrimRight(imageRepository, "/")
	if imageRepository == "" {
		return ref
	}
	r := Split(ref)
	r.Repository = imageRepository + "/" + r.Repository[strings.LastIndexByte(r.Repository, '/')+1:]
	return r.String()
}

// Reference is an image reference taken apart.
type Reference struct {
	// Repository is the registry, which may have a port, and the path.
	Repository string
	Tag        string
	// Digest is "sha256:…".
	Digest string
}

// Split takes a reference apart. A colon is a tag's only behind the last slash: before it, it is a port's.
func Split(ref string) Reference {
	var r Reference
	ref, r.Digest, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref, r.Tag = ref[:i], ref[i+1:]
	}
	r.Repository = ref
	return r
}

// String puts it together again.
func (r Reference) String() string {
	s := r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

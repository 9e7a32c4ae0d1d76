// SPDX-License-Identifier: Apache-2.0

// Package images holds the table of third-party images that are neither Kubernetes' own nor services of the cloud (templates/images.yaml), and
// rewrites references for a private registry. It fetches nothing.
package images

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/templates"
)

// DefaultRepository is where the images of the cloud's services and of ocadm are published.
const DefaultRepository = "registry.cn-beijing.aliyuncs.com/yunionio"

// Operator is the name of the image that contains this program.
const Operator = "ocadm"

// Image is one row of the table.
type Image struct {
	// Name is unique in the table.
	Name string `json:"name"`
	// Repository is the reference without tag.
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
	For        string `json:"for"`
}

// Ref returns the full reference in the given private repository, or at the image's origin if that is empty.
func (i Image) Ref(imageRepository string) string {
	return Rewrite(i.Repository+":"+i.Tag, imageRepository)
}

// RepositoryOf returns the private repository of a reference to any version of the image, "" if the reference is to the image's default origin.
func (i Image) RepositoryOf(ref string) string {
	repository := Split(ref).Repository
	if repository == i.Repository {
		return ""
	}
	return repository[:max(0, strings.LastIndexByte(repository, '/'))]
}

// Table lists the third-party images.
type Table []Image

// Load reads the embedded table.
func Load() (Table, error) {
	raw, err := fs.ReadFile(templates.Files(), "images.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the table of images: %w", err)
	}
	return Parse(raw)
}

// Parse parses a table and rejects incomplete, unknown and duplicate entries.
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
			return nil, fmt.Errorf("parsing the table of images: %q occurs twice", i.Name)
		}
		seen[i.Name] = true
	}
	return t, nil
}

func (t Table) Get(name string) (Image, error) {
	for _, i := range t {
		if i.Name == name {
			return i, nil
		}
	}
	return Image{}, fmt.Errorf("no image is named %q in templates/images.yaml", name)
}

// Ref returns the full reference of a named image in the given private repository, or at its origin if that is empty.
func (t Table) Ref(name, imageRepository string) (string, error) {
	i, err := t.Get(name)
	if err != nil {
		return "", err
	}
	return i.Ref(imageRepository), nil
}

// Refs returns the full references at the images' default origins, by name.
func (t Table) Refs() map[string]string {
	return lists.Index(t, func(i Image) (string, string) { return i.Name, i.Ref("") })
}

// OperatorRef returns the reference of the operator's image.
func OperatorRef(imageRepository, version string) string {
	return Reference{Repository: strings.TrimRight(cmp.Or(imageRepository, DefaultRepository), "/") + "/" + Operator, Tag: version}.String()
}

// At returns the reference of an image at another version: the same repository, with the version as its tag.
func At(image, version string) string {
	return Reference{Repository: Split(image).Repository, Tag: version}.String()
}

// PullPolicy returns Always for a moving tag ("dev", "latest", "NAME-dev"), so that every new pod pulls the latest push, and IfNotPresent for
// versions and commits. The version of this program never counts as moving: the node has its image, which need not be in any registry.
func PullPolicy(ref string) string {
	if tag := Split(ref).Tag; tag == version.Version {
		return "IfNotPresent"
	} else if tag == "dev" || tag == "latest" || strings.HasSuffix(tag, "-dev") {
		return "Always"
	}
	return "IfNotPresent"
}

// Rewrite returns a reference moved to a private repository, as <imageRepository>/<last path element>. If the repository is empty, the reference is
// unchanged.
func Rewrite(ref, imageRepository string) string {
	imageRepository = strings.TrimRight(imageRepository, "/")
	if imageRepository == "" {
		return ref
	}
	r := Split(ref)
	r.Repository = imageRepository + "/" + r.Repository[strings.LastIndexByte(r.Repository, '/')+1:]
	return r.String()
}

// Reference is a parsed image reference.
type Reference struct {
	// Repository is the registry, including any port, and the path.
	Repository string
	Tag        string
	// Digest is "sha256:…".
	Digest string
}

// Split parses a reference. A colon precedes a tag only after the last slash; before that it precedes a port.
func Split(ref string) Reference {
	var r Reference
	ref, r.Digest, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref, r.Tag = ref[:i], ref[i+1:]
	}
	r.Repository = ref
	return r
}

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

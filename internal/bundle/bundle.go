// SPDX-License-Identifier: Apache-2.0

// Package bundle writes and reads bundles: one file that holds everything a node needs, its programs and its container images.
//
// A bundle is a tar archive of an OCI image layout. Its first entry is index.json, so its contents are known after reading a few kilobytes; all other
// content is in blobs named by their SHA-256. For each platform the index lists one artifact manifest (the node's files, one zstd-compressed blob
// each, and Info as its config) and the images under their full names.
//
// A bundle made since an earlier one omits the blobs of that bundle, and is read together with it. A signature is an Ed25519 signature of index.json,
// in the entry "signature": index.json names everything else by its digest.
//
// The package installs and pulls nothing. Checksums detect damage, not malice: an unsigned or unverified bundle is trusted as much as the program
// that installs it.
package bundle

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/lists"
)

// Info describes the target of a bundle.
type Info struct {
	OS                string `json:"os"`
	Arch              string `json:"arch"`
	KubernetesVersion string `json:"kubernetesVersion"`
	// Versions holds the versions of the other components, by name: "containerd": "v2.4.2".
	Versions map[string]string `json:"versions,omitempty"`
}

// FileSource is a node's file to put into a bundle. Path is its path on the node.
type FileSource struct {
	Path string
	Mode fs.FileMode
	Open func() (io.ReadCloser, error)
	// Origin may be nil.
	Origin *Origin
	// packed describes the file's blob in another bundle.
	packed *v1.Descriptor
	there  extent
}

// Origin is the download that a file came from, either the file itself or an archive.
type Origin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	// SHA256 is the digest of the download in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// ImageSource is an image to put into a bundle under its full name, including registry and tag.
type ImageSource struct {
	Name  string
	Image v1.Image
}

// Contents lists the contents of a bundle: files sorted by path, images by name.
type Contents struct {
	Info   Info        `json:"info"`
	Files  []FileInfo  `json:"files"`
	Images []ImageInfo `json:"images"`
}

// FileInfo describes a file. Size and digest are those of the file itself, not of its compressed blob.
type FileInfo struct {
	Path   string      `json:"path"`
	Mode   fs.FileMode `json:"mode"`
	Digest string      `json:"digest"`
	Size   int64       `json:"size"`
	Origin *Origin     `json:"origin,omitempty"`
}

// ImageInfo describes an image. Size is the sum of its blobs, some of which it may share with other images.
type ImageInfo struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// The media types and annotations of a bundle.
const (
	artifactType   = "application/vnd.ocadm.node.v1"
	configType     = types.MediaType("application/vnd.ocadm.node.config.v1+json")
	fileType       = types.MediaType("application/vnd.ocadm.node.file.v1+zstd")
	nameAnnotation = "io.containerd.image.name"
	refAnnotation  = "org.opencontainers.image.ref.name"
	pathAnnotation = "org.opencontainers.image.title"
	modeAnnotation = "vnd.ocadm.file.mode"
	hashAnnotation = "vnd.ocadm.file.digest"
	sizeAnnotation = "vnd.ocadm.file.size"
	fromAnnotation = "vnd.ocadm.file.origin"

	indexName     = "index.json"
	layoutName    = "oci-layout"
	layoutJSON    = `{"imageLayoutVersion":"1.0.0"}`
	signatureName = "signature"
	blobPrefix    = "blobs/sha256/"
)

// nodeConfig is the config blob of the artifact. It repeats the index's list of images, which no digest covers.
type nodeConfig struct {
	Info
	Images map[string]v1.Hash `json:"images"`
	Since  *Since             `json:"since,omitempty"`
}

// cleanPath returns the canonical form of a path on a node, "/usr/local/bin/kubelet", and refuses paths that lead elsewhere.
func cleanPath(p string) (string, error) {
	rel := strings.TrimPrefix(p, "/")
	if !fs.ValidPath(rel) || rel == "." || strings.ContainsAny(rel, "\x00\\") {
		return "", fmt.Errorf("checking the path %q: want a plain file path", p)
	}
	return path.Clean("/" + rel), nil
}

func fileAnnotations(f FileInfo) map[string]string {
	a := map[string]string{
		pathAnnotation: f.Path,
		modeAnnotation: fmt.Sprintf("%04o", f.Mode.Perm()),
		hashAnnotation: f.Digest,
		sizeAnnotation: strconv.FormatInt(f.Size, 10),
	}
	if f.Origin != nil {
		from, _ := json.Marshal(f.Origin) // strings can be encoded
		a[fromAnnotation] = string(from)
	}
	return a
}

func fileInfo(a map[string]string) (FileInfo, error) {
	p, err := cleanPath(a[pathAnnotation])
	if err != nil {
		return FileInfo{}, err
	}
	mode, err := strconv.ParseUint(a[modeAnnotation], 8, 32)
	if err != nil || fs.FileMode(mode)&^fs.ModePerm != 0 {
		return FileInfo{}, fmt.Errorf("reading the mode of %s: %q is not a mode", p, a[modeAnnotation])
	}
	size, err := strconv.ParseInt(a[sizeAnnotation], 10, 64)
	if err != nil || size < 0 {
		return FileInfo{}, fmt.Errorf("reading the size of %s: %q is not a size", p, a[sizeAnnotation])
	}
	h, err := v1.NewHash(a[hashAnnotation])
	if err != nil || h.Algorithm != "sha256" {
		return FileInfo{}, fmt.Errorf("reading the digest of %s: %q is not a digest", p, a[hashAnnotation])
	}
	f := FileInfo{Path: p, Mode: fs.FileMode(mode), Digest: h.String(), Size: size}
	if from := a[fromAnnotation]; from != "" {
		if err := json.Unmarshal([]byte(from), &f.Origin); err != nil {
			return FileInfo{}, fmt.Errorf("reading the origin of %s: %w", p, err)
		}
	}
	return f, nil
}

// layoutIndex returns the index.json of a layout with these manifests.
func layoutIndex(manifests []v1.Descriptor) ([]byte, error) {
	return json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: manifests})
}

func imageDescriptor(name string, mediaType types.MediaType, digest v1.Hash, size int64, info Info) v1.Descriptor {
	return v1.Descriptor{
		MediaType: mediaType, Digest: digest, Size: size,
		Platform:    &v1.Platform{OS: info.OS, Architecture: info.Arch},
		Annotations: map[string]string{nameAnnotation: name, refAnnotation: name},
	}
}

func (b *Bundle) Contents() Contents {
	c := b.contents
	c.Info.Versions = maps.Clone(c.Info.Versions)
	c.Files = slices.Clone(c.Files)
	c.Images = slices.Clone(c.Images)
	return c
}

// Require returns, sorted, the images that the bundle lacks.
func (b *Bundle) Require(images []string) []string {
	missing := lists.Filter(images, func(name string) bool {
		_, ok := b.images[name]
		return !ok
	})
	return lists.Distinct(missing)
}

// CheckImages returns a finding that names the images that the bundle lacks, nil if there are none.
func (b *Bundle) CheckImages(images []string) error {
	if missing := b.Require(images); len(missing) > 0 {
		return missingImages(b.name, slices.Sorted(maps.Keys(b.images)), missing)
	}
	return nil
}

// CheckPlatform returns a finding if the bundle is for an architecture other than arch (a GOARCH) or, unless k8sVersion is empty, for another
// Kubernetes version.
func (b *Bundle) CheckPlatform(arch, k8sVersion string) error {
	switch info := b.contents.Info; {
	case info.OS != "linux" || info.Arch != arch:
		return wrongPlatform(b.name, b.Platforms(), arch)
	case k8sVersion != "" && info.KubernetesVersion != k8sVersion:
		return wrongVersion(b.name, info, k8sVersion)
	}
	return nil
}

// Platforms returns the platforms of the bundle, as "linux/amd64".
func (b *Bundle) Platforms() []string {
	return lists.Map(b.platforms, func(p *platform) string { return p.contents.Info.platform() })
}

// On returns the bundle for another architecture (a GOARCH), or a finding. It shares the underlying file, which must be closed once.
func (b *Bundle) On(arch string) (*Bundle, error) {
	for _, p := range b.platforms {
		if p.contents.Info.Arch == arch {
			other := *b
			other.platform = p
			return &other, nil
		}
	}
	return nil, wrongPlatform(b.name, b.Platforms(), arch)
}

func (b *Bundle) Views() []*Bundle {
	return lists.Map(b.platforms, func(p *platform) *Bundle {
		view := *b
		view.platform = p
		return &view
	})
}

// needs returns the blobs that the platform uses.
func (b *Bundle) needs() map[v1.Hash]bool {
	out := map[v1.Hash]bool{}
	for _, f := range b.files {
		out[f.blob.Digest] = true
	}
	for _, i := range b.images {
		for _, d := range append(i.blobs, i.manifest) {
			out[d.Digest] = true
		}
	}
	return out
}

func (i Info) platform() string { return i.OS + "/" + i.Arch }

// Name returns the path that the bundle was opened from.
func (b *Bundle) Name() string { return b.name }

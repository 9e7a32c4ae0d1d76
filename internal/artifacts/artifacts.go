// SPDX-License-Identifier: Apache-2.0

// Package artifacts has the table of the programs that a node downloads (artifacts.yaml): the address and the SHA-256 of each, by version and
// architecture. It makes every address, and unpacks what was downloaded. It downloads nothing itself.
package artifacts

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
)

// CodeUnpinned is the finding of an artifact whose SHA-256 the table does not have.
const CodeUnpinned = "OCA-2320"

// Embedded is artifacts.yaml.
//
//go:embed artifacts.yaml
var Embedded []byte

// Table is every artifact.
type Table []row

type row struct {
	Name string `json:"name"`
	// Version is empty if it is that of Kubernetes.
	Version string `json:"version,omitempty"`
	URL     string `json:"url"`
	// Checksum is appended to the address for a file with the digest, where there is such a file of a simple form.
	Checksum string `json:"checksum,omitempty"`
	// SHA256 are digests in hexadecimal digits, by version and architecture.
	SHA256 map[string]map[string]string `json:"sha256"`
	content
}

// content is what an artifact brings: a program by itself (File), or an archive of which some files (Files) or all programs (Dir) are taken.
type content struct {
	File  string            `json:"file,omitempty"`
	Files map[string]string `json:"files,omitempty"`
	Dir   string            `json:"dir,omitempty"`
}

// Artifact is one thing to download.
type Artifact struct {
	Name, Version string
	// URL is where it is downloaded from, and Home where the project publishes it.
	URL, Home string
	// SHA256 is the digest of what URL gives, in hexadecimal digits; "" if the table does not have it.
	SHA256 string
	// Checksum is the address of a file with that digest, "" if there is none.
	Checksum string
	content
}

// Parse reads a table.
func Parse(raw []byte) (Table, error) {
	var t Table
	if err := yaml.UnmarshalStrict(raw, &t); err != nil {
		return nil, fmt.Errorf("reading the table of artifacts: %w", err)
	}
	for _, r := range t {
		for version, digests := range r.SHA256 {
			for arch, digest := range digests {
				if !IsDigest(digest) {
					return nil, fmt.Errorf("reading the table of artifacts: %s %s for %s has the digest %q", r.Name, version, arch, digest)
				}
			}
		}
	}
	return t, nil
}

// IsDigest reports whether text is a SHA-256 in hexadecimal digits.
func IsDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size
}

// Of are the artifacts of a node of an architecture for a version of Kubernetes, with their addresses on a mirror, which may be empty.
func (t Table) Of(kubernetes, arch, mirror string) []Artifact {
	out := make([]Artifact, len(t))
	for i, r := range t {
		version := cmp.Or(r.Version, kubernetes)
		fill := strings.NewReplacer("{version}", strings.TrimPrefix(version, "v"), "{arch}", arch)
		home := fill.Replace(r.URL)
		out[i] = Artifact{Name: r.Name, Version: version, URL: mirrored(home, mirror), Home: home, SHA256: r.SHA256[version][arch], content: r.content}
		if r.Checksum != "" {
			out[i].Checksum = out[i].URL + r.Checksum
		}
	}
	return out
}

func mirrored(url, mirror string) string {
	if mirror == "" {
		return url
	}
	return strings.TrimSuffix(mirror, "/") + "/" + strings.TrimPrefix(url, "https://")
}

// Kubernetes are the versions of Kubernetes that the table pins for an architecture, the latest first.
func (t Table) Kubernetes(arch string) []string {
	count, follow := map[string]int{}, 0
	for _, r := range t {
		if r.Version != "" {
			continue
		}
		follow++
		for version, digests := range r.SHA256 {
			if digests[arch] != "" {
				count[version]++
			}
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n < follow })
	list := slices.Collect(maps.Keys(count))
	semver.Sort(list)
	slices.Reverse(list)
	return list
}

// Unpinned is the finding of an artifact without a digest. remedy is what the caller's user can do.
func (t Table) Unpinned(a Artifact, arch, remedy string) error {
	pinned := "no program for " + arch
	if list := t.Kubernetes(arch); len(list) > 0 {
		pinned = "the programs of Kubernetes " + strings.Join(list, ", ")
	}
	return finding.New(CodeUnpinned, fmt.Sprintf("No checksum of %s %s for %s is known", a.Name, a.Version, arch), "this ocadm has the checksums of "+pinned, remedy)
}

// Extract reads a download and calls put for every file in it that belongs on a node, with its path there.
func (a Artifact) Extract(in io.Reader, put func(to string, in io.Reader) error) error {
	if a.File != "" {
		return put(a.File, in)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", a.URL, err)
	}
	found := 0
	for t := tar.NewReader(z); ; {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", a.URL, err)
		}
		name := path.Clean(e.Name)
		to := a.Files[name]
		if a.Dir != "" && path.Dir(name) == "." && e.Mode&0o111 != 0 {
			to = path.Join(a.Dir, name)
		}
		if to == "" || e.Typeflag != tar.TypeReg {
			continue
		}
		found++
		if err := put(to, t); err != nil {
			return err
		}
	}
	if found == 0 || found < len(a.Files) {
		return fmt.Errorf("unpacking %s: it holds %d of the files wanted", a.URL, found)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Package artifacts holds the table of the programs that a node downloads (artifacts.yaml): the address and SHA-256 of each, by version and
// architecture. It builds addresses and unpacks downloads, but downloads nothing itself.
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

// CodeUnpinned is the finding code of an artifact whose SHA-256 is not in the table.
const CodeUnpinned = "OCA-2320"

// Embedded is artifacts.yaml.
//
//go:embed artifacts.yaml
var Embedded []byte

// Table lists all artifacts.
type Table []row

type row struct {
	Name string `json:"name"`
	// Version is empty if the version is that of Kubernetes.
	Version string `json:"version,omitempty"`
	URL     string `json:"url"`
	// Checksum is the suffix of the address of a digest file. It is empty if there is no such file of a simple form.
	Checksum string `json:"checksum,omitempty"`
	// SHA256 holds hexadecimal digests by version and architecture.
	SHA256 map[string]map[string]string `json:"sha256"`
	content
}

// content describes what an artifact contains: a single program (File), or an archive from which some files (Files) or all programs (Dir) are taken.
type content struct {
	File  string            `json:"file,omitempty"`
	Files map[string]string `json:"files,omitempty"`
	Dir   string            `json:"dir,omitempty"`
}

// Artifact is one thing to download.
type Artifact struct {
	Name, Version string
	// URL is the download address, and Home is where the project publishes the artifact.
	URL, Home string
	// SHA256 is the hexadecimal digest of the download; "" if it is not in the table.
	SHA256 string
	// Checksum is the address of a file with that digest, "" if there is none.
	Checksum string
	content
}

// Parse parses a table.
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

// Of returns the artifacts that a node of the given architecture and Kubernetes version needs. Their addresses are on the mirror, unless it is empty.
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

// Kubernetes returns the Kubernetes versions that the table pins for an architecture, the latest first.
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

// Unpinned returns the finding for an artifact without a digest. remedy is what the user can do.
func (t Table) Unpinned(a Artifact, arch, remedy string) error {
	pinned := "no program for " + arch
	if list := t.Kubernetes(arch); len(list) > 0 {
		pinned = "the programs of Kubernetes " + strings.Join(list, ", ")
	}
	return finding.New(CodeUnpinned, fmt.Sprintf("No checksum of %s %s for %s is known", a.Name, a.Version, arch), "this ocadm has the checksums of "+pinned, remedy)
}

// Extract reads a download and calls put for every file in it that a node needs, with its path on the node.
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
		return fmt.Errorf("unpacking %s: it contains %d of the required files", a.URL, found)
	}
	return nil
}

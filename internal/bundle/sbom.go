// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"yunion.io/x/ocadm/internal/spdx"
)

// WriteSBOM writes a software bill of materials as SPDX JSON: every download and every image of every platform, but not what is inside images. The
// output depends only on the bundle and the time.
func (b *Bundle) WriteSBOM(w io.Writer, created time.Time) error {
	d := spdx.Document{
		Namespace: "https://yunion.io/x/ocadm/spdx/bundle/" + b.id.Hex, Tool: "ocadm-bundle", Created: created,
		Whole: spdx.Package{Name: filepath.Base(b.name), Version: b.contents.Info.KubernetesVersion},
	}
	seen := map[spdx.Package]bool{}
	add := func(p spdx.Package) {
		if !seen[p] {
			seen[p] = true
			d.Parts = append(d.Parts, p)
		}
	}
	for _, p := range b.platforms {
		for _, f := range p.contents.Files {
			add(filePackage(f))
		}
		for _, i := range p.contents.Images {
			part, err := imagePackage(i, p.contents.Info.Arch)
			if err != nil {
				return fmt.Errorf("describing the image %s: %w", i.Name, err)
			}
			add(part)
		}
	}
	return spdx.Write(w, d)
}

// filePackage returns the download that a file came from, or the file itself.
func filePackage(f FileInfo) spdx.Package {
	o := f.Origin
	if o == nil {
		return spdx.Package{Name: path.Base(f.Path), SHA256: strings.TrimPrefix(f.Digest, "sha256:")}
	}
	q := url.Values{"checksum": {"sha256:" + o.SHA256}}
	if o.URL != "" {
		q.Set("download_url", o.URL)
	}
	return spdx.Package{
		Name: o.Name, Version: o.Version, SHA256: o.SHA256, Home: o.URL,
		URL: fmt.Sprintf("pkg:generic/%s@%s?%s", url.PathEscape(o.Name), url.QueryEscape(o.Version), q.Encode()),
	}
}

// imagePackage has the form of https://github.com/package-url/purl-spec/blob/main/types-doc/oci-definition.md
func imagePackage(i ImageInfo, arch string) (spdx.Package, error) {
	ref, err := name.NewTag(i.Name)
	if err != nil {
		return spdx.Package{}, err
	}
	repository := ref.Context().Name()
	q := url.Values{"arch": {arch}, "repository_url": {repository}, "tag": {ref.TagStr()}}
	return spdx.Package{
		Name: i.Name, Version: ref.TagStr(),
		URL: fmt.Sprintf("pkg:oci/%s@%s?%s", strings.ToLower(path.Base(repository)), url.QueryEscape(i.Digest), q.Encode()),
	}, nil
}

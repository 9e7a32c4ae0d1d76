// SPDX-License-Identifier: Apache-2.0

package assemble

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/lab/cache"
)

// Downloads replace the projects' release pages in the lab.
type Downloads struct {
	// Files maps HOST/PATH, as in the addresses in the table of artifacts, to files of this host.
	Files map[string]string
	// digests maps the projects' own digests to those of the files.
	digests map[string]string
}

// Release writes to a directory what a node without a bundle downloads, built from the lab's own programs.
func Release(ctx context.Context, dir string, logf cache.Logf) (Downloads, error) {
	d := Downloads{map[string]string{}, map[string]string{}}
	table, err := artifacts.Parse(artifacts.Embedded)
	if err != nil {
		return d, err
	}
	files, err := nodeFiles(ctx, version.Kubernetes, logf)
	if err != nil {
		return d, err
	}
	sources := lists.Index(files, func(f file) (string, string) { return "/" + f.Path, f.Source })
	for _, a := range table.Of(version.Kubernetes, runtime.GOARCH, "") {
		file := sources[a.File]
		if a.File == "" {
			if file, err = archive(filepath.Join(dir, a.Name+".tar.gz"), a, sources); err != nil {
				return d, fmt.Errorf("packing %s: %w", a.Name, err)
			}
		}
		digest, err := fetch.Digest(file)
		if err != nil {
			return d, fmt.Errorf("reading %s: %w", a.Name, err)
		}
		d.Files[strings.TrimPrefix(a.URL, "https://")] = file
		d.digests[a.SHA256] = digest
	}
	return d, nil
}

// Pin writes a copy of ocadm that expects these downloads, by replacing the projects' digests in the program with those of the lab's files.
func (d Downloads) Pin(ocadm, to string) error {
	raw, err := os.ReadFile(ocadm)
	if err != nil {
		return fmt.Errorf("reading ocadm: %w", err)
	}
	for project, lab := range d.digests {
		if !bytes.Contains(raw, []byte(project)) {
			return fmt.Errorf("pinning the lab's downloads: %s does not hold the digest %s", ocadm, project)
		}
		raw = bytes.ReplaceAll(raw, []byte(project), []byte(lab))
	}
	return os.WriteFile(to, raw, 0o755) //nolint:gosec // a program
}

// archive packs the programs of an artifact in the same format as its project.
func archive(to string, a artifacts.Artifact, sources map[string]string) (_ string, err error) {
	out, err := os.Create(to)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	t := tar.NewWriter(z)
	names := map[string]string{}
	for name, target := range a.Files {
		names[name] = sources[target]
	}
	for target, source := range sources {
		if a.Dir != "" && path.Dir(target) == a.Dir {
			names[path.Base(target)] = source
		}
	}
	for name, source := range names {
		raw, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(raw))}); err != nil {
			return "", err
		}
		if _, err := t.Write(raw); err != nil {
			return "", err
		}
	}
	return to, errors.Join(t.Close(), z.Close())
}

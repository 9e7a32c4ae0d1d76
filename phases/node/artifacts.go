// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

//go:embed artifacts.yaml
var artifactTable []byte // tests put digests of their own in

// artifact is one thing to download: a program by itself (File), or an archive of which some files (Files) or all (Dir) are taken.
type artifact struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	// SHA256 is the digest of what URL gives, in hexadecimal digits, by architecture.
	SHA256 map[string]string `json:"sha256"`
	File   string            `json:"file,omitempty"`
	Files  map[string]string `json:"files,omitempty"`
	Dir    string            `json:"dir,omitempty"`
}

// artifacts are those of the table with their addresses filled in.
func artifacts(table []byte, arch, mirror string) ([]artifact, error) {
	var list []artifact
	if err := yaml.UnmarshalStrict(table, &list); err != nil {
		return nil, fmt.Errorf("reading the table of artifacts: %w", err)
	}
	for i := range list {
		a := &list[i]
		fill := strings.NewReplacer("{version}", strings.TrimPrefix(a.Version, "v"), "{arch}", arch)
		a.URL = mirrored(fill.Replace(a.URL), mirror)
	}
	return list, nil
}

func mirrored(url, mirror string) string {
	if mirror == "" {
		return url
	}
	return strings.TrimSuffix(mirror, "/") + "/" + strings.TrimPrefix(url, "https://")
}

// artifactsOf are those for this machine.
func artifactsOf(h *host.Host) ([]artifact, error) {
	return artifacts(artifactTable, h.Facts.Arch, h.Config.Node.Mirror)
}

func outstandingArtifacts(ctx context.Context, h *host.Host, has func(name string) bool) ([]piece, error) {
	list, err := artifactsOf(h)
	if err != nil {
		return nil, err
	}
	var out []piece
	for _, a := range list {
		if has(a.Name) && !a.present(ctx, h) {
			if len(a.SHA256[h.Facts.Arch]) != 2*sha256.Size {
				return nil, fmt.Errorf("downloading %s: the table of artifacts has no digest for %s", a.Name, h.Facts.Arch)
			}
			out = append(out, download{artifact: a, digest: a.SHA256[h.Facts.Arch]})
		}
	}
	return out, nil
}

// targets are the files that an artifact brings for sure.
func (a artifact) targets() []string {
	var out []string
	for _, t := range a.Files {
		out = append(out, t)
	}
	if a.Dir != "" {
		for _, p := range neededPlugins() {
			out = append(out, path.Join(a.Dir, p))
		}
	}
	if a.File != "" {
		out = append(out, a.File)
	}
	slices.Sort(out)
	return out
}

// present reports whether every file of the artifact is there, in this version as far as it was ocadm that downloaded it. What came from
// a bundle stays in the bundle's version, but for Kubernetes itself.
func (a artifact) present(ctx context.Context, h *host.Host) bool {
	e, installed := h.Ledger.Get(host.KindProgram, a.Name)
	bundled := installed && e.Detail == fromBundle
	current := bundled || installed && e.Detail == a.Version
	anyVersion := bundled && a.Name != kubelet && a.Name != kubectl
	for _, t := range a.targets() {
		if skipFile(h, t) {
			continue
		}
		if !current || !h.Files.Exists(t) {
			return false
		}
		if mute(t) && !whole(h, t, e.Digests[t]) {
			return false
		}
		if !anyVersion && !mute(t) && host.ProgramVersion(ctx, h.Exec, t) != a.Version {
			return false
		}
	}
	return true
}

// mute reports whether a program does not print its version, by which a damaged one would be noticed.
func mute(file string) bool { return path.Dir(file) == cniDir || path.Base(file) == shim }

// whole reports whether a file is what was installed: by its digest, or, where an earlier release has not noted one, by being a program
// with all its sections. A power cut can leave a file empty or cut off.
func whole(h *host.Host, name, digest string) bool {
	if digest != "" {
		got, err := h.Files.Digest(name)
		return err == nil && got == digest
	}
	f, err := elf.Open(h.Files.Path(name))
	if err != nil {
		return false
	}
	_ = f.Close() // it was only read
	return true
}

// download is an artifact that has yet to be installed.
type download struct {
	artifact
	digest string
}

func (d download) plan() string {
	return fmt.Sprintf("download %s and install %s", d.URL, strings.Join(d.targets(), ", "))
}
func (d download) size() int64 { return 0 }

func (d download) install(ctx context.Context, h *host.Host, r workflow.Reporter, p fetch.Progress) error {
	r.Info("downloading %s", d.URL)
	file, err := fetchFile(ctx, fetch.Fetcher{}, h.Files, d.URL, d.digest, p)
	if err != nil {
		return err
	}
	in, err := os.Open(h.Files.Path(file))
	if err != nil {
		return fmt.Errorf("installing %s: %w", d.Name, err)
	}
	digests := map[string]string{}
	if err := errors.Join(d.unpack(h, r, in, digests), in.Close()); err != nil {
		return fmt.Errorf("installing %s: %w", d.Name, err)
	}
	if err := d.note(h, d.Version, digests); err != nil {
		return err
	}
	return h.Files.Remove(file)
}

// note notes in the ledger that the artifact was installed, where from (its version, or fromBundle), and the digests of its files.
func (a artifact) note(h *host.Host, detail string, digests map[string]string) error {
	return h.Ledger.Replace(host.Entry{Kind: host.KindProgram, Name: a.Name, Op: host.Created, Detail: detail, Digests: digests})
}

func (d download) unpack(h *host.Host, r workflow.Reporter, in io.Reader, digests map[string]string) error {
	if d.File != "" {
		return d.put(h, r, d.File, in, digests)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	found := 0
	for t := tar.NewReader(z); ; {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(e.Name)
		to := d.Files[name]
		if d.Dir != "" && path.Dir(name) == "." && e.Mode&0o111 != 0 {
			to = path.Join(d.Dir, name)
		}
		if to == "" || e.Typeflag != tar.TypeReg {
			continue
		}
		found++
		if err := d.put(h, r, to, t, digests); err != nil {
			return err
		}
	}
	if found == 0 || found < len(d.Files) {
		return fmt.Errorf("unpacking %s: it holds %d of the files wanted", d.URL, found)
	}
	return nil
}

func (d download) put(h *host.Host, r workflow.Reporter, name string, in io.Reader, digests map[string]string) error {
	if skipFile(h, name) {
		return nil
	}
	sum := sha256.New()
	if err := h.Files.WriteFrom(name, io.TeeReader(in, sum), programMode); err != nil {
		return err
	}
	digests[name] = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	r.Changed("installed %s %s", name, d.Version)
	return nil
}

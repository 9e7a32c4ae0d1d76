// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

var artifactTable = artifacts.Embedded // tests use their own digests

type artifact struct{ artifacts.Artifact }

func artifactsOf(h *host.Host) (artifacts.Table, []artifact, error) {
	table, err := artifacts.Parse(artifactTable)
	return table, lists.Map(table.Of(kubernetesVersion(h), h.Facts.Arch, h.Config.Node.Mirror), func(a artifacts.Artifact) artifact { return artifact{a} }), err
}

func outstandingArtifacts(ctx context.Context, h *host.Host, has func(name string) bool) ([]piece, error) {
	table, list, err := artifactsOf(h)
	if err != nil {
		return nil, err
	}
	var out []piece
	for _, a := range list {
		if (has(a.Name) || a.SHA256 == "") && !a.present(ctx, h) {
			if a.SHA256 == "" { // even in the other set: then install nothing
				return nil, table.Unpinned(a.Artifact, h.Facts.Arch,
					"choose one of them with --kubernetes-version, or create a bundle with --allow-unpinned on a connected machine: ocadm bundle create --help")
			}
			out = append(out, piece{plan: fmt.Sprintf("download %s and install %s", a.URL, strings.Join(a.targets(), ", ")), install: a.install})
		}
	}
	return out, nil
}

// Downloads returns a finding if a program without a known checksum would have to be downloaded.
func Downloads(ctx context.Context, h *host.Host) error {
	_, err := outstandingArtifacts(ctx, h, func(string) bool { return true })
	return err
}

// targets returns the files that an artifact always contains.
func (a artifact) targets() []string {
	out := slices.Collect(maps.Values(a.Files))
	if a.Dir != "" {
		out = append(out, lists.Map(neededPlugins(), func(p string) string { return path.Join(a.Dir, p) })...)
	}
	if a.File != "" {
		out = append(out, a.File)
	}
	slices.Sort(out)
	return out
}

// present reports whether all files of the artifact exist, in this version if ocadm downloaded them. Files from a bundle may have the bundle's version,
// except for Kubernetes itself.
func (a artifact) present(ctx context.Context, h *host.Host) bool {
	e, installed := h.Ledger.Get(host.KindProgram, a.Name)
	bundled := installed && e.Detail == fromBundle
	current := bundled || installed && e.Detail == a.Version
	anyVersion := bundled && a.Name != kubelet && a.Name != kubectl
	for _, t := range a.targets() {
		if skipFile(h, t) {
			continue
		}
		if !current || !h.Files.Exists(t) || mute(t) && !whole(h, t, e.Digests[t]) {
			return false
		}
		if !anyVersion && !mute(t) && host.ProgramVersion(ctx, h.Exec, t) != a.Version {
			return false
		}
	}
	return true
}

// mute reports whether a program does not print a version, so that running it would not reveal damage.
func mute(file string) bool { return path.Dir(file) == cniDir || path.Base(file) == shim }

// whole reports whether a file is undamaged: it has its digest or, if an earlier release recorded none, it is an executable with all its sections. A power
// cut can leave a file empty or truncated.
func whole(h *host.Host, name, digest string) bool {
	if digest != "" {
		got, err := h.Files.Digest(name)
		return err == nil && got == digest
	}
	f, err := elf.Open(h.Files.Path(name))
	if err != nil {
		return false
	}
	_ = f.Close() // only read
	return true
}

func (a artifact) install(ctx context.Context, h *host.Host, r workflow.Reporter, p fetch.Progress) error {
	r.Info("downloading %s", a.URL)
	file, err := fetchFile(ctx, fetch.Fetcher{}, h.Files, a.URL, a.SHA256, p)
	if err != nil {
		return err
	}
	in, err := os.Open(h.Files.Path(file))
	if err != nil {
		return fmt.Errorf("installing %s: %w", a.Name, err)
	}
	digests := map[string]string{}
	err = a.Extract(in, func(to string, in io.Reader) error { return a.put(h, r, to, in, digests) })
	if err := errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("installing %s: %w", a.Name, err)
	}
	if err := a.note(h, a.Version, digests); err != nil {
		return err
	}
	return h.Files.Remove(file)
}

// note records in the ledger that the artifact was installed, its source (its version, or fromBundle), and the digests of its files.
func (a artifact) note(h *host.Host, detail string, digests map[string]string) error {
	return h.Ledger.Replace(host.Entry{Kind: host.KindProgram, Name: a.Name, Op: host.Created, Detail: detail, Digests: digests})
}

func (a artifact) put(h *host.Host, r workflow.Reporter, name string, in io.Reader, digests map[string]string) error {
	if skipFile(h, name) {
		return nil
	}
	sum := sha256.New()
	if err := h.Files.WriteFrom(name, io.TeeReader(in, sum), programMode); err != nil {
		return err
	}
	digests[name] = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	r.Changed("installed %s %s", name, a.Version)
	return nil
}

// downloadDir holds complete downloads until they are installed, and partial ones to resume.
const downloadDir = host.StateDir + "/downloads"

// fetchFile downloads a file whose SHA-256 is want, in hexadecimal, and returns its name on the machine. The name contains the digest, so a resumed part
// never belongs to another version.
func fetchFile(ctx context.Context, f fetch.Fetcher, files host.Files, url, want string, p fetch.Progress) (string, error) {
	if err := files.Mkdir(downloadDir, 0o700); err != nil {
		return "", err
	}
	file := path.Join(downloadDir, want[:16]+"-"+path.Base(url))
	err := f.Fetch(ctx, url, files.Path(file), want, p)
	var other *fetch.DigestError
	switch {
	case err == nil:
		return file, nil
	case errors.As(err, &other):
		return "", finding.New(CodeChecksum, "The download of "+url+" has a wrong checksum",
			"it was changed or damaged in transit, or the mirror has a different file",
			"run the same command again, name another server with --mirror, or use --bundle").With("want sha256:"+other.Want, "got sha256:"+other.Got).Wrap(err)
	default:
		return "", finding.Errorf(CodeDownload, url+" cannot be downloaded",
			"make the address reachable from this machine, name a mirror with --mirror, or install from a bundle with --bundle", "%w", err)
	}
}

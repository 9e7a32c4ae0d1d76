// SPDX-License-Identifier: Apache-2.0

// Package collect downloads the contents of a bundle, a node's programs and images, and has package bundle write it. It keeps downloads until the
// bundle is complete, so that an interrupted run continues where it stopped.
package collect

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
)

// Options define the contents of a bundle and where they come from.
type Options struct {
	// Out is the bundle's file. Downloads are kept next to it, in Out + ".partial".
	Out        string
	Kubernetes string
	Archs      []string
	// Images are full names: "registry.k8s.io/pause:3.10.2".
	Images []string
	// Versions holds the versions of the software in the images, by name. Those of the programs are added.
	Versions map[string]string
	Table    artifacts.Table
	// Programs holds ocadm for architectures other than that of the first machine of the cluster.
	Programs map[string]Program
	// AllowUnpinned accepts the server's digest for a program that is not in the table.
	AllowUnpinned bool
	// Mirror replaces the programs' release pages, Mirrors replaces registries.
	Mirror  string
	Mirrors Mirrors
	// Insecure allows plain HTTP for all registries.
	Insecure bool
	// Keychain holds registry credentials.
	Keychain  authn.Keychain
	Transport http.RoundTripper
	// Fetcher sets retries and timeouts; its client is not used.
	Fetcher fetch.Fetcher
	// Since and Key may be nil; see bundle.Spec.
	Since *bundle.Bundle
	Key   ed25519.PrivateKey
	// Sink receives the events of three phases: look-up, download and write.
	Sink workflow.Sink
}

// Program is a build of ocadm: its file, version and hexadecimal SHA-256.
type Program struct{ File, Version, SHA256 string }

// programPath is the path of ocadm in a bundle.
const programPath = "/usr/local/bin/ocadm"

func (p Program) source() bundle.FileSource {
	return bundle.FileSource{
		Path: programPath, Mode: 0o755, Origin: &bundle.Origin{Name: "ocadm", Version: p.Version, SHA256: p.SHA256},
		Open: func() (io.ReadCloser, error) { return os.Open(p.File) },
	}
}

const downloads = 6

// Result describes the outcome of a run.
type Result struct {
	// Unchanged reports that the file already existed with the same content.
	Unchanged bool
	// Downloaded is the number of bytes downloaded.
	Downloaded int64
}

// plan is the planned content of a bundle.
type plan struct {
	programs map[string][]artifacts.Artifact // by architecture
	images   []found
	from     *registries
}

// Create makes the bundle. It changes nothing if the file already has the same content.
func Create(ctx context.Context, o Options) (Result, error) {
	if st, err := os.Stat(o.Out); strings.HasSuffix(o.Out, "/") || err == nil && !st.Mode().IsRegular() {
		return Result{}, notWritten(fmt.Errorf("%s is a directory, a pipe or a device", o.Out))
	}
	p, err := o.lookUp(ctx)
	if err != nil {
		return Result{}, err
	}
	same, err := o.upToDate(ctx, p)
	if err != nil {
		return Result{}, err
	}
	dir := o.Out + ".partial"
	if _, err := os.Stat(dir); same && errors.Is(err, fs.ErrNotExist) {
		return Result{Unchanged: true}, nil
	}
	w, err := openWork(dir)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	if same { // an earlier run was killed between its last two steps
		return Result{Unchanged: true}, w.remove()
	}
	size, err := o.download(ctx, w, p)
	if err != nil {
		return Result{}, err
	}
	if err := o.write(ctx, w, p); err != nil {
		return Result{}, err
	}
	return Result{Downloaded: size}, w.remove()
}

// client returns the fetcher for servers other than registries.
func (o Options) client() fetch.Fetcher {
	f := o.Fetcher
	f.Client = &http.Client{Transport: transport.NewUserAgent(o.Transport, "ocadm")}
	return f
}

// lookUp locates all contents. It downloads only small documents.
func (o Options) lookUp(ctx context.Context) (plan, error) {
	s := o.step("look-up", "look up the images in their registries")
	p := plan{programs: map[string][]artifacts.Artifact{}}
	for _, arch := range o.Archs {
		list := o.Table.Of(o.Kubernetes, arch, o.Mirror)
		for i, a := range list {
			if a.SHA256 != "" {
				continue
			}
			digest, err := o.unpinned(ctx, a, arch)
			if err != nil {
				return p, s.end(err)
			}
			list[i].SHA256 = digest
		}
		p.programs[arch] = list
	}
	fetcher := o.Fetcher
	fetcher.Again = s.again
	r := &registries{
		fetcher: fetcher, transport: transport.NewUserAgent(o.Transport, "ocadm"), keychain: o.Keychain, mirrors: o.Mirrors, insecure: o.Insecure,
		sessions: map[place]*session{}, down: map[string]error{},
	}
	p.from = r
	s.more(int64(len(o.Images)))
	var err error
	p.images, err = r.find(ctx, o.Images, o.Archs, func(n int) { s.done(int64(n)) })
	return p, s.end(err)
}

// unpinned returns the digest of a program that is not in the table.
func (o Options) unpinned(ctx context.Context, a artifacts.Artifact, arch string) (string, error) {
	if !o.AllowUnpinned || a.Checksum == "" {
		fix := "give one of these versions with --kubernetes-version, or add --allow-unpinned to trust the checksum that the server provides"
		if a.Checksum == "" {
			fix = "remove " + arch + " from --arch"
		}
		return "", o.Table.Unpinned(a, arch, fix)
	}
	raw, err := o.client().Document(ctx, a.Checksum, maxDocument)
	if err != nil {
		return "", notDownloaded(a.Checksum, hostOf(a.Checksum), err)
	}
	digest, _, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
	if !artifacts.IsDigest(digest) {
		return "", notDownloaded(a.Checksum, hostOf(a.Checksum), errors.New("it contains no SHA-256"))
	}
	return digest, nil
}

// info returns the description of the bundle for an architecture.
func (o Options) info(p plan, arch string) bundle.Info {
	i := bundle.Info{OS: "linux", Arch: arch, KubernetesVersion: o.Kubernetes, Versions: maps.Clone(o.Versions)}
	note := func(name, version string) {
		if i.Versions == nil {
			i.Versions = map[string]string{}
		}
		i.Versions[name] = version
	}
	for _, a := range p.programs[arch] {
		if a.Version != o.Kubernetes {
			note(a.Name, a.Version)
		}
	}
	if program, ok := o.Programs[arch]; ok {
		note("ocadm", program.Version)
	}
	return i
}

// upToDate reports whether the file exists with the same content.
func (o Options) upToDate(ctx context.Context, p plan) (bool, error) {
	b, err := bundle.Open(ctx, o.Out)
	if err != nil {
		return false, context.Cause(ctx) // it does not exist, or will be replaced
	}
	defer func() { _ = b.Close() }() // opened only for reading
	if !o.holds(b, p) {
		return false, nil
	}
	err = b.Verify(ctx, nil) // whoever found a damaged blob runs the same command again
	return err == nil, context.Cause(ctx)
}

func (o Options) holds(b *bundle.Bundle, p plan) bool {
	since := b.Since() == nil
	if o.Since != nil {
		since = b.Since() != nil && b.Since().ID == o.Since.ID()
	}
	signed := !b.Signed()
	if o.Key != nil {
		signed = b.CheckSignature(o.Key.Public().(ed25519.PublicKey)) == nil
	}
	if !since || !signed || len(b.Platforms()) != len(o.Archs) {
		return false
	}
	return !slices.ContainsFunc(o.Archs, func(arch string) bool {
		view, err := b.On(arch)
		return err != nil || !sameContent(view.Contents(), o.info(p, arch), p, arch, o.Programs[arch].SHA256)
	})
}

func sameContent(c bundle.Contents, info bundle.Info, p plan, arch, program string) bool {
	has := map[string]bool{}
	for _, f := range c.Files {
		if f.Origin != nil {
			has[f.Origin.SHA256] = true
		}
	}
	want := lists.Set(p.programs[arch], func(a artifacts.Artifact) string { return a.SHA256 })
	if program != "" {
		want[program] = true
	}
	images := lists.Index(c.Images, func(i bundle.ImageInfo) (string, string) { return i.Name, i.Digest })
	wanted := map[string]string{}
	for _, i := range p.images {
		if i.arch == arch {
			wanted[i.name] = i.digest.String()
		}
	}
	return maps.Equal(has, want) && maps.Equal(images, wanted) && c.Info.KubernetesVersion == info.KubernetesVersion &&
		maps.Equal(c.Info.Versions, info.Versions)
}

func (o Options) write(ctx context.Context, w *work, p plan) error {
	s := o.step("write", "write "+o.Out)
	spec := bundle.Spec{Since: o.Since, Key: o.Key, Dir: w.staging()}
	for _, arch := range o.Archs {
		platform := bundle.Platform{Info: o.info(p, arch)}
		for _, a := range p.programs[arch] {
			files, err := o.files(w, a, arch)
			if err != nil {
				return s.end(notDownloaded(a.URL, hostOf(a.URL), err))
			}
			platform.Files = append(platform.Files, files...)
		}
		if program, ok := o.Programs[arch]; ok {
			platform.Files = append(platform.Files, program.source())
		}
		for _, f := range p.images {
			if f.arch != arch {
				continue
			}
			img, err := local{f, w.blob}.image()
			if err != nil {
				return s.end(err)
			}
			platform.Images = append(platform.Images, bundle.ImageSource{Name: f.name, Image: img})
		}
		spec.Platforms = append(spec.Platforms, platform)
	}
	if err := bundle.Build(ctx, o.Out, spec); err != nil {
		if isLocal(err) {
			err = notWritten(err)
		}
		return s.end(err)
	}
	return s.end(nil)
}

// old returns the files of an artifact from the bundle that the new one continues.
func (o Options) old(a artifacts.Artifact, arch string) []bundle.FileSource {
	if o.Since == nil {
		return nil
	}
	view, err := o.Since.On(arch)
	if err != nil {
		return nil
	}
	return view.Reuse(a.SHA256)
}

func (o Options) files(w *work, a artifacts.Artifact, arch string) ([]bundle.FileSource, error) {
	if old := o.old(a, arch); len(old) > 0 {
		return old, nil
	}
	return w.unpack(a)
}

func hostOf(address string) string {
	req, err := http.NewRequest(http.MethodGet, address, http.NoBody) //nolint:noctx // only its URL is used
	if err != nil {
		return address
	}
	return req.URL.Host
}

func sum(b []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

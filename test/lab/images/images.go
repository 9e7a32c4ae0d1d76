// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/lab/debian"
)

// Options configure the lab's images.
type Options struct {
	// CloudVersion is the tag of the cloud's images, KubernetesVersion that of Kubernetes' images (if empty, package assemble uses that of this ocadm).
	CloudVersion, KubernetesVersion string
	// More are additional tags of the cloud's images.
	More []string
	// Fakecloud is the stand-in, a static program (if empty, package assemble builds it from this repository).
	Fakecloud string
	// ServiceImages is a directory of image archives (docker save) that replace the lab's own images.
	ServiceImages string
	Logf          cache.Logf
}

// Named is an image and the name by which pods refer to it.
type Named struct {
	Name  string
	Image v1.Image
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// All makes every image of the lab, sorted by name.
func All(ctx context.Context, o Options) ([]Named, error) {
	b := &builder{logf: o.Logf, kubernetes: o.KubernetesVersion, bases: map[string]v1.Layer{}}
	made := map[string]v1.Image{}
	wanted := upstream(o.KubernetesVersion)
	for _, version := range append([]string{o.CloudVersion}, o.More...) {
		services, err := cloud(version, o.Fakecloud)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, services...)
	}
	for _, i := range wanted {
		img, err := b.build(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("making the image %s: %w", i.Name, err)
		}
		made[i.Name] = img
	}
	if err := addArchives(o, made); err != nil {
		return nil, err
	}
	return lists.Map(slices.Sorted(maps.Keys(made)), func(name string) Named { return Named{name, made[name]} }), nil
}

// builder makes each base layer once.
type builder struct {
	logf       cache.Logf
	kubernetes string
	bases      map[string]v1.Layer
}

func (b *builder) build(ctx context.Context, i image) (v1.Image, error) {
	var layers []v1.Layer
	for _, name := range append([]string{"skeleton"}, i.Base...) {
		l, err := b.base(ctx, name)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	var entries []entry
	for name, path := range i.Programs {
		p, err := binaries.GetFor(ctx, name, b.kubernetes, b.logf)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{Path: path, Mode: executable, Source: p.Path})
	}
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.Path, y.Path) })
	// Each program is a separate layer, which images share. The small rest is another layer.
	var rest []entry
	for _, e := range append(entries, i.Entries...) {
		if e.Source == "" {
			rest = append(rest, e)
			continue
		}
		l, err := entriesLayer(ctx, filepath.Base(e.Path), b.logf, []entry{e})
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	if len(rest) > 0 {
		l, err := entriesLayer(ctx, "rest", b.logf, rest)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return assemble(i, layers)
}

func assemble(i image, layers []v1.Layer) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created, config.Author = v1.Time{Time: epoch}, "ocadm lab"
	config.History = nil
	config.Config = v1.Config{Entrypoint: i.Entrypoint, Cmd: i.Cmd, User: i.User, Env: append([]string{searchPath}, i.Env...), WorkingDir: "/"}
	return mutate.ConfigFile(img, config)
}

func (b *builder) base(ctx context.Context, name string) (v1.Layer, error) {
	if l, ok := b.bases[name]; ok {
		return l, nil
	}
	var l v1.Layer
	var err error
	switch tree, ok := trees()[name]; {
	case ok:
		var root string
		if root, err = debian.Build(ctx, tree, b.logf); err == nil {
			l, err = treeLayer(ctx, name, filepath.Base(filepath.Dir(root)), b.logf, root)
		}
	case name == "skeleton":
		l, err = skeleton(ctx, b.logf)
	case name == "busybox":
		l, err = busybox(ctx, b.logf)
	default:
		err = fmt.Errorf("finding the layer %q: no such layer", name)
	}
	b.bases[name] = l
	return l, err
}

// skeleton returns the layer with what all programs expect: users, a directory for temporary files, CA certificates.
func skeleton(ctx context.Context, logf cache.Logf) (v1.Layer, error) {
	dir, err := debian.Unpack(ctx, logf, "ca-certificates")
	if err != nil {
		return nil, err
	}
	authorities, err := filepath.Glob(filepath.Join(dir, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return nil, fmt.Errorf("listing the certificate authorities: %w", err)
	}
	var bundle strings.Builder
	for _, path := range authorities {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate authority: %w", err)
		}
		bundle.WriteString(strings.TrimRight(string(b), "\n") + "\n")
	}
	return entriesLayer(ctx, "skeleton", logf, []entry{
		{Path: "etc/group", Mode: 0o644, Text: group},
		{Path: "etc/nsswitch.conf", Mode: 0o644, Text: "passwd: files\ngroup: files\nhosts: files dns\n"},
		{Path: "etc/passwd", Mode: 0o644, Text: passwd},
		{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Text: bundle.String()},
		{Path: "tmp", Mode: 0o1777},
	})
}

// busybox returns a layer with a shell and its tools in one static program.
func busybox(ctx context.Context, logf cache.Logf) (v1.Layer, error) {
	dir, err := debian.Unpack(ctx, logf, "busybox-static")
	if err != nil {
		return nil, err
	}
	programs, err := filepath.Glob(filepath.Join(dir, "*bin/busybox"))
	if more, moreErr := filepath.Glob(filepath.Join(dir, "usr/bin/busybox")); moreErr == nil {
		programs = append(programs, more...)
	}
	if err != nil || len(programs) == 0 {
		return nil, errors.Join(errors.New("finding busybox in its Debian package: not there"), err)
	}
	r, err := (exec.Machine{}).Run(ctx, exec.Command{Path: programs[0], Args: []string{"--list"}})
	if err != nil {
		return nil, fmt.Errorf("listing busybox's programs: %w", err)
	}
	entries := []entry{{Path: "bin/busybox", Mode: executable, Source: programs[0]}}
	for _, applet := range strings.Fields(r.Stdout) {
		if applet != "busybox" {
			entries = append(entries, entry{Path: "bin/" + applet, Link: "busybox"})
		}
	}
	return entriesLayer(ctx, "busybox", logf, entries)
}

// addArchives adds the images of the archives, which replace images of the same name.
func addArchives(o Options, made map[string]v1.Image) error {
	if o.ServiceImages == "" {
		return nil
	}
	archives, err := Archives(o.ServiceImages)
	if err != nil {
		return err
	}
	for _, path := range archives {
		open := inflate(func() (io.ReadCloser, error) { return os.Open(path) })
		manifest, err := tarball.LoadManifest(open)
		if err != nil {
			return fmt.Errorf("reading the image archive %s: %w", path, err)
		}
		for _, descriptor := range manifest {
			for _, ref := range descriptor.RepoTags {
				name, img, err := archived(open, ref)
				if err != nil {
					return fmt.Errorf("reading %s from the image archive %s: %w", ref, path, err)
				}
				verb := "adds"
				if made[name] != nil {
					verb = "replaces the lab's"
				}
				o.Logf("%s %s %s", filepath.Base(path), verb, name)
				made[name] = img
			}
		}
	}
	return nil
}

// Archives lists the image archives in a directory.
func Archives(dir string) ([]string, error) {
	var list []string
	for _, pattern := range []string{"*.tar", "*.tar.gz", "*.tgz"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", dir, err)
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("reading the service images in %s: no .tar, .tar.gz or .tgz there", dir)
	}
	slices.Sort(list)
	return list, nil
}

// archived reads one image of an archive. It returns the image and its name, including the registry.
func archived(open tarball.Opener, ref string) (string, v1.Image, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", nil, err
	}
	img, err := tarball.Image(open, &tag)
	return strings.Replace(tag.Name(), name.DefaultRegistry+"/", "docker.io/", 1), img, err
}

// inflate opens an archive, which may be compressed with gzip.
func inflate(open tarball.Opener) tarball.Opener {
	return func() (io.ReadCloser, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(f)
		if magic, _ := r.Peek(2); string(magic) != "\x1f\x8b" {
			return stream{r, f}, nil
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return stream{z, f}, nil
	}
}

type stream struct {
	io.Reader
	io.Closer
}

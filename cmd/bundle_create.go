// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/collect"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/phases/config"
)

// bundleFlags are the flags of "bundle create" that are not settings.
type bundleFlags struct {
	out, since, key, caFile string
	archs, components       []string
	programs                []string
	unpinned, insecure      bool
}

func (b *bundleFlags) add(fs *pflag.FlagSet) {
	fs.StringVarP(&b.out, "output", "o", "ocadm.bundle", "file of the bundle")
	fs.StringSliceVar(&b.archs, "arch", nil, "architectures of the nodes: amd64, arm64 or both (default: this machine's)")
	fs.StringSliceVar(&b.programs, "program", nil, "files with this version of ocadm for the architectures in --arch other than the first node's")
	fs.StringSliceVar(&b.components, "components", nil, "additional components of the cloud whose images to include, such as s3gateway")
	fs.StringVar(&b.since, "since", "", "bundle that the nodes already have; the new one contains only what is missing there")
	fs.StringVar(&b.key, "sign-key", "", "file with the Ed25519 private key, in PEM, to sign the bundle with")
	fs.StringVar(&b.caFile, "ca-file", "", "file with certificates, in PEM, of additional authorities to trust for downloads")
	fs.BoolVar(&b.unpinned, "allow-unpinned", false, "trust the server's checksum for a version whose checksum is not built into this ocadm")
	fs.BoolVar(&b.insecure, "insecure", false, "allow plain HTTP, and HTTPS with an unknown certificate")
}

// newBundleCreate receives the table of artifacts.
func newBundleCreate(a *app, table []byte) *cobra.Command {
	var b bundleFlags
	var file string
	c := &cobra.Command{
		Use: "create", Short: "Download programs and images into a bundle",
		Long: "Downloads what nodes need into one file, on any machine with internet access: the programs of a node, the images of Kubernetes and the\n" +
			"addons and, with --onecloud-version, those of the cloud. It needs neither root nor a container runtime. Give it the settings, or the\n" +
			"--config, that you will give init.\n\n" +
			"ocadm compares programs with built-in checksums. Images get the digests that their registries have now. The credentials of registries\n" +
			"come from --registry-config or ~/.docker/config.json, proxies from flags or HTTPS_PROXY and NO_PROXY. Downloads are kept in FILE.partial\n" +
			"until the bundle is complete. After a failure, run the command again: it continues. FILE.spdx.json is the bill of materials.",
		Example: `  # everything for a cloud
  ocadm bundle create --onecloud-version v4.0.3 -o ocadm.bundle

  # for nodes of two architectures, with the program for the other one, signed
  ocadm bundle create --onecloud-version v4.0.3 --arch amd64,arm64 --program ocadm-arm64 --sign-key key.pem -o ocadm.bundle

  # an update for a site that has old.bundle
  ocadm bundle create --onecloud-version v4.0.4 --since old.bundle -o new.bundle

  # through mirrors
  ocadm bundle create --mirror https://mirror.example.org/files --registry-mirror docker.io=https://mirror.example.org`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.loadSettings(c, config.ForInit, file)
			if err != nil {
				return err
			}
			return a.createBundle(c, cfg, b, table)
		},
	}
	addSettings(c.Flags(), config.ForInit)
	hideAllBut(c.Flags(), "image-repository", "kubernetes-image-repository", "onecloud-version", "operator-version", "cni", "storage", "ingress",
		"mysql-host", "edition", "product-version", "kubernetes-version", "mirror", "registry-mirror", "registry-config", "http-proxy", "https-proxy",
		"no-proxy")
	c.Flags().Lookup("bundle").Hidden = true
	b.add(c.Flags())
	completeArch(c)
	addConfig(c.Flags(), &file)
	return c
}

func (a *app) createBundle(c *cobra.Command, cfg *config.Config, b bundleFlags, table []byte) (err error) {
	if err := useProxies(cfg); err != nil {
		return err
	}
	o, err := b.options(c, cfg, table)
	if err != nil {
		return err
	}
	if b.since != "" {
		if o.Since, err = bundle.Open(c.Context(), b.since); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Since.Close()) }()
		if !same(b.since, filepath.Join(filepath.Dir(b.out), filepath.Base(b.since))) {
			return misused("--since and --output are in different directories", "move or link the earlier bundle to "+filepath.Dir(b.out)+": nodes need both in one directory, too")
		}
	}
	s := a.story()
	o.Sink = s
	res, err := collect.Create(c.Context(), o)
	s.Close()
	if err != nil {
		return err
	}
	return a.reportBundle(c.Context(), o, res)
}

// options returns the options without what a run opens.
func (b bundleFlags) options(c *cobra.Command, cfg *config.Config, table []byte) (o collect.Options, err error) {
	if same(b.since, b.out) {
		return o, misused("--since and --output name the same file", "give --output another file: both are needed on the nodes")
	}
	if !c.Flags().Changed("arch") {
		b.archs = []string{runtime.GOARCH}
	}
	o = collect.Options{
		Out: b.out, Kubernetes: cfg.Cluster.KubernetesVersion, Archs: slices.Compact(slices.Sorted(slices.Values(b.archs))),
		AllowUnpinned: b.unpinned, Mirror: cfg.Node.Mirror, Insecure: b.insecure, Versions: map[string]string{},
	}
	if len(o.Archs) == 0 {
		return o, misused("--arch names no architecture", "for example --arch amd64,arm64")
	}
	if o.Programs, err = b.programsOf(o.Archs); err != nil {
		return o, err
	}
	if o.Table, err = artifacts.Parse(table); err != nil {
		return o, err
	}
	if o.Key, err = b.signingKey(); err != nil {
		return o, err
	}
	if o.Transport, err = b.transport(); err != nil {
		return o, err
	}
	if cfg.Cloud.Version != "" {
		o.Versions["cloud"] = cfg.Cloud.Version
	}
	if o.Images, err = bundleImages(cfg, b.components); err != nil {
		return o, err
	}
	return o, fromRegistries(&o, cfg)
}

func (b bundleFlags) programsOf(archs []string) (map[string]collect.Program, error) {
	out := map[string]collect.Program{}
	for _, file := range b.programs {
		arch, digest, err := ownimage.Inspect(file, version.Version)
		switch {
		case err != nil:
			return nil, misused("--program "+file+": "+err.Error(), "give ocadm "+version.Version+" for another architecture, from its release")
		case !slices.Contains(archs, arch):
			return nil, misused("--program "+file+" is for "+arch, "add that architecture: --arch "+strings.Join(append(archs, arch), ","))
		}
		out[arch] = collect.Program{File: file, Version: version.Version, SHA256: strings.TrimPrefix(digest, "sha256:")}
	}
	return out, nil
}

// fromRegistries sets how to access registries. The configuration is valid.
func fromRegistries(o *collect.Options, cfg *config.Config) error {
	o.Mirrors = collect.Mirrors{}
	for _, text := range cfg.Node.RegistryMirrors {
		of, address, err := config.RegistryMirror(text)
		if err != nil {
			return err
		}
		o.Mirrors[of] = append(o.Mirrors[of], address)
	}
	if o.Keychain = authn.DefaultKeychain; cfg.Node.RegistryAuth == "" {
		return nil
	}
	credentials, err := registry.ParseCredentials([]byte(cfg.Node.RegistryAuth))
	o.Keychain = credentials
	return err
}

// bundleImages returns the images that init needs with a configuration, and those of additional components.
func bundleImages(cfg *config.Config, components []string) ([]string, error) {
	list, err := allImages(cfg)
	if err != nil {
		return nil, err
	}
	more, err := componentImages(cfg, components)
	return lists.Distinct(append(list, more...)), err
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return a != "" && (filepath.Clean(a) == filepath.Clean(b) || err == nil && err2 == nil && os.SameFile(x, y))
}

func (b bundleFlags) signingKey() (ed25519.PrivateKey, error) {
	if b.key == "" {
		return nil, nil
	}
	text, err := os.ReadFile(b.key)
	if err == nil {
		var key ed25519.PrivateKey
		if key, err = bundle.SigningKey(text); err == nil {
			return key, nil
		}
	}
	return nil, badKey("--sign-key", "openssl genpkey -algorithm ed25519 -out "+b.key, err)
}

func badKey(flag, remedy string, err error) error {
	return finding.Errorf("OCA-2327", "The key of "+flag+" cannot be used", remedy, "%w", err)
}

func (b bundleFlags) transport() (*http.Transport, error) {
	var authorities []byte
	var err error
	if b.caFile != "" {
		authorities, err = os.ReadFile(b.caFile)
	}
	var t *http.Transport
	if err == nil {
		t, err = collect.Transport(authorities, b.insecure)
	}
	if err != nil {
		return nil, misused("--ca-file: "+err.Error(), "give a file with certificates in PEM")
	}
	return t, nil
}

// componentImages returns the images of cloud components, whether or not they are enabled.
func componentImages(c *config.Config, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if c.Cloud.Version == "" {
		return nil, misused("--components needs --onecloud-version", "for example --onecloud-version v4.0.3")
	}
	text, err := manifestOf(c)
	if err != nil {
		return nil, err
	}
	resolved, err := resolveCloud(text)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		r, ok := resolved.Components[name]
		if !ok {
			remedy := "ocadm operator components"
			if guess, ok := nearest.To(name, slices.Collect(maps.Keys(resolved.Components))); ok {
				remedy = "--components " + guess
			}
			return nil, misused(fmt.Sprintf("--components: there is no component %q", name), remedy)
		}
		if r.Image.Reference == component.OwnImage {
			continue // every bundle has it
		}
		out = append(append(out, r.FullImage), slices.Collect(maps.Values(r.ContainerImages))...)
	}
	return slices.DeleteFunc(out, func(i string) bool { return i == "" }), nil
}

// reportBundle writes the bill of materials, and prints a summary.
func (a *app) reportBundle(ctx context.Context, o collect.Options, res collect.Result) error {
	return withBundle(ctx, o.Out, "", func(b *bundle.Bundle) error {
		if err := saveSBOM(b, o.Out+".spdx.json"); err != nil {
			return err
		}
		state := "is complete"
		if res.Unchanged {
			state = "is up to date, nothing was changed"
		}
		contents := b.Contents()
		_, err := fmt.Fprintf(a.Out, "%s %s: %s, Kubernetes %s, %d files and %d images for each, %s downloaded\nID %s\n", o.Out, state,
			strings.Join(b.Platforms(), " and "), o.Kubernetes, len(contents.Files), len(contents.Images), ui.Bytes(res.Downloaded), b.ID())
		return err
	})
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

// connected is a machine with the sources of bundles: a registry that receives a configuration's images, and the downloads.
type connected struct {
	*httptest.Server
	table []byte
}

func connect(t *testing.T) connected { return connectFor(t, version.Kubernetes) }

// connectFor provides the programs of a Kubernetes version.
func connectFor(t *testing.T, kubernetes string) connected {
	t.Helper()
	pages, table := artifactstest.Release(t, kubernetes, runtime.GOARCH)
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page, ok := pages[strings.TrimPrefix(r.URL.Path, "/files")]; ok {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return connected{s, table}
}

func (s connected) repository() string { return strings.TrimPrefix(s.URL, "http://") + "/x" }

// create runs "bundle create" with the images in this registry, which it fills first.
func (s connected) create(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
	c := newBundleCreate(a, s.table)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append([]string{"--image-repository", s.repository(), "--mirror", s.URL + "/files"}, args...))
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := a.loadSettings(c, config.ForInit, "")
		if err != nil {
			return err
		}
		components, err := c.Flags().GetStringSlice("components")
		if err != nil {
			return err
		}
		list, err := bundleImages(cfg, components)
		for _, image := range list {
			s.push(t, image)
		}
		return errors.Join(err, run(c, args))
	}
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func (s connected) push(t *testing.T, image string) {
	t.Helper()
	ref, err := name.NewTag(image)
	require.NoError(t, err)
	if _, err := remote.Head(ref); err == nil {
		return
	}
	img := imagetest.Image(t, runtime.GOARCH, imagetest.Layer(t, int64(len(image))))
	require.NoError(t, remote.Write(ref, img))
}

// ocadm runs a command line.
func ocadm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := New(Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := ocadm(t, args...)
	if err != nil {
		t.Fatalf("ocadm %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func keys(t *testing.T, dir string) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pkix, err := x509.MarshalPKIXPublicKey(pub)
	require.NoError(t, err)
	private, public = filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	for file, block := range map[string]*pem.Block{private: {Type: "PRIVATE KEY", Bytes: pkcs8}, public: {Type: "PUBLIC KEY", Bytes: pkix}} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return private, public
}

// A bundle is created on a connected machine, signed, continued by another one, and used.
func TestBundle(t *testing.T) {
	s, dir := connect(t), t.TempDir()
	private, public := keys(t, dir)
	older, newer := filepath.Join(dir, "old.bundle"), filepath.Join(dir, "new.bundle")
	out, err := s.create(t, "-o", older, "--sign-key", private)
	if err != nil || !strings.Contains(out, "old.bundle is complete: linux/"+runtime.GOARCH) {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err = s.create(t, "-o", older, "--sign-key", private); err != nil || !strings.Contains(out, "is up to date, nothing was changed") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if out, err = s.create(t, "-o", newer, "--since", older, "--onecloud-version", "v4.0.3", "--components", "s3gateway"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	elsewhere := filepath.Join(t.TempDir(), "new.bundle")
	if _, err := s.create(t, "-o", elsewhere, "--since", older); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-0401" {
		t.Errorf("in another directory than the earlier bundle: %v", err)
	}
	var l listed
	require.NoError(t, json.Unmarshal([]byte(must(t, "bundle", "list", newer, "-o", "json")), &l))
	hasImage := func(part string) bool {
		return slices.ContainsFunc(l.Images, func(i bundle.ImageInfo) bool { return strings.Contains(i.Name, part) })
	}
	if l.Since == nil || l.Since.Name != "old.bundle" || l.Signed || l.Info.Versions["cloud"] != "v4.0.3" || !hasImage("/region:v4.0.3") || !hasImage("/s3gateway:") {
		t.Errorf("%+v", l)
	}
	table := must(t, "bundle", "list", newer)
	for _, want := range []string{"together with old.bundle (sha256:", "/usr/local/bin/kubelet", "ID sha256:"} {
		if !strings.Contains(table, want) {
			t.Errorf("the list lacks %q:\n%s", want, table)
		}
	}
	sbom := must(t, "bundle", "list", newer, "-o", "spdx")
	if raw, err := os.ReadFile(newer + ".spdx.json"); err != nil || string(raw) != sbom {
		t.Errorf("the bill of materials beside the bundle is another one: %v", err)
	}
	for _, want := range []string{`"pkg:generic/containerd@v2.3.4?checksum=sha256`, "pkg:oci/pause@sha256%3A", `"downloadLocation": "https://dl.k8s.io/`} {
		if !strings.Contains(sbom, want) {
			t.Errorf("the bill of materials lacks %q", want)
		}
	}
	if out := must(t, "bundle", "verify", older, "--key", public); !strings.Contains(out, "the signature is valid") {
		t.Error(out)
	}
	must(t, "bundle", "verify", newer)
	if _, err := ocadm(t, "bundle", "verify", newer, "--key", public); finding.Of(err)[0].Code != bundle.CodeSignature {
		t.Errorf("an unsigned bundle: %v", err)
	}
	if _, err := ocadm(t, "bundle", "verify", older, "--key", private); finding.Of(err)[0].Code != "OCA-2327" {
		t.Errorf("a private key to verify with: %v", err)
	}

	for _, c := range []struct{ file, key, code string }{{newer, public, bundle.CodeSignature}, {older, private, "OCA-2327"}, {older, public, ""}} {
		root := t.TempDir() // no node is found there, so a good bundle leads to other refusals
		_, err := ocadm(t, "preflight", "init", "--rootfs", root, "--node-name", "n", "--node-ip", "192.0.2.1", "--bundle", c.file,
			"--bundle-key", c.key)
		l := finding.Of(err)
		found := slices.ContainsFunc(l, func(f finding.Finding) bool { return f.Code == bundle.CodeSignature || f.Code == "OCA-2327" })
		if found != (c.code != "") || found && l[0].Code != c.code {
			t.Errorf("%s with %s: %v, want %q", c.file, c.key, err, c.code)
		}
	}

	out = must(t, "bundle", "diff", older, newer)
	if !regexp.MustCompile(`added +image +\S+/region:v4.0.3`).MatchString(out) || strings.Contains(out, "kubelet") || !strings.Contains(out, "a bundle created with --since OLD") {
		t.Error(out)
	}
	if out = must(t, "bundle", "diff", older, older); out != "the bundles have the same content\n" {
		t.Error(out)
	}
}

func TestBundleExtract(t *testing.T) {
	s, dir := connect(t), t.TempDir()
	file, to := filepath.Join(dir, "test.bundle"), filepath.Join(dir, "content")
	if out, err := s.create(t, "-o", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 2 {
		if out := must(t, "bundle", "extract", file, "--to", to, "kubectl", s.repository()+"/pause:3.10.2"); out != to+"/usr/local/bin/kubectl\n"+to+"/images.tar\n" {
			t.Errorf("%q", out)
		}
	}
	if raw, err := os.ReadFile(to + "/usr/local/bin/kubectl"); err != nil || string(raw) != "new kubectl" {
		t.Errorf("%q, %v", raw, err)
	}
	if out := must(t, "bundle", "extract", file, "--to", to); strings.Count(out, "\n") != 11 { // ten files and the images
		t.Errorf("%q", out)
	}
	if _, err := ocadm(t, "bundle", "extract", file, "--to", to, "kubectl", "nothing"); finding.Of(err)[0].Code != "OCA-0401" {
		t.Errorf("got %v", err)
	}
	if _, err := ocadm(t, "bundle", "extract", file, "--to", file); finding.Of(err)[0].Code != "OCA-2328" {
		t.Errorf("to a file: %v", err)
	}
}

// served is a running "bundle serve", and the line that it prints for the first node.
type served struct {
	address string
	line    []string
	stop    func() error
}

func serve(t *testing.T, file string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	root := New(Streams{In: strings.NewReader(""), Out: write, Err: io.Discard})
	root.SetArgs([]string{"bundle", "serve", file, "--listen", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		ended <- err
		_ = write.CloseWithError(io.EOF)
	}()
	s := served{stop: func() error { cancel(); return <-ended }}
	for lines := bufio.NewScanner(read); s.line == nil; {
		if !lines.Scan() {
			t.Fatal(<-ended)
		}
		if _, after, ok := strings.Cut(lines.Text(), " on "); ok {
			s.address = after
		}
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "ocadm" {
			s.line = f[1:]
		}
	}
	return s
}

// A served bundle is a depot: with its token and CA, it serves files and images.
func TestBundleServe(t *testing.T) {
	s, dir := connect(t), t.TempDir()
	file := filepath.Join(dir, "test.bundle")
	if out, err := s.create(t, "-o", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var tokens []string
	for range 2 { // the second run serves with the same token and certificate
		server := serve(t, file)
		ca, err := os.ReadFile(file + ".depot/ca.crt")
		require.NoError(t, err)
		raw, err := os.ReadFile(file + ".depot/token")
		require.NoError(t, err)
		token := strings.TrimSpace(string(raw))
		tokens = append(tokens, string(ca)+token)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
		get := func(path, token string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.address+path, nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := (&http.Client{Transport: transport}).Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			return res.StatusCode, string(body)
		}
		if code, body := get("/v1/files/linux/"+runtime.GOARCH+"/usr/local/bin/kubelet", token); code != http.StatusOK || body != "new kubelet" {
			t.Errorf("%d %q", code, body)
		}
		host, path, _ := strings.Cut(s.repository(), "/")
		if code, body := get("/v2/"+path+"/pause/manifests/3.10.2?ns="+host, token); code != http.StatusOK {
			t.Errorf("%d %q", code, body)
		}
		if code, _ := get("/v1/contents", "abcdef.0123456789abcdef"); code != http.StatusUnauthorized {
			t.Errorf("a wrong token: %d", code)
		}
		if err := server.stop(); err != nil {
			t.Error(err)
		}
	}
	if tokens[0] != tokens[1] {
		t.Error("the second run has another token or authority")
	}
	if st, err := os.Stat(file + ".depot/token"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("token: %v, %v", st, err)
	}
}

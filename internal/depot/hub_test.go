// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/test/require"
)

// hub is a registry that requires a login. It counts requests.
type hub struct {
	*httptest.Server
	push name.Registry

	mu   sync.Mutex
	log  []string
	down bool
}

const (
	hubLogin    = "puller:pw"
	hubRegistry = "hub.example"
)

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{}
	store := server.New(server.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(store)
	t.Cleanup(open.Close)
	var err error
	if h.push, err = name.NewRegistry(strings.TrimPrefix(open.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.log = append(h.log, r.Method+" "+r.URL.Path)
		down := h.down
		h.mu.Unlock()
		switch _, password, _ := r.BasicAuth(); {
		case down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case "puller:"+password != hubLogin:
			w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			store.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) setDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

// asked counts requests with this prefix.
func (h *hub) asked(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func (h *hub) put(t *testing.T, image string, write func(name.Tag) error) {
	t.Helper()
	ref := images.Split(image)
	repository, tag := ref.Repository, ref.Tag
	require.NoError(t, write(h.push.Repo(strings.Split(repository, "/")...).Tag(tag)))
}

func (h *hub) image(t *testing.T, image string, layer v1.Layer) v1.Hash {
	t.Helper()
	img := imagetest.Image(t, "amd64", layer)
	h.put(t, image, func(tag name.Tag) error { return remote.Write(tag, img) })
	d, err := img.Digest()
	require.NoError(t, err)
	return d
}

// client returns the client that a node's settings produce: a mirror for the registry, and a login.
func (h *hub) client() (registry.Client, error) {
	hosts := fmt.Sprintf("server = %q\n", h.URL)
	auth := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, hubRegistry, base64.StdEncoding.EncodeToString([]byte(hubLogin)))
	credentials, err := registry.ParseCredentials([]byte(auth))
	return registry.Client{Credentials: credentials, Endpoints: registry.Machine(hostsFile(hosts))}, err
}

// hostsFile is a machine that has only the hosts.toml of the hub.
type hostsFile string

func (f hostsFile) ReadFile(name string) ([]byte, error) {
	if name == registry.HostsDir+"/"+hubRegistry+"/hosts.toml" {
		return []byte(f), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (f hostsFile) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// through is a depot that copies from a hub, as seen by nodes.
type through struct {
	*site
	hub   *hub
	store *Store
	up    *Upstream
	nodes *http.Client
	clock time.Time
}

func pullThrough(t *testing.T) *through {
	t.Helper()
	h, s := newHub(t), newStore(t)
	p := &through{hub: h, store: s, clock: time.Now()}
	p.up = p.upstream(t)
	p.site = listen(t, s, nil)
	p.nodes = p.client(t, "system:nodes")
	return p
}

func (p *through) upstream(t *testing.T) *Upstream {
	t.Helper()
	u := NewUpstream(p.store, p.hub.client)
	u.Fetcher = fetch.Fetcher{Attempts: 1, Pause: time.Millisecond}
	u.arch, u.now = "amd64", func() time.Time { return p.clock }
	return u
}

// client returns a client with a certificate of a group.
func (p *through) client(t *testing.T, group string) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{group}}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, p.ca.Cert, key.Public(), p.ca.Key)
	require.NoError(t, err)
	return p.browser(&tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key})
}

// get requests a manifest as containerd requests it from a mirror.
func (p *through) get(t *testing.T, c *http.Client, method, repository, ref string) *http.Response {
	t.Helper()
	res, _ := p.ask(t, c, method, "/v2/"+repository+"/manifests/"+ref+"?ns="+hubRegistry, "")
	return res
}

// copyAll copies the currently wanted images in turn.
func (p *through) copyAll(t *testing.T) (copied []string) {
	t.Helper()
	p.clock = p.clock.Add(headStart)
	for {
		w, _ := p.up.take()
		if w.Image == "" {
			return copied
		}
		err := p.up.copy(t.Context(), w.Image)
		p.up.finish(t.Context(), w, err)
		if err == nil {
			copied = append(copied, w.Image)
		}
	}
}

// pulled fetches everything containerd needs of an image, from the depot alone.
func (p *through) pulled(t *testing.T, repository, ref string) error {
	t.Helper()
	depot, err := name.NewRegistry(strings.TrimPrefix(p.URL, "https://"))
	require.NoError(t, err)
	there := depot.Repo(strings.Split(repository, "/")...).Tag(ref)
	img, err := remote.Image(there, remote.WithTransport(withNamespace{p.nodes.Transport}), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		in, err := l.Compressed()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
	}
	_, err = img.RawConfigFile()
	return err
}

// withNamespace names the intended registry, as containerd does.
type withNamespace struct{ next http.RoundTripper }

func (n withNamespace) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("ns", hubRegistry)
	r.URL.RawQuery = q.Encode()
	return n.next.RoundTrip(r)
}

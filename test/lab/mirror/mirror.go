// SPDX-License-Identifier: Apache-2.0

// Package mirror replaces the internet on a lab's bridge: a proxy, behind which one host has every image and every download of an installation.
// Images require a login. The proxy reaches no other host.
package mirror

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/test/lab/images"
)

// Host is the only host that the proxy reaches.
const Host = "mirror.example.org"

// Account is a user name and a password.
type Account struct{ User, Password string }

// Options define what is served.
type Options struct {
	// Images are available as http://Host/REGISTRY/REPOSITORY:TAG.
	Images []images.Named
	// Files are available at http://Host/files/NAME.
	Files map[string]string
	// Proxy and Registry are the accounts for the proxy and for pulling images.
	Proxy, Registry Account
}

// Server is a running proxy.
type Server struct {
	// Proxy is the URL of the proxy, including the account.
	Proxy string

	o     Options
	http  *http.Server
	blobs http.Handler

	mu      sync.Mutex
	refused []string
	served  map[string]int64
}

// Start serves on an address until Close.
func Start(on netip.Addr, o Options) (*Server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(on.String(), "0"))
	if err != nil {
		return nil, fmt.Errorf("starting the mirror: %w", err)
	}
	s.Proxy = fmt.Sprintf("http://%s:%s@%s", o.Proxy.User, o.Proxy.Password, l.Addr())
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.http.Serve(l) }() // it returns when the server is closed
	return s, nil
}

// newServer returns a server with the images of its options, which does not listen yet.
func newServer(o Options) (*Server, error) {
	store := blobs{}
	s := &Server{o: o, blobs: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(store)), served: map[string]int64{}}
	return s, s.fill(store)
}

// Close stops serving.
func (s *Server) Close() error { return s.http.Close() }

// Refused returns the requests for other hosts.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.refused...)
}

// Served returns the number of bytes sent to clients with that user agent.
func (s *Server) Served(client string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, bytes := range s.served {
		if strings.HasPrefix(name, client) {
			n += bytes
		}
	}
	return n
}

// fill pushes the manifests to the registry, which finds the blobs in the store.
func (s *Server) fill(store blobs) error {
	direct := httptest.NewServer(s.blobs)
	defer direct.Close()
	for _, i := range s.o.Images {
		ref, err := name.ParseReference(i.Name)
		if err != nil {
			return fmt.Errorf("reading the name of an image: %w", err)
		}
		if err := store.add(i.Image); err != nil {
			return fmt.Errorf("reading %s: %w", i.Name, err)
		}
		of := strings.Replace(ref.Context().RegistryStr(), name.DefaultRegistry, "docker.io", 1)
		to, err := name.NewTag(strings.TrimPrefix(direct.URL, "http://") + "/" + of + "/" + ref.Context().RepositoryStr() + ":" + ref.Identifier())
		if err != nil {
			return fmt.Errorf("naming %s: %w", i.Name, err)
		}
		if err := remote.Write(to, i.Image); err != nil {
			return fmt.Errorf("serving %s: %w", i.Name, err)
		}
	}
	return nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &counter{ResponseWriter: w}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.served[r.UserAgent()] += counted.n
	}()
	proxy := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	path, file := strings.CutPrefix(r.URL.Path, "/files/")
	switch {
	case !s.o.Proxy.is(proxy):
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "who asks?", http.StatusProxyAuthRequired)
	case r.URL.Host != Host: // including every CONNECT
		s.mu.Lock()
		s.refused = append(s.refused, r.Method+" "+r.Host)
		s.mu.Unlock()
		http.Error(w, "no way to "+r.Host, http.StatusForbidden)
	case file && s.o.Files[path] != "":
		http.ServeFile(counted, r, s.o.Files[path])
	case file:
		http.NotFound(w, r)
	case !s.o.Registry.is(r):
		w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
		http.Error(w, "log in", http.StatusUnauthorized)
	default:
		s.blobs.ServeHTTP(counted, r)
	}
}

func (a Account) is(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	return ok && user == a.User && password == a.Password
}

// counter records the status and the size of a response.
type counter struct {
	http.ResponseWriter
	status int
	n      int64
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

// blobs maps digests to layers and configurations of images.
type blobs map[v1.Hash]v1.Layer

func (b blobs) add(img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(img)
	if err != nil {
		return err
	}
	for _, l := range append(layers, config) {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		b[digest] = l
	}
	return nil
}

// Get returns the contents of a blob. With Stat it implements the registry's store.
func (b blobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	if l, ok := b[h]; ok {
		return l.Compressed()
	}
	return nil, registry.ErrNotFound
}

// Stat returns the size of a blob.
func (b blobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	if l, ok := b[h]; ok {
		return l.Size()
	}
	return 0, registry.ErrNotFound
}

// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/test/require"
)

const kubernetes = "v1.36.3"

// between may answer a request instead of the site.
type between func(w http.ResponseWriter, r *http.Request) bool

// site is a combined registry and file server, with a layer between it and the client.
type site struct {
	*httptest.Server
	files    map[string][]byte
	table    []byte
	registry http.Handler

	mu    sync.Mutex
	layer between
	// asked lists the paths of the requests that reached the site.
	asked []string
}

func newSite(t *testing.T, archs ...string) *site {
	t.Helper()
	s := &site{registry: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	s.files, s.table = artifactstest.Release(t, kubernetes, archs...)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	layer := s.layer
	s.mu.Unlock()
	if layer != nil && layer(w, r) {
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	if name, ok := strings.CutPrefix(r.URL.Path, "/m"); ok {
		data, ok := s.files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(data)))
		return
	}
	s.registry.ServeHTTP(w, r)
}

// put sets the layer, and clears the recorded requests.
func (s *site) put(layer between) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layer, s.asked = layer, nil
}

// requests returns the last elements of the paths requested since put.
func (s *site) requests(part string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.asked {
		if strings.Contains(p, part) {
			out = append(out, path.Base(p))
		}
	}
	return out
}

func (s *site) host() string { return s.URL[strings.LastIndexByte(s.URL, '/')+1:] }

// push stores an image, or an index if there are several, and returns its full name. The index of a name in unnamed/ has no platforms.
func (s *site) push(t *testing.T, repoTag string, images ...v1.Image) string {
	t.Helper()
	full := s.host() + "/" + repoTag
	ref, err := name.NewTag(full)
	require.NoError(t, err)
	if len(images) == 1 {
		err = remote.Write(ref, images[0])
	} else {
		platforms := !strings.HasPrefix(repoTag, "unnamed/")
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, img := range images {
			c, err := img.ConfigFile()
			require.NoError(t, err)
			add := mutate.IndexAddendum{Add: img}
			if platforms {
				add.Platform = c.Platform()
			}
			index = mutate.AppendManifests(index, add)
		}
		err = remote.WriteIndex(ref, index)
	}
	require.NoError(t, err)
	return full
}

// options returns options for a bundle from this site, with retries without delay.
func (s *site) options(t *testing.T, archs []string, images ...string) Options {
	t.Helper()
	table, err := artifacts.Parse(s.table)
	require.NoError(t, err)
	transport, err := Transport(nil, false)
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return Options{
		Out: filepath.Join(t.TempDir(), "test.bundle"), Kubernetes: kubernetes, Archs: archs, Images: images, Table: table,
		Mirror: s.URL + "/m", Keychain: authn.NewMultiKeychain(), Transport: transport,
		Fetcher: fetch.Fetcher{Pause: time.Millisecond}, Sink: ui.Quiet(),
	}
}

func create(t *testing.T, o Options) *bundle.Bundle {
	t.Helper()
	if _, err := Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return openBundle(t, o.Out)
}

func openBundle(t *testing.T, file string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	require.NoError(t, b.Verify(t.Context(), nil))
	return b
}

// refused returns the only finding of a failing run.
func refused(t *testing.T, o Options, code string) finding.Finding {
	t.Helper()
	_, err := Create(t.Context(), o)
	l := finding.Of(err)
	if len(l) != 1 || l[0].Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return l[0]
}

// configOf returns the digest of an image's configuration.
func configOf(t *testing.T, layers ...v1.Layer) string {
	t.Helper()
	h, err := imagetest.Image(t, "amd64", layers...).ConfigName()
	require.NoError(t, err)
	return h.String()
}

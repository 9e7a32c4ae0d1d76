// SPDX-License-Identifier: Apache-2.0

package ownimage_test

import (
	"debug/elf"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/ownimage/programtest"
	"yunion.io/x/ocadm/test/require"
)

func newRegistry() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

func reference(t *testing.T, image string, insecure bool) name.Tag {
	t.Helper()
	ref, err := ownimage.Reference(image, "v7", insecure)
	require.NoError(t, err)
	return ref
}

func TestReference(t *testing.T) {
	for image, want := range map[string]string{
		"example/ocadm:dev":                "docker.io/example/ocadm:dev",
		"registry.example.org:5000/ocadm":  "registry.example.org:5000/ocadm:v7",
		"registry.example.org/you/ocadm:1": "registry.example.org/you/ocadm:1",
	} {
		if got := ownimage.FullName(reference(t, image, false)); got != want {
			t.Errorf("%s became %s, want %s", image, got, want)
		}
	}
	for _, image := range []string{"", "UPPER/ocadm:dev", "http://registry.example.org/ocadm", "registry.example.org/ocadm@sha256:12"} {
		if got, err := ownimage.Reference(image, "v7", false); err == nil {
			t.Errorf("%q was taken as %s", image, got)
		}
	}
}

// Pushing the same tag again replaces the image. Temporary registry failures are retried.
func TestPush(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	store := newRegistry()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && busy.Swap(false) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		store.ServeHTTP(w, r)
	}))
	defer s.Close()
	ref := reference(t, strings.TrimPrefix(s.URL, "http://")+"/you/ocadm:dev", true)
	for _, text := range []string{"one", "two"} {
		img := pack(t, programtest.Program(t, elf.EM_X86_64, false, text))
		var done, total int64
		require.NoError(t, ownimage.Push(t.Context(), ref, img, ownimage.Options{Insecure: true, Progress: func(d, n int64) { done, total = d, n }}))
		if done == 0 || done != total {
			t.Errorf("progress ended at %d of %d", done, total)
		}
		d, err := remote.Head(ref)
		require.NoError(t, err)
		if want := digest(t, img); d.Digest.String() != want {
			t.Errorf("the registry has %s, want %s", d.Digest, want)
		}
	}
	if busy.Load() {
		t.Error("the registry was never busy")
	}
}

// Each cause has its own remedy.
func TestPushFails(t *testing.T) {
	img := pack(t, programtest.Program(t, elf.EM_X86_64, false, "text"))
	answer := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" && code == http.StatusNotFound {
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(code)
		})
	}
	gone := httptest.NewServer(answer(http.StatusOK))
	gone.Close()
	for _, c := range []struct {
		name, want string
		server     *httptest.Server
		insecure   bool
	}{
		{"no account", "docker login", httptest.NewServer(answer(http.StatusUnauthorized)), true},
		{"no permission", "docker login", httptest.NewServer(answer(http.StatusForbidden)), true},
		{"no project", "create the project", httptest.NewServer(answer(http.StatusNotFound)), true},
		{"private CA", "SSL_CERT_FILE", httptest.NewTLSServer(newRegistry()), false},
		{"no registry", "make sure that the registry", gone, true},
	} {
		ref := reference(t, strings.TrimPrefix(strings.TrimPrefix(c.server.URL, "http://"), "https://")+"/you/ocadm:dev", c.insecure)
		err := ownimage.Push(t.Context(), ref, img, ownimage.Options{Insecure: c.insecure, Keychain: authn.NewMultiKeychain()})
		if l := finding.Of(err); len(l) != 1 || l[0].Code != ownimage.CodePush || !strings.Contains(l[0].Remedy, c.want) {
			t.Errorf("%s: got %v\nremedy %q, want %q", c.name, err, finding.Of(err), c.want)
		}
		c.server.Close()
	}
}

// --insecure accepts a certificate of an unknown CA, and the keychain's credentials are sent.
func TestPushInsecureWithPassword(t *testing.T) {
	store := newRegistry()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "alice" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	defer s.Close()
	ref := reference(t, strings.TrimPrefix(s.URL, "https://")+"/you/ocadm:dev", true)
	img := pack(t, programtest.Program(t, elf.EM_X86_64, false, "text"))
	if err := ownimage.Push(t.Context(), ref, img, ownimage.Options{Insecure: true, Keychain: alice{}}); err != nil {
		t.Error(err)
	}
}

type alice struct{}

func (alice) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "alice", Password: "secret"}, nil
}

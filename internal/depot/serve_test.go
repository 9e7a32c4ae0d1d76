// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

const (
	goodToken  = "abcdef.0123456789abcdef"
	wrongToken = "abcdef.0123456789abcdee"
)

// site is a listening depot, with its CA.
type site struct {
	*httptest.Server
	ca pki.Pair
}

func authority(t testing.TB) pki.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := pki.NewCA(time.Now(), "kubernetes", key)
	require.NoError(t, err)
	return ca
}

func issue(t testing.TB, ca pki.Pair, r pki.Request) *tls.Certificate {
	t.Helper()
	r.Small = true
	p, err := pki.Issue(ca, r)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key}
}

func pool(ca pki.Pair) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.Cert)
	return p
}

func tokens(ctx context.Context, token string) error {
	if strings.HasPrefix(token, "broken.") {
		return errors.New("the API server does not answer")
	}
	return OneToken(goodToken)(ctx, token)
}

// listen serves a store as a control-plane node does; wrap, which may be nil, wraps the handler.
func listen(t testing.TB, s *Store, wrap func(http.Handler) http.Handler) *site {
	t.Helper()
	ca := authority(t)
	cert := issue(t, ca, pki.Request{CommonName: "depot", Names: []string{"127.0.0.1"}, NotBefore: time.Now()})
	h := Handler(s, &Access{Tokens: tokens})
	if wrap != nil {
		h = wrap(h)
	}
	server := httptest.NewUnstartedServer(h)
	// StartTLS would add a certificate of its own.
	server.Listener = tls.NewListener(server.Listener, ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }, pool(ca)))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	server.URL = "https://" + server.Listener.Addr().String()
	t.Cleanup(server.Close)
	return &site{server, ca}
}

// browser returns an HTTP client that trusts the CA, with or without a client certificate.
func (s *site) browser(cert *tls.Certificate) *http.Client {
	c := &tls.Config{RootCAs: pool(s.ca), MinVersion: tls.VersionTLS12}
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
}

func (s *site) node(t *testing.T, ca pki.Pair, notBefore, notAfter time.Time) *http.Client {
	t.Helper()
	return s.browser(issue(t, ca, pki.Request{CommonName: "system:node:n1", Usage: pki.Client, NotBefore: notBefore, NotAfter: notAfter}))
}

// ask sends a request and returns status and body.
func (s *site) ask(t *testing.T, c *http.Client, method, path, authorization string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	require.NoError(t, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

func TestAccess(t *testing.T) {
	s := listen(t, filled(t), nil)
	now := time.Now()
	node := s.node(t, s.ca, now, time.Time{})
	for _, c := range []struct {
		name, authorization string
		client              *http.Client
		want                int
	}{
		{"nothing", "", s.browser(nil), http.StatusUnauthorized},
		{"a token", "Bearer " + goodToken, s.browser(nil), http.StatusOK},
		{"a token as password", basic("node", goodToken), s.browser(nil), http.StatusOK},
		{"a certificate", "", node, http.StatusOK},
		{"a certificate and a wrong token", "Bearer " + wrongToken, node, http.StatusOK},
		{"a wrong token", "Bearer " + wrongToken, s.browser(nil), http.StatusUnauthorized},
		{"an unknown token", "Bearer zzzzzz.0123456789abcdef", s.browser(nil), http.StatusUnauthorized},
		{"no form", "Bearer ../../etc", s.browser(nil), http.StatusUnauthorized},
		{"the API server is down", "Bearer broken.0123456789abcdef", s.browser(nil), http.StatusServiceUnavailable},
	} {
		for _, path := range []string{"/v2/", contentsPath, filePrefix + kubelet, "/v2/_catalog", "/anything"} {
			want := c.want
			if want == http.StatusOK && (path == "/v2/_catalog" || path == "/anything") {
				want = http.StatusNotFound
			}
			if path != "/v2/" && c.want == http.StatusUnauthorized && c.authorization != "" {
				continue // the next wrong token would be one too many
			}
			if res, body := s.ask(t, c.client, http.MethodGet, path, c.authorization); res.StatusCode != want {
				t.Errorf("%s: %s: %s, want %d: %s", c.name, path, res.Status, want, body)
			}
		}
	}
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

// TLS refuses an expired certificate and one of another CA, and a depot whose CA the client does not know.
func TestRejectedCertificates(t *testing.T) {
	s := listen(t, filled(t), nil)
	now := time.Now()
	for name, c := range map[string]*http.Client{
		"expired":               s.node(t, s.ca, now.Add(-30*time.Minute), now.Add(-time.Minute)),
		"of another authority":  s.node(t, authority(t), now, time.Time{}),
		"of an unknown cluster": {Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(authority(t)), MinVersion: tls.VersionTLS12}}},
	} {
		client := NewClient(s.URL, goodToken, fetch.Fetcher{Client: c, Attempts: 1})
		if _, err := client.Contents(t.Context()); code(err) != CodeUnreachable {
			t.Errorf("a certificate that is %s: %v", name, err)
		}
	}
}

// After several wrong tokens even the right one is refused for a while, from that address.
func TestWrongTokensAreLimited(t *testing.T) {
	s := listen(t, filled(t), nil)
	var got []int
	for range wrongTokens + 2 {
		res, _ := s.ask(t, s.browser(nil), http.MethodGet, "/v2/", "Bearer "+wrongToken)
		got = append(got, res.StatusCode)
	}
	want := slices.Repeat([]int{http.StatusUnauthorized}, wrongTokens)
	if !slices.Equal(got[:wrongTokens], want) || got[len(got)-1] != http.StatusTooManyRequests {
		t.Errorf("answers %d", got)
	}
	res, _ := s.ask(t, s.browser(nil), http.MethodGet, "/v2/", "Bearer "+goodToken)
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("the right token: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
	if res, _ := s.ask(t, s.node(t, s.ca, time.Now(), time.Time{}), http.MethodGet, "/v2/", ""); res.StatusCode != http.StatusOK {
		t.Errorf("a certificate: %s", res.Status)
	}
	a := &Access{Tokens: tokens}
	for i := range 3 * maxClients {
		a.limit(net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).String() + ":1")
	}
	if len(a.failures) > maxClients {
		t.Errorf("%d addresses are remembered", len(a.failures))
	}
}

func TestServe(t *testing.T) {
	store := filled(t)
	s := listen(t, store, nil)
	c, err := store.Contents(t.Context())
	require.NoError(t, err)
	manifest, file := c.Images[imageA], c.Files[kubelet]
	for _, tc := range []struct {
		method, path string
		want         int
		contentType  string
	}{
		{"GET", "/v2/", 200, "application/json"},
		{"GET", "/v2/lib/a/manifests/v1?ns=registry.example", 200, string(manifest.MediaType)},
		{"HEAD", "/v2/lib/a/manifests/v1?ns=registry.example", 200, string(manifest.MediaType)},
		{"GET", "/v2/registry.example/lib/a/manifests/v1", 200, string(manifest.MediaType)},
		{"GET", "/v2/lib/a/manifests/" + manifest.Digest.String(), 200, string(manifest.MediaType)},
		{"GET", "/v2/lib/a/blobs/" + manifest.Digest.String(), 200, "application/octet-stream"},
		{"GET", blobPrefix + file.Digest.String(), 200, "application/octet-stream"},
		{"GET", filePrefix + kubelet, 200, "application/octet-stream"},
		{"GET", "/v2/lib/a/manifests/v1", 404, ""},
		{"GET", "/v2/lib/a/manifests/v1?ns=other.example", 404, ""},
		{"GET", "/v2/lib/a/manifests/v2?ns=registry.example", 404, ""},
		{"GET", "/v2/lib/a/manifests/" + file.Digest.String(), 404, ""}, // a blob is not a manifest
		{"GET", "/v2/lib/a/blobs/sha256:" + strings.Repeat("0", 64), 404, ""},
		{"GET", "/v2/lib/a/tags/list", 404, ""},
		{"GET", filePrefix + "linux/amd64/none", 404, ""},
		{"PUT", "/v2/lib/a/manifests/v1?ns=registry.example", 405, ""},
		{"POST", "/v2/lib/a/blobs/uploads/", 405, ""},
		{"DELETE", "/v2/lib/a/manifests/v1?ns=registry.example", 405, ""},
	} {
		res, body := s.ask(t, s.browser(nil), tc.method, tc.path, "Bearer "+goodToken)
		if res.StatusCode != tc.want || tc.contentType != "" && res.Header.Get("Content-Type") != tc.contentType {
			t.Errorf("%s %s: %s, %s", tc.method, tc.path, res.Status, res.Header.Get("Content-Type"))
		}
		if tc.want == 404 && !strings.Contains(body, `"errors":[{"code":`) {
			t.Errorf("%s %s: the error is %q", tc.method, tc.path, body)
		}
	}
	res, body := s.ask(t, s.browser(nil), "GET", filePrefix+kubelet, "Bearer "+goodToken, "Range", "bytes=7-13")
	if res.StatusCode != http.StatusPartialContent || body != "kubelet" || res.Header.Get("Docker-Content-Digest") != file.Digest.String() {
		t.Errorf("a part: %s %q, digest %s", res.Status, body, res.Header.Get("Docker-Content-Digest"))
	}
}

// A registry client can pull an image.
func TestRegistryClientPulls(t *testing.T) {
	s := listen(t, filled(t), nil)
	host := strings.TrimPrefix(s.URL, "https://")
	for _, image := range []string{imageA, imageB} {
		ref, err := name.ParseReference(host + "/" + image)
		require.NoError(t, err)
		img, err := remote.Image(ref, remote.WithContext(t.Context()), remote.WithTransport(s.browser(nil).Transport),
			remote.WithAuth(&authn.Basic{Username: "node", Password: goodToken}))
		require.NoError(t, err)
		if err := validate.Image(img); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

// A blob damaged on disk is reported as absent: containerd tries the next mirror.
func TestDamagedBlobIsAbsent(t *testing.T) {
	store := filled(t)
	s := listen(t, store, nil)
	h := hashOf(t, kubeletText)
	file, err := store.blobFile(h)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), len(kubeletText)), 0o600))
	if res, body := s.ask(t, s.browser(nil), "GET", blobPrefix+h.String(), "Bearer "+goodToken); res.StatusCode != http.StatusNotFound || strings.Contains(body, "xx") {
		t.Errorf("%s %.40q", res.Status, body)
	}
}

// Whatever the path, the result is a well-formed name or digest that does not leave the store.
func FuzzParse(f *testing.F) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, path := range []string{"/v2/", "/v2/a/b/manifests/v1", "/v2/a/blobs/" + digest, "/v1/files/linux/amd64/x", "/v1/blobs/" + digest,
		"/v2/../../etc/passwd/manifests/x", "/v1/files/../x", "/v2/a/manifests/../b", "/v2//manifests/x", "/v1/blobs/sha512:00"} {
		f.Add(path, "registry.example:5000")
	}
	s := reopenFuzz(f)
	f.Fuzz(func(t *testing.T, path, registry string) {
		got, ok := parse(path, registry)
		if !ok {
			return
		}
		if strings.ContainsAny(got.tag, "/\\\x00") {
			t.Errorf("%q became the tag %q", path, got.tag)
		}
		if got.kind == file && (strings.HasPrefix(got.name, "/") || slices.Contains(strings.Split(got.name, "/"), "..")) {
			t.Errorf("%q became the file %q", path, got.name)
		}
		if got.kind == manifest && (slices.Contains(strings.Split(got.name, "/"), "..") || got.tag == ".." || got.name == "") {
			t.Errorf("%q became the image %q, tag %q", path, got.name, got.tag)
		}
		if got.digest != (v1.Hash{}) {
			if file, err := s.blobFile(got.digest); err == nil && filepath.Dir(file) != s.blobDir() {
				t.Errorf("%q became %s", path, file)
			}
		}
	})
}

func reopenFuzz(f *testing.F) *Store {
	f.Helper()
	s, err := Open(f.TempDir(), 0)
	require.NoError(f, err)
	return s
}

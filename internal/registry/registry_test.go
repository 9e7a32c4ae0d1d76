// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

const (
	user     = "alice"
	password = "canary"
)

// serve starts a registry with one image. wrap may wrap its handler.
func serve(t *testing.T, repository string, secure bool, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	h := server.New(server.Logger(log.New(io.Discard, "", 0)))
	img, err := random.Image(64, 1)
	require.NoError(t, err)
	plain := httptest.NewServer(h)
	defer plain.Close()
	ref, err := name.NewTag(strings.TrimPrefix(plain.URL, "http://") + "/" + repository + ":v1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	if secure {
		s.Close()
		s = httptest.NewTLSServer(h)
	}
	t.Cleanup(s.Close)
	return s
}

func login(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// tokens requires a bearer token, which its own server issues to users who log in.
func tokens(realm func() string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				if _, p, _ := r.BasicAuth(); p == password {
					fmt.Fprint(w, `{"token":"t"}`)
					return
				}
				w.WriteHeader(http.StatusUnauthorized)
			case r.Header.Get("Authorization") != "Bearer t":
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, realm()))
				w.WriteHeader(http.StatusUnauthorized)
			default:
				h.ServeHTTP(w, r)
			}
		})
	}
}

func always(code int) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
}

// files holds the files of a machine.
type files map[string]string

func (f files) ReadFile(name string) ([]byte, error) {
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (f files) ReadDir(name string) ([]fs.DirEntry, error) {
	all := fstest.MapFS{}
	for file := range f {
		all[file[1:]] = &fstest.MapFile{}
	}
	return all.ReadDir(name[1:])
}

func TestFind(t *testing.T) {
	var bearer *httptest.Server
	open := serve(t, "library/busybox", false, nil)
	closed := serve(t, "library/busybox", false, login)
	bearer = serve(t, "library/busybox", false, tokens(func() string { return bearer.URL }))
	secure := serve(t, "library/busybox", true, nil)
	mutual := httptest.NewUnstartedServer(serve(t, "library/busybox", false, nil).Config.Handler)
	mutual.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	mutual.StartTLS()
	t.Cleanup(mutual.Close)
	pair := certificate(mutual) + privateKey(t, mutual)
	trusted := httptest.NewUnstartedServer(serve(t, "library/busybox", false, nil).Config.Handler)
	trusted.TLS = &tls.Config{Certificates: []tls.Certificate{ofTheMachine(t)}, MinVersion: tls.VersionTLS12}
	trusted.StartTLS()
	t.Cleanup(trusted.Close)
	busy := serve(t, "x", false, always(http.StatusTooManyRequests))
	headless := func(status int) *httptest.Server {
		return serve(t, "library/busybox", false, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					w.WriteHeader(status)
					return
				}
				h.ServeHTTP(w, r)
			})
		})
	}
	noHead, noDigest := headless(http.StatusMethodNotAllowed), headless(http.StatusOK)
	away := httptest.NewServer(nil)
	away.Close()
	prefixed := serve(t, "library/busybox", false, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("ns") != "docker.io" || r.URL.Path == "/v2/hub/" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			r.URL.Path = strings.Replace(r.URL.Path, "/v2/hub", "/v2", 1)
			h.ServeHTTP(w, r)
		})
	})
	address := func(s *httptest.Server) string {
		return strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://")
	}
	hub := func(text string) files { return files{"/etc/containerd/certs.d/docker.io/hosts.toml": text} }
	docker := func(s *httptest.Server) string { return "/etc/containerd/certs.d/" + address(s) + "/" }
	const image, fallback = "docker.io/library/busybox:v1", "/etc/containerd/certs.d/_default/hosts.toml"
	for _, tc := range []struct {
		name, image string
		machine     files
		auths       string
		want        Kind
		says        string // "" means that the image exists
	}{
		{"there", address(open) + "/library/busybox:v1", nil, "", 0, ""},
		{"another tag", address(open) + "/library/busybox:v2", nil, "", Missing, "it answered 404"},
		{"no login", address(closed) + "/library/busybox:v1", nil, "", Denied, "it answered 401"},
		{"login", address(closed) + "/library/busybox:v1", nil, address(closed), 0, ""},
		{"login for a path", address(closed) + "/library/busybox:v1", nil, address(closed) + "/library", 0, ""},
		{"login for an address", address(closed) + "/library/busybox:v1", nil, "https://" + address(closed) + "/v2/", 0, ""},
		{"login for an address without TLS", address(closed) + "/library/busybox:v1", nil, "http://" + address(closed) + "/", 0, ""},
		{"login for another path", address(closed) + "/library/busybox:v1", nil, address(closed) + "/other", Denied, "401"},
		{"login, as docker writes it", address(closed) + "/library/busybox:v1", nil, "https://" + address(closed) + "/v1/", 0, ""},
		{"login for a pattern", address(closed) + "/library/busybox:v1", nil, strings.Replace(address(closed), "127.", "*.", 1) + "/library", 0, ""},
		{"login for a pattern of fewer parts", address(closed) + "/library/busybox:v1", nil, strings.Replace(address(closed), "127.0.", "*.", 1), Denied, "401"},
		{"login for a pattern of no port", address(closed) + "/library/busybox:v1", nil, "127.0.0.*", Denied, "401"},
		{"token", address(bearer) + "/library/busybox:v1", nil, address(bearer), 0, ""},
		{"no token", address(bearer) + "/library/busybox:v1", nil, "", Denied, "401"},
		{"busy", address(busy) + "/library/busybox:v1", nil, "", Busy, "429"},
		{"away", address(away) + "/library/busybox:v1", nil, "", Unreachable, "refused"},
		{"without HEAD", address(noHead) + "/library/busybox:v1", nil, "", 0, ""},
		{"HEAD without a digest", address(noDigest) + "/library/busybox:v1", nil, "", 0, ""},
		{"another tag without HEAD", address(noHead) + "/library/busybox:v2", nil, "", Missing, "it answered 404"},
		{"no name", "a b", nil, "", Missing, "name of the image"},
		{"mirror", image, hub("server = '" + away.URL + "'\n[host.'" + open.URL + "']\n"), "", 0, ""},
		{"mirror that does not resolve", image, hub("server = '" + away.URL + "'\n[host.'" + open.URL + "']\ncapabilities = ['pull']\n"), "", Unreachable, "refused"},
		{"mirror without the image", "docker.io/library/x:v1", hub("server = '" + open.URL + "'\n[host.'" + away.URL + "']\n"), "", Unreachable, "refused"},
		{"below a path", image, hub("server = '" + away.URL + "'\n[host.'" + prefixed.URL + "/v2/hub']\noverride_path = true\n"), "", 0, ""},
		{"login by a header", image, hub("server = '" + away.URL + "'\n[host.'" + closed.URL + "'.header]\nAuthorization = 'Basic " +
			base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "'\n"), "", 0, ""},
		{"mirror that refuses", image, hub("server = '" + away.URL + "'\n[host.'" + closed.URL + "']\n"), "", Denied, "401"},
		{"mirror of all", "registry.k8s.io/library/busybox:v1", files{fallback: "[host.'" + open.URL + "']"}, "", 0, ""},
		{"port in a directory's name", "r.invalid:5000/library/busybox:v1", files{"/etc/containerd/certs.d/r.invalid_5000_/hosts.toml": "server = '" + open.URL + "'"}, "", 0, ""},
		{"unknown authority", image, hub("server = '" + secure.URL + "'"), "", Unreachable, "certificate"},
		{"authority of its own", image, files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + secure.URL + "'\nca = '/ca.pem'", "/ca.pem": certificate(secure)}, "", 0, ""},
		{"authority in addition to the machine's", image, files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + trusted.URL + "'\nca = '/ca.pem'", "/ca.pem": certificate(secure)}, "", 0, ""},
		{"authority that is not there", image, hub("server = '" + secure.URL + "'\nca = '/ca.pem'"), "", Unreachable, "/ca.pem"},
		{"authority as in docker", address(secure) + "/library/busybox:v1", files{docker(secure) + "ca.crt": certificate(secure), fallback: "[host.'" + away.URL + "']"}, "", 0, ""},
		{"certificate to show as in docker", address(mutual) + "/library/busybox:v1", files{docker(mutual) + "ca.crt": certificate(mutual),
			docker(mutual) + "client.cert": certificate(mutual), docker(mutual) + "client.key": privateKey(t, mutual)}, "", 0, ""},
		{"certificate and key in one file as in docker", address(mutual) + "/library/busybox:v1",
			files{docker(mutual) + "ca.crt": certificate(mutual), docker(mutual) + "client.cert": pair}, "", 0, ""},
		{"not verified", image, hub("server = '" + secure.URL + "'\nskip_verify = true"), "", 0, ""},
		{"certificate to show", image, files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + mutual.URL + "'\nskip_verify = true\nclient = '/pair.pem'", "/pair.pem": pair}, "", 0, ""},
		{"certificate and key to show", image, files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + mutual.URL + "'\nskip_verify = true\nclient = [['/c.pem', '/k.pem']]",
			"/c.pem": certificate(mutual), "/k.pem": privateKey(t, mutual)}, "", 0, ""},
		{"no certificate to show", image, hub("server = '" + mutual.URL + "'\nskip_verify = true"), "", Unreachable, "certificate required"},
		{"http where https is meant", image, hub("server = 'https://" + address(open) + "'"), "", Unreachable, "TLS handshake"},
		{"no TOML", image, hub("server = "), "", Unreachable, "hosts.toml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			credentials := Credentials{}
			if tc.auths != "" {
				var err error
				raw := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, tc.auths, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
				if credentials, err = ParseCredentials([]byte(raw)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := Client{Endpoints: Machine(tc.machine), Credentials: credentials}.Find(ctx, tc.image)
			if tc.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Kind != tc.want || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), password) {
				t.Errorf("got %+v: %v", e, err)
			}
		})
	}
}

// ofTheMachine returns a server's certificate that the machine trusts. Go reads the machine's certificates once in a process.
func ofTheMachine(t *testing.T) tls.Certificate {
	t.Helper()
	ca, err := pki.NewCA(time.Now(), "machine", nil)
	require.NoError(t, err)
	leaf, err := pki.Issue(ca, pki.Request{CommonName: "r", Names: []string{"127.0.0.1"}, Usage: pki.Server, NotBefore: time.Now(), Small: true})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca.CertPEM(), 0o600))
	t.Setenv("SSL_CERT_FILE", file)
	return tls.Certificate{Certificate: [][]byte{leaf.Cert.Raw}, PrivateKey: leaf.Key}
}

func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func privateKey(t *testing.T, s *httptest.Server) string {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func TestParseCredentials(t *testing.T) {
	for _, tc := range []struct{ raw, says string }{
		{`{}`, ""},
		{`{"auths":{"r":{"auth":"YWxpY2U6cHc="}}}`, ""},
		{`{"auths":{"r":{"identitytoken":"x"}}}`, ""},
		{`{"auths":{"r":{}},"credsStore":"desktop"}`, "desktop"},
		{`{"credsStore":"desktop"}`, "desktop"},
		{`{"credHelpers":{"r":"ecr-login"}}`, "helper"},
		{`{"auths":{"r":{"auth":"canary"}}}`, "docker config.json"},
		{`canary`, "docker config.json"},
	} {
		_, err := ParseCredentials([]byte(tc.raw))
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", tc.raw, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%v quotes a secret", err)
		}
	}
}

func TestMirrorsInTheOrderOfTheFile(t *testing.T) {
	hosts := files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = 'https://z'\n[host.'https://b']\n[host.'https://b'.header]\nx = 'y'\n[host.\"https://a\"]\n"}
	list, err := Machine(hosts)("docker.io")
	var got []string
	for _, e := range list {
		got = append(got, e.Root.Host)
	}
	if d := cmp.Diff([]string{"b", "a", "z"}, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestUpstream(t *testing.T) {
	for registry, want := range map[string]string{
		"docker.io": "https://registry-1.docker.io", "10.0.0.1:5000": "https://10.0.0.1:5000", "127.0.0.1:5000": "http://127.0.0.1:5000",
		"localhost": "http://localhost", "[::1]:5000": "http://[::1]:5000", "registry.k8s.io": "https://registry.k8s.io",
	} {
		if d := cmp.Diff(want, Upstream(registry)); d != "" {
			t.Errorf("%s: %s", registry, d)
		}
	}
}

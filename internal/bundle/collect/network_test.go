// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// blob reports whether a request is for the content of a layer or a program.
func blob(r *http.Request) bool {
	return r.Method == http.MethodGet && (strings.Contains(r.URL.Path, "/blobs/") || strings.HasPrefix(r.URL.Path, "/m/"))
}

// once answers the first matching request of each path.
func once(match func(*http.Request) bool, answer http.HandlerFunc) between {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		first := !seen[r.URL.Path] && match(r)
		seen[r.URL.Path] = seen[r.URL.Path] || first
		mu.Unlock()
		if first {
			answer(w, r)
		}
		return first
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
	}
}

func all(*http.Request) bool { return true }

// content returns the site's content for a request.
func (s *site) content(r *http.Request) []byte {
	if file, ok := strings.CutPrefix(r.URL.Path, "/m"); ok {
		return s.files[file]
	}
	rec := httptest.NewRecorder()
	s.registry.ServeHTTP(rec, r)
	return rec.Body.Bytes()
}

// half sends half of the content, and then calls end.
func (s *site) half(end func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data := s.content(r)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		_ = http.NewResponseController(w).Flush()
		end(w, r)
	}
}

// slowly takes longer than a client waits for a stalled server.
func (s *site) slowly(w http.ResponseWriter, r *http.Request) {
	data := s.content(r)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	for chunk := range slices.Chunk(data, len(data)/8+1) {
		_, _ = w.Write(chunk)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(300 * time.Millisecond)
	}
}

// A temporary network failure costs nothing but time.
func TestBadNetwork(t *testing.T) {
	s := newSite(t, "amd64")
	want := s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1), imagetest.Layer(t, 2)))
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the credentials went elsewhere")
		}
		s.registry.ServeHTTP(w, r)
	}))
	t.Cleanup(elsewhere.Close)
	for name, layer := range map[string]between{
		"out of service": once(all, status(http.StatusServiceUnavailable)),
		"too many":       once(all, status(http.StatusTooManyRequests)),
		"cut off":        once(blob, s.half(cut)),
		"closed at once": once(all, cut),
		"stalled":        once(blob, s.half(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })),
		"slow":           once(blob, s.slowly),
		"redirected": func(w http.ResponseWriter, r *http.Request) bool {
			to := blob(r) && strings.Contains(r.URL.Path, "/blobs/")
			if to {
				http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
			}
			return to
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.put(layer)
			o := s.options(t, []string{"amd64"}, want)
			o.Keychain = keychain{Username: "alice", Password: "secret"}
			if name == "stalled" || name == "slow" {
				o.Fetcher.Stall = 2 * time.Second
			}
			if c := create(t, o).Contents(); len(c.Images) != 1 || len(c.Files) != 10 {
				t.Errorf("%+v", c)
			}
		})
	}
}

type keychain authn.AuthConfig

func (k keychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(k)), nil
}

// A permanent failure is explained, with a remedy for its cause.
func TestLastingFailures(t *testing.T) {
	s := newSite(t, "amd64")
	want := s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	tls := httptest.NewTLSServer(s)
	t.Cleanup(tls.Close)
	changed := func(path string) between {
		return func(w http.ResponseWriter, r *http.Request) bool {
			match := blob(r) && strings.Contains(r.URL.Path, path) && !strings.HasSuffix(r.URL.Path, configOf(t, imagetest.Layer(t, 1)))
			if match {
				_, _ = w.Write([]byte("something else"))
			}
			return match
		}
	}
	never := func(match func(*http.Request) bool, code int) between {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if match(r) {
				status(code)(w, r)
			}
			return match(r)
		}
	}
	manifests := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }
	for _, c := range []struct {
		name, code, remedy string
		layer              between
		image              string
	}{
		{"another layer", CodeDigest, "--registry-mirror", changed("/v2/"), want},
		{"another program", CodeDigest, "--mirror", changed("/m/"), want},
		{"no account", CodeImage, "docker login " + s.host(), never(manifests, http.StatusUnauthorized), want},
		{"no permission", CodeImage, "docker login " + s.host(), never(manifests, http.StatusForbidden), want},
		{"too many", CodeImage, "too many requests", never(manifests, http.StatusTooManyRequests), want},
		{"out of service", CodeImage, "find out what is wrong with " + s.host(), never(manifests, http.StatusBadGateway), want},
		{"no layer", CodeDownload, "check that the version exists", never(func(r *http.Request) bool {
			return blob(r) && strings.Contains(r.URL.Path, "/v2/") && !strings.HasSuffix(r.URL.Path, configOf(t, imagetest.Layer(t, 1)))
		}, http.StatusNotFound), want},
		{"no program", CodeDownload, "check that the version exists", never(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/m/") }, 404), want},
		{"no server", CodeImage, "HTTPS_PROXY", nil, "127.0.0.1:9/x/a:v1"},
		{"private CA", CodeImage, "--ca-file", nil, strings.TrimPrefix(tls.URL, "https://") + "/x/a:v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.put(c.layer)
			o := s.options(t, []string{"amd64"}, c.image)
			if f := refused(t, o, c.code); !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("remedy %q, want %q\n%+v", f.Remedy, c.remedy, f)
			}
			// Completed downloads are not requested again.
			s.put(nil)
			if c.image == want {
				create(t, o)
			}
		})
	}
}

type withoutHelper struct{}

func (withoutHelper) Resolve(authn.Resource) (authn.Authenticator, error) {
	return nil, errors.New(`exec: "docker-credential-desktop": executable file not found in $PATH`)
}

// A missing credential helper is not a registry that cannot be reached.
func TestNoCredentials(t *testing.T) {
	s := newSite(t, "amd64")
	img := imagetest.Image(t, "amd64", imagetest.Layer(t, 1))
	o := s.options(t, []string{"amd64"}, s.push(t, "x/a:v1", img), s.push(t, "x/b:v1", img))
	o.Keychain = withoutHelper{}
	if f := refused(t, o, CodeImage); !strings.Contains(f.Remedy, "--registry-config") || !strings.Contains(f.Cause, "docker-credential-desktop") {
		t.Errorf("%+v", f)
	}
}

// A registry that accepts a connection and never answers is given up, and the next place is asked.
func TestSilentMirror(t *testing.T) {
	s := newSite(t, "amd64")
	image := s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	o := s.options(t, []string{"amd64"}, image)
	o.Mirrors, o.Fetcher.Stall, o.Fetcher.Attempts = Mirrors{s.host(): {silent.URL}}, 300*time.Millisecond, 2
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := Create(ctx, o); err != nil {
		t.Error(err)
	}
}

// A registry that does not answer is not tried again for each of its images, and is reported once.
func TestSilentRegistry(t *testing.T) {
	s := newSite(t, "amd64")
	var tries atomic.Int64
	s.put(func(http.ResponseWriter, *http.Request) bool {
		tries.Add(1)
		panic(http.ErrAbortHandler)
	})
	var images []string
	for i := range 5 * lookups {
		images = append(images, fmt.Sprintf("%s/x/%d:v1", s.host(), i))
	}
	o := s.options(t, []string{"amd64"}, images...)
	o.Fetcher.Attempts = 3
	if f := refused(t, o, CodeImage); f.What != "The registry "+s.host()+" cannot be used" || !strings.Contains(f.Remedy, "HTTPS_PROXY") {
		t.Errorf("%+v", f)
	}
	// Concurrent look-ups do not know of each other.
	if n := tries.Load(); n > 3*lookups {
		t.Errorf("it was asked %d times", n)
	}
}

// A private CA is trusted if it is given, and its server needs no --insecure.
func TestPrivateAuthority(t *testing.T) {
	s := newSite(t, "amd64")
	s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	tls := httptest.NewTLSServer(s)
	t.Cleanup(tls.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	o := s.options(t, []string{"amd64"}, strings.TrimPrefix(tls.URL, "https://")+"/x/a:v1")
	o.Mirror = tls.URL + "/m"
	for insecure, authorities := range map[bool][]byte{false: ca, true: nil} {
		transport, err := Transport(authorities, insecure)
		require.NoError(t, err)
		t.Cleanup(transport.CloseIdleConnections)
		o.Transport = transport
		create(t, o)
	}
	if _, err := Transport([]byte("no certificate"), false); err == nil {
		t.Error("what is no certificate was taken")
	}
}

// Logging in works with registries that issue tokens and with those that take the password itself.
func TestLogin(t *testing.T) {
	s := newSite(t, "amd64")
	want := s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	alice := func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user == "alice" && password == "secret"
	}
	for name, layer := range map[string]between{
		"token": func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.URL.Path == "/token" && alice(r) && r.URL.Query().Get("scope") == "repository:x/a:pull":
				_ = json.NewEncoder(w).Encode(map[string]string{"token": "of alice"})
			case r.URL.Path == "/token":
				w.WriteHeader(http.StatusUnauthorized)
			case strings.HasPrefix(r.URL.Path, "/v2/") && r.Header.Get("Authorization") != "Bearer of alice":
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			default:
				return false
			}
			return true
		},
		"password": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/v2/") || alice(r) {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		},
	} {
		s.put(layer)
		o := s.options(t, []string{"amd64"}, want)
		if f := refused(t, o, CodeImage); !strings.Contains(f.Remedy, "docker login") {
			t.Errorf("%s: %+v", name, f)
		}
		o.Keychain = keychain{Username: "alice", Password: "wrong"}
		if f := refused(t, o, CodeImage); strings.Contains(f.Cause+f.Remedy, "wrong") || !strings.Contains(f.Remedy, "docker login") {
			t.Errorf("%s: %+v", name, f)
		}
		o.Keychain = keychain{Username: "alice", Password: "secret"}
		create(t, o)
	}
}

// A mirror is asked first, with its path before the image's, then the registry itself if the mirror lacks the image. The image keeps its name.
func TestMirrors(t *testing.T) {
	upstream, mirror := newSite(t, "amd64"), newSite(t, "amd64")
	img := imagetest.Image(t, "amd64", imagetest.Layer(t, 1))
	mirror.push(t, "prefix/x/a:v1", img)
	a, b := upstream.push(t, "x/a:v1", img), upstream.push(t, "x/b:v1", img)
	o := upstream.options(t, []string{"amd64"}, a, b)
	o.Mirrors = Mirrors{upstream.host(): {mirror.URL + "/v2/prefix"}, "*": {"http://127.0.0.1:9"}}
	mirror.put(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/" && r.URL.Query().Get("ns") != upstream.host() {
			t.Errorf("%s does not say whose image is meant", r.URL)
		}
		return false
	})
	upstream.put(nil)
	c := create(t, o).Contents()
	if len(c.Images) != 2 || c.Images[0].Name != a || c.Images[1].Name != b {
		t.Errorf("%+v", c.Images)
	}
	if got := upstream.requests("/x/a/"); len(got) > 0 {
		t.Errorf("the registry was asked for %q, which the mirror has", got)
	}
	o.Mirrors = Mirrors{"*": {mirror.URL + "/prefix"}}
	if res, err := Create(t.Context(), o); err != nil || !res.Unchanged {
		t.Errorf("with the same mirror for all registries: %+v, %v", res, err)
	}
	// As in containerd, what a mirror lacks of an image comes from the next place.
	mirror.put(nil)
	half := imagetest.Image(t, "amd64", imagetest.Layer(t, 2))
	mirror.push(t, "prefix/x/half:v1", half)
	o.Images = []string{upstream.push(t, "x/half:v1", half)}
	mirror.put(func(w http.ResponseWriter, r *http.Request) bool {
		lacks := blob(r) && !strings.HasSuffix(r.URL.Path, configOf(t, imagetest.Layer(t, 2)))
		if lacks {
			w.WriteHeader(http.StatusNotFound)
		}
		return lacks
	})
	if _, err := Create(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// An image is downloaded from the first server that has it: with a token login, over a redirect to another host that must not receive the
// credentials, and resuming after a broken connection.
func TestRead(t *testing.T) {
	var bearer *httptest.Server
	var leaked, broken atomic.Bool
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		blob := strings.Repeat("x", 1000)
		if r.Header.Get("Range") == "" && !broken.Swap(true) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(blob[:500]))
			return // the connection breaks
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(blob))
	}))
	t.Cleanup(storage.Close)
	want, _, err := v1.SHA256(strings.NewReader(strings.Repeat("x", 1000)))
	require.NoError(t, err)
	away := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/blobs/"+want.String()) {
				http.Redirect(w, r, storage.URL, http.StatusTemporaryRedirect)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	bearer = serve(t, "library/busybox", false, func(h http.Handler) http.Handler { return tokens(func() string { return bearer.URL })(away(h)) })
	empty := serve(t, "other", false, nil)
	machine := files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + bearer.URL + "'\n[host.'" + empty.URL + "']\n"}
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	credentials, err := ParseCredentials(fmt.Appendf(nil, `{"auths":{"docker.io":{"auth":%q}}}`, auth))
	require.NoError(t, err)
	c := Client{Endpoints: Machine(machine), Credentials: credentials}
	var got *Image
	require.NoError(t, c.Read(t.Context(), "docker.io/library/busybox:v1", fetch.Fetcher{Pause: time.Millisecond}, func(img *Image) error {
		got = img
		var m v1.Manifest
		require.NoError(t, json.Unmarshal(img.Raw, &m))
		if raw, err := img.Manifest(t.Context(), img.Digest); err != nil || !bytes.Equal(raw, img.Raw) {
			t.Errorf("the manifest by its digest: %s, %v", raw, err)
		}
		for h, size := range map[v1.Hash]int64{m.Config.Digest: m.Config.Size, m.Layers[0].Digest: m.Layers[0].Size, want: 1000} {
			var out bytes.Buffer
			if err := img.Blob(t.Context(), h, &out); err != nil || int64(out.Len()) != size {
				t.Errorf("%s has %d bytes, want %d (%v)", h, out.Len(), size, err)
			}
		}
		return nil
	}))
	if d, err := c.Find(t.Context(), "docker.io/library/busybox:v1"); err != nil || d != got.Digest {
		t.Errorf("the digest is %s (%v), want %s", d, err, got.Digest)
	}
	if leaked.Load() || !broken.Load() {
		t.Errorf("another host got the login: %v; the connection broke: %v", leaked.Load(), broken.Load())
	}
}

// A server that accepts connections and never answers does not keep the caller from the next one.
func TestReadAfterASilentServer(t *testing.T) {
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(release); silent.Close() })
	good := serve(t, "library/busybox", false, nil)
	machine := files{"/etc/containerd/certs.d/docker.io/hosts.toml": "server = '" + good.URL + "'\n[host.'" + silent.URL + "']\n"}
	opened := make(chan error, 1)
	go func() {
		opened <- Client{Endpoints: Machine(machine)}.Read(t.Context(), "docker.io/library/busybox:v1", fetch.Fetcher{Stall: 200 * time.Millisecond}, func(*Image) error { return nil })
	}()
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the silent server")
	}
}

// A mirror that has the manifest of an image, and lacks or damages its layers, does not keep the caller from the next one.
func TestReadAfterADamagedMirror(t *testing.T) {
	without := func(answer func(http.ResponseWriter)) *httptest.Server {
		return serve(t, "library/busybox", false, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					answer(w)
					return
				}
				h.ServeHTTP(w, r)
			})
		})
	}
	lacks := without(func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) })
	damages := without(func(w http.ResponseWriter) { _, _ = w.Write([]byte("damaged")) })
	good := serve(t, "library/busybox", false, nil)
	machine := files{"/etc/containerd/certs.d/docker.io/hosts.toml": fmt.Sprintf("server = %q\n[host.%q]\n[host.%q]\n", good.URL, lacks.URL, damages.URL)}
	read := func(result func(error) error) (times int, err error) {
		err = Client{Endpoints: Machine(machine)}.Read(t.Context(), "docker.io/library/busybox:v1", fetch.Fetcher{Pause: time.Millisecond, Attempts: 1}, func(img *Image) error {
			times++
			var m v1.Manifest
			require.NoError(t, json.Unmarshal(img.Raw, &m))
			return result(img.Blob(t.Context(), m.Layers[0].Digest, io.Discard))
		})
		return times, err
	}
	if times, err := read(func(err error) error { return err }); err != nil || times != 3 {
		t.Errorf("%d mirrors: %v", times, err)
	}
	full := finding.New("OCA-0000", "The disk is full", "", "")
	if times, err := read(func(error) error { return full }); times != 1 || len(finding.Of(err)) != 1 {
		t.Errorf("this machine is the cause, and %d mirrors were asked: %v", times, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

func writePair(t *testing.T, dir string, cert *tls.Certificate, modified time.Time) (certFile, keyFile string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "s.crt"), filepath.Join(dir, "s.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Chtimes(file, modified, modified))
	}
	return certFile, keyFile
}

// The server loads a renewed certificate without a restart, keeps the old one while the files do not match, and ends with its context.
func TestListen(t *testing.T) {
	ca := authority(t)
	dir := t.TempDir()
	request := pki.Request{CommonName: "first", Names: []string{"127.0.0.1"}, NotBefore: time.Now()}
	certFile, keyFile := writePair(t, dir, issue(t, ca, request), time.Unix(1, 0))
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Listen(ctx, l, ServerTLS(CertificateFiles(certFile, keyFile), pool(ca)), Handler(filled(t), &Access{}))
	}()
	shown := func() string {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(ca), MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+HealthPath, nil)
		require.NoError(t, err)
		res, err := c.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", HealthPath, res.Status)
		}
		return res.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "first" {
		t.Errorf("shows %s", got)
	}
	request.CommonName = "second"
	writePair(t, dir, issue(t, ca, request), time.Unix(2, 0))
	if got := shown(); got != "second" {
		t.Errorf("shows %s after the renewal", got)
	}
	require.NoError(t, os.WriteFile(keyFile, nil, 0o600))
	if got := shown(); got != "second" {
		t.Errorf("shows %s with a damaged key", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestInvalidCertificateFiles(t *testing.T) {
	if _, err := CertificateFiles("/nonexistent/s.crt", "/nonexistent/s.key")(nil); err == nil {
		t.Error("a certificate that is not there was read")
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("none"), 0o600))
	if _, err := Authorities(file); err == nil {
		t.Error("a file without certificates was read")
	}
}

// The API server reviews tokens, authenticated by the token itself. While it is down, tokens that were valid are accepted for a day.
func TestReviewed(t *testing.T) {
	var status, asked int
	groups := []string{Bootstrappers, "system:authenticated"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" || r.Header.Get("Authorization") != "Bearer "+goodToken {
			status = http.StatusUnauthorized
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status == http.StatusCreated {
			_ = json.NewEncoder(w).Encode(authentication.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status:   authentication.SelfSubjectReviewStatus{UserInfo: authentication.UserInfo{Groups: groups}},
			})
			return
		}
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(status)})
	}))
	defer server.Close()
	now := time.Unix(0, 0)
	fresh := func() *reviewer {
		return &reviewer{server: &rest.Config{Host: server.URL, QPS: -1}, now: func() time.Time { return now }, valid: cache.NewLRUExpireCache(maxRemembered)}
	}
	r := fresh()
	for _, step := range []struct {
		name   string
		after  time.Duration
		status int
		want   error
		asked  int
	}{
		{"a server that is down, at first", 0, http.StatusServiceUnavailable, errAny, 1},
		{"valid", 0, http.StatusCreated, nil, 1},
		{"soon again", 30 * time.Second, http.StatusUnauthorized, nil, 0},
		{"later, and the server is down", 2 * time.Minute, http.StatusServiceUnavailable, nil, 1},
		{"a day later", 25 * time.Hour, http.StatusServiceUnavailable, errAny, 1},
		{"valid again", 0, http.StatusCreated, nil, 1},
		{"expired", 2 * time.Minute, http.StatusUnauthorized, ErrNoToken, 1},
		{"forgotten", 0, http.StatusServiceUnavailable, errAny, 1},
	} {
		now, status, asked = now.Add(step.after), step.status, 0
		err := r.check(t.Context(), goodToken)
		if ok := errors.Is(err, step.want) || errors.Is(step.want, errAny) && err != nil && !errors.Is(err, ErrNoToken); !ok || asked != step.asked {
			t.Errorf("%s: %v after %d requests", step.name, err, asked)
		}
	}
	status, groups = http.StatusCreated, []string{"system:authenticated"}
	if err := fresh().check(t.Context(), goodToken); !errors.Is(err, ErrNoToken) {
		t.Errorf("the token of no bootstrapper: %v", err)
	}
	if err := Reviewed(&rest.Config{Host: server.URL, BearerToken: "of-the-depot"})(t.Context(), wrongToken); !errors.Is(err, ErrNoToken) {
		t.Errorf("a wrong token: %v", err)
	}
}

var errAny = errors.New("any")

// Only certificates of one of the groups are accepted.
func TestGroups(t *testing.T) {
	a := &Access{Groups: []string{"system:nodes"}}
	for organization, want := range map[string]bool{"system:nodes": true, "developers": false, "": false} {
		cert := &x509.Certificate{}
		cert.Subject.Organization = []string{organization}
		r := httptest.NewRequest(http.MethodGet, "/v2/", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		if got := a.allow(httptest.NewRecorder(), r); got != want {
			t.Errorf("a certificate of %q: %v", organization, got)
		}
	}
}

// An archive exported by containerd can be stored; a truncated one is refused.
func TestAddArchive(t *testing.T) {
	const name = "registry.example/a:v1"
	var archive strings.Builder
	require.NoError(t, bundle.WriteImage(t.Context(), &archive, bundle.ImageSource{Name: name, Image: imagetest.Image(t, "amd64", imagetest.Layer(t, 1))}))
	s := newStore(t)
	images, err := s.AddArchive(t.Context(), strings.NewReader(archive.String()))
	require.NoError(t, err)
	if err := s.SetRoot(t.Context(), Root{Name: "node", Images: images}); err != nil || len(images) != 1 || images[name].Size == 0 {
		t.Errorf("images %v, %v", images, err)
	}
	if _, err := newStore(t).AddArchive(t.Context(), io.LimitReader(strings.NewReader(archive.String()), int64(archive.Len()/2))); err == nil {
		t.Error("half an archive was stored")
	}
}

// If the store has only one architecture of an index, it serves that one, and nothing is garbage.
func TestIndexOfOneArchitecture(t *testing.T) {
	s := newStore(t)
	have, err := s.AddImage(t.Context(), imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	require.NoError(t, err)
	other := v1.Descriptor{MediaType: have.MediaType, Digest: hashOf(t, "of arm64"), Size: 1}
	raw, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{other, have}})
	require.NoError(t, err)
	index := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: s.put(t, string(raw)), Size: int64(len(raw))}
	require.NoError(t, s.SetRoot(t.Context(), Root{Name: "node", Images: map[string]v1.Descriptor{"registry.example/a:v1": index}}))
	if _, err := s.collect(t.Context(), []string{"node"}, -time.Hour); err != nil {
		t.Fatal(err)
	}
	site := listen(t, s, nil)
	for path, want := range map[string]int{
		"v1": http.StatusOK, have.Digest.String(): http.StatusOK, other.Digest.String(): http.StatusNotFound, hashOf(t, "x").String(): http.StatusNotFound,
	} {
		res, _ := site.ask(t, site.browser(nil), http.MethodGet, "/v2/a/manifests/"+path+"?ns=registry.example", "Bearer "+goodToken)
		if res.StatusCode != want {
			t.Errorf("manifest %s: %s", path, res.Status)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/fetch"
)

// Mirrors are servers that are asked for the images of a registry before the registry itself, by the name of the registry ("docker.io"):
// their addresses, "https://HOST[:PORT][/PATH]". PATH precedes the path of an image.
type Mirrors map[string][]string

// ParseMirrors reads mirrors that are given as REGISTRY=URL.
func ParseMirrors(list []string) (Mirrors, error) {
	out := Mirrors{}
	for _, text := range list {
		registry, address, ok := strings.Cut(text, "=")
		u, err := url.Parse(address)
		if !ok || registry == "" || err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("%q is not REGISTRY=https://HOST[:PORT][/PATH], nor the same with http", text)
		}
		reg, err := name.NewRegistry(registry)
		if err != nil {
			return nil, err
		}
		out[reg.RegistryStr()] = append(out[reg.RegistryStr()], address)
	}
	return out, nil
}

// Transport is for everything that is downloaded. authorities, which may be empty, are PEM certificates that are trusted beside those of the
// system; insecure takes every certificate. Proxies come from the environment.
func Transport(authorities []byte, insecure bool) (*http.Transport, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: insecure} //nolint:gosec // that is what --insecure asks for
	if len(authorities) == 0 {
		return t, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("the file of certificate authorities holds no certificate in PEM")
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// registries downloads from registries, with a session for each repository.
type registries struct {
	fetcher   fetch.Fetcher
	transport http.RoundTripper
	keychain  authn.Keychain
	mirrors   Mirrors
	insecure  bool

	mu       sync.Mutex
	sessions map[string]*session
}

// session is a repository whose registry has let us in.
type session struct {
	once    sync.Once
	repo    name.Repository
	err     error
	fetcher fetch.Fetcher
}

// places are the repositories that may have an image: those on mirrors, and then its own.
func (r *registries) places(ref name.Tag) ([]name.Repository, error) {
	var out []name.Repository
	for _, mirror := range r.mirrors[ref.RegistryStr()] {
		u, err := url.Parse(mirror)
		if err != nil {
			return nil, err
		}
		prefix := strings.Trim(strings.TrimPrefix(u.Path+"/", "/v2/"), "/")
		repo, err := r.repository(strings.TrimSuffix(u.Host+"/"+prefix, "/")+"/"+ref.RepositoryStr(), u.Scheme == "http")
		if err != nil {
			return nil, err
		}
		out = append(out, repo)
	}
	own, err := r.repository(ref.Context().Name(), false)
	return append(out, own), err
}

func (r *registries) repository(path string, plain bool) (name.Repository, error) {
	if plain || r.insecure {
		return name.NewRepository(path, name.Insecure)
	}
	return name.NewRepository(path)
}

// open logs in for a repository, once.
func (r *registries) open(ctx context.Context, repo name.Repository) (*session, error) {
	r.mu.Lock()
	s := r.sessions[repo.Name()]
	if s == nil {
		s = &session{repo: repo}
		r.sessions[repo.Name()] = s
	}
	r.mu.Unlock()
	s.once.Do(func() {
		var auth authn.Authenticator
		if auth, s.err = authn.Resolve(ctx, r.keychain, repo); s.err != nil {
			s.err = fmt.Errorf("reading the credentials for %s: %w", repo.RegistryStr(), s.err)
			return
		}
		s.fetcher = r.fetcher
		s.err = r.fetcher.Retry(ctx, func() error {
			t, err := transport.NewWithContext(ctx, repo.Registry, auth, r.transport, []string{repo.Scope(transport.PullScope)})
			s.fetcher.Client = &http.Client{Transport: t}
			return answered(repo, err)
		})
	})
	return s, s.err
}

// answered makes the error of an answer one that the fetcher knows.
func answered(repo name.Repository, err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return untrusted
	}
	if repo.Scheme() == "http" && errors.Is(err, http.ErrSchemeMismatch) { // HTTPS was tried before
		return errors.New(err.Error())
	}
	var e *transport.Error
	if !errors.As(err, &e) {
		return err
	}
	status := &fetch.StatusError{Code: e.StatusCode}
	if len(e.Errors) > 0 {
		return fmt.Errorf("%w: %s", status, e.Errors[0])
	}
	return status
}

// maxDocument is larger than any manifest or configuration.
const maxDocument = 8 << 20

// The kinds of manifests that are asked for.
var accepted = strings.Join([]string{
	string(types.OCIImageIndex), string(types.DockerManifestList), string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}, ", ")

// manifest downloads a manifest by its tag or digest.
func (s *session) manifest(ctx context.Context, ref string) ([]byte, error) {
	f := s.fetcher
	f.Header = http.Header{"Accept": {accepted}}
	return document(ctx, f, s.address("manifests", ref), ref)
}

// config downloads the configuration of an image.
func (s *session) config(ctx context.Context, h v1.Hash) ([]byte, error) {
	return document(ctx, s.fetcher, s.address("blobs", h.String()), h.String())
}

func (s *session) address(kind, ref string) string {
	return fmt.Sprintf("%s://%s/v2/%s/%s/%s", s.repo.Scheme(), s.repo.RegistryStr(), s.repo.RepositoryStr(), kind, ref)
}

// document downloads something small, and compares it with ref if that is a digest.
func document(ctx context.Context, f fetch.Fetcher, address, ref string) ([]byte, error) {
	raw, err := f.Document(ctx, address, maxDocument)
	if err != nil {
		return nil, err
	}
	if want, ok := strings.CutPrefix(ref, "sha256:"); ok && sum(raw) != want {
		return nil, &fetch.DigestError{Want: want, Got: sum(raw)}
	}
	return raw, nil
}

// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/registry"
)

// Mirrors holds the mirrors of registries, which are asked before the registry itself. Keys are registry names ("docker.io"), or "*" for all others;
// values are addresses, "https://HOST[:PORT][/PATH]". PATH precedes the path of an image.
type Mirrors map[string][]string

// Transport returns the HTTP transport for all downloads. authorities, which may be empty, holds PEM-encoded CA certificates trusted in addition to
// the system's; insecure accepts any certificate. Proxies come from the environment.
func Transport(authorities []byte, insecure bool) (*http.Transport, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: insecure} //nolint:gosec // requested by --insecure
	if len(authorities) == 0 {
		return t, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("the file of certificate authorities contains no certificate in PEM")
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// loginTimeout bounds a login: a server may accept a connection and never answer.
const loginTimeout = 30 * time.Second

// registries downloads from registries, with a session for each repository.
type registries struct {
	fetcher   fetch.Fetcher
	transport http.RoundTripper
	keychain  authn.Keychain
	mirrors   Mirrors
	insecure  bool

	mu       sync.Mutex
	sessions map[place]*session
	// down holds the hosts that did not answer, so that they are not tried again for every image.
	down map[string]error
}

type place struct {
	repo name.Repository
	// of is the registry that this mirrors, "" for the registry itself. A mirror of several registries uses it to tell them apart.
	of string
}

// host returns the registry's usual name.
func (p place) host() string { return registry.Name(p.repo.Tag(name.DefaultTag)) }

// session is a place that the client is logged in to.
type session struct {
	place
	once    sync.Once
	err     error
	fetcher fetch.Fetcher
}

// places returns where an image may be: mirrors first, then its own registry.
func (r *registries) places(ref name.Tag) ([]place, error) {
	of := registry.Name(ref)
	mirrors, ok := r.mirrors[of]
	if !ok {
		mirrors = r.mirrors["*"]
	}
	var out []place
	for _, mirror := range mirrors {
		u, err := url.Parse(mirror)
		if err != nil {
			return nil, err
		}
		repo, err := r.repository(path.Join(u.Host, strings.TrimPrefix(u.Path, "/v2"), ref.RepositoryStr()), u.Scheme == "http")
		if err != nil {
			return nil, err
		}
		out = append(out, place{repo, of})
	}
	own, err := r.repository(ref.Context().Name(), false)
	return append(out, place{repo: own}), err
}

func (r *registries) repository(path string, plain bool) (name.Repository, error) {
	if plain || r.insecure {
		return name.NewRepository(path, name.Insecure)
	}
	return name.NewRepository(path)
}

// open logs in to a place, once.
func (r *registries) open(ctx context.Context, p place) (*session, error) {
	repo := p.repo
	r.mu.Lock()
	s := r.sessions[p]
	if s == nil {
		s = &session{place: p}
		r.sessions[p] = s
	}
	r.mu.Unlock()
	s.once.Do(func() {
		if s.err = r.gone(p.host(), nil); s.err != nil {
			return
		}
		var auth authn.Authenticator
		if auth, s.err = authn.Resolve(ctx, r.keychain, repo); s.err != nil {
			s.err = noCredentials(p.host(), s.err)
			return
		}
		s.fetcher = r.fetcher
		s.err = r.fetcher.Retry(ctx, func() error {
			stall := cmp.Or(r.fetcher.Stall, loginTimeout)
			ctx, cancel := context.WithTimeoutCause(ctx, stall, fmt.Errorf("the server did not answer within %s", stall))
			defer cancel()
			t, err := transport.NewWithContext(ctx, repo.Registry, auth, r.transport, []string{repo.Scope(transport.PullScope)})
			s.fetcher.Client = &http.Client{Transport: t}
			return answered(repo, err)
		})
		var status *fetch.StatusError
		if s.err != nil && !errors.As(s.err, &status) && ctx.Err() == nil {
			s.err = r.gone(p.host(), s.err)
		}
	})
	return s, s.err
}

// gone records that a host cannot be reached, and returns the first reason recorded.
func (r *registries) gone(host string, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down[host] == nil && why != nil {
		r.down[host] = &downError{host, why}
	}
	return r.down[host]
}

// downError is the error of a registry that does not answer.
type downError struct {
	host string
	err  error
}

func (e *downError) Error() string { return e.err.Error() }
func (e *downError) Unwrap() error { return e.err }

// answered converts an error response into one that the fetcher understands.
func answered(repo name.Repository, err error) error {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return untrusted
	}
	if repo.Scheme() == "http" && errors.Is(err, http.ErrSchemeMismatch) { // HTTPS has already failed
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

// manifest downloads a manifest by its tag or digest.
func (s *session) manifest(ctx context.Context, ref string) ([]byte, error) {
	f := s.fetcher
	f.Header = http.Header{"Accept": {registry.Accepted}}
	return document(ctx, f, s.address("manifests", ref), ref)
}

func (s *session) config(ctx context.Context, h v1.Hash) ([]byte, error) {
	return document(ctx, s.fetcher, s.address("blobs", h.String()), h.String())
}

func (s *session) address(kind, ref string) string {
	address := fmt.Sprintf("%s://%s/v2/%s/%s/%s", s.repo.Scheme(), s.repo.RegistryStr(), s.repo.RepositoryStr(), kind, ref)
	if s.of != "" {
		address += "?ns=" + url.QueryEscape(s.of)
	}
	return address
}

// document downloads a small document, and verifies it if ref is a digest.
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

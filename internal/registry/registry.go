// SPDX-License-Identifier: Apache-2.0

// Package registry looks up images in container registries as containerd would: through the mirrors of hosts.toml, with the credentials of a docker
// config.json. It stores nothing.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Client looks up images in registries.
type Client struct {
	// Endpoints returns where to look for images of a registry, in order.
	Endpoints   func(registry string) ([]Endpoint, error)
	Credentials Credentials
	// Proxy, which may be nil, is as in http.Transport; nil means the proxy of the environment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Kind is the reason why an image is unavailable.
type Kind int

// The kinds. If several servers were asked, the one latest in this order wins: an image that a server refuses or cannot answer for may still exist
// there.
const (
	Missing     Kind = iota // 404
	Unreachable             // no answer, or not from a registry
	Busy                    // 429 or 5xx
	Denied                  // 401 or 403
)

// Error explains why an image is unavailable.
type Error struct {
	// Registry is the registry in the image's name, Server the one whose answer decided: a mirror, or the registry.
	Registry, Server string
	Kind             Kind
	Err              error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Name returns the common name of a registry, as containerd uses it: "docker.io", "10.0.0.1:5000".
func Name(ref name.Reference) string {
	if r := ref.Context().RegistryStr(); r != name.DefaultRegistry {
		return r
	}
	return DockerHub
}

// DockerHub is the registry of images that do not name one.
const DockerHub = "docker.io"

// Find asks every endpoint of an image's registry for its manifest until one has it, and returns its digest. The error is an *Error.
func (c Client) Find(ctx context.Context, image string) (v1.Hash, error) {
	var digest v1.Hash
	err := c.first(image, func(s place) error {
		defer s.close()
		d, err := remote.Head(s.ref, s.options(ctx)...)
		if err == nil {
			digest = d.Digest
		} else if kind(err) == Unreachable && s.way.failed == nil { // like containerd: it answers, but not HEAD, or without a digest
			var whole *remote.Descriptor
			if whole, err = remote.Get(s.ref, s.options(ctx)...); err == nil {
				digest = whole.Digest
			}
		}
		return s.way.because(err)
	})
	return digest, err
}

// first asks the endpoints of an image's registry in order until ask returns nil. The error is an *Error.
func (c Client) first(image string, ask func(place) error) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return &Error{Kind: Missing, Err: fmt.Errorf("reading the name of the image: %w", err)}
	}
	failed := &Error{Registry: Name(ref), Server: Name(ref), Kind: Missing}
	endpoints, err := c.Endpoints(failed.Registry)
	if err != nil {
		failed.Kind, failed.Err = Unreachable, err
		return failed
	}
	var all []error
	for _, e := range endpoints {
		s, err := c.at(e, ref)
		if err == nil {
			err = ask(s)
		}
		if err == nil {
			return nil
		}
		if k := kind(err); k > failed.Kind {
			if failed.Kind, failed.Server = k, failed.Registry; e.Mirror {
				failed.Server = e.Root.Host
			}
		}
		all = append(all, fmt.Errorf("%s: %w", e.Root.Host, brief(err)))
	}
	failed.Err = errors.Join(all...)
	return failed
}

func kind(err error) Kind {
	var e *transport.Error
	if !errors.As(err, &e) {
		return Unreachable
	}
	switch code := e.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return Denied
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return Busy
	case code == http.StatusNotFound:
		return Missing
	}
	return Unreachable
}

// brief returns an error without the requested URL, which may be long and have a query.
func brief(err error) error {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return fmt.Errorf("it answered %d %s", e.StatusCode, http.StatusText(e.StatusCode))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

type place struct {
	ref  name.Reference
	auth authn.Authenticator
	way  *rooted
}

func (c Client) at(e Endpoint, ref name.Reference) (place, error) {
	var options []name.Option
	if e.Root.Scheme == "http" {
		options = append(options, name.Insecure)
	}
	host, err := name.NewRegistry(e.Root.Host, options...)
	if err != nil {
		return place{}, err
	}
	repository := host.Repo(strings.Split(ref.Context().RepositoryStr(), "/")...)
	var there name.Reference = repository.Tag(ref.Identifier())
	if _, ok := ref.(name.Digest); ok {
		there = repository.Digest(ref.Identifier())
	}
	next, err := e.transport(c.Proxy)
	if err != nil {
		return place{}, err
	}
	auth := authn.Anonymous
	if a, ok := c.Credentials.For(ref); ok {
		auth = authn.FromConfig(a)
	}
	return place{there, auth, &rooted{Endpoint: e, registry: Name(ref), next: next}}, nil
}

func (s place) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(s.auth), remote.WithTransport(s.way)}
}

// close closes the connections of a transport that is not shared.
func (s place) close() {
	if t, ok := s.way.next.(*http.Transport); ok && t != http.DefaultTransport {
		t.CloseIdleConnections()
	}
}

// rooted redirects API requests to the API root of an endpoint, and refuses to use another scheme.
type rooted struct {
	Endpoint
	registry string
	next     http.RoundTripper
	failed   error // error of the last unanswered request; requests are sequential
}

// because prefers the cause of an unanswered request.
func (r *rooted) because(err error) error {
	var answer *transport.Error
	if err != nil && r.failed != nil && !errors.As(err, &answer) {
		return r.failed
	}
	return err
}

func (r *rooted) RoundTrip(req *http.Request) (*http.Response, error) {
	path, api := strings.CutPrefix(req.URL.Path, "/v2")
	if req.URL.Host != r.Root.Host || !api {
		return r.next.RoundTrip(req) // a token server
	}
	if req.URL.Scheme != r.Root.Scheme {
		return nil, fmt.Errorf("not contacted over %s", req.URL.Scheme)
	}
	req = req.Clone(req.Context())
	if root, _, below := strings.Cut(r.Root.Path, "/v2/"); below && path == "/" {
		req.URL.Path = root + "/v2/" // registries send the login challenge only there
	} else {
		req.URL.Path = strings.TrimSuffix(r.Root.Path, "/") + path
	}
	if r.Mirror {
		query := req.URL.Query()
		query.Set("ns", r.registry)
		req.URL.RawQuery = query.Encode()
	}
	maps.Copy(req.Header, r.Header)
	res, err := r.next.RoundTrip(req)
	r.failed = cmp.Or(err, r.failed)
	return res, err
}

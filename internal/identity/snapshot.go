// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/internal/lists"
)

// Service is a service in the catalogue.
type Service struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Enabled bool   `json:"enabled"`
}

// Endpoint is an address of a service.
type Endpoint struct {
	ID        string `json:"id"`
	ServiceID string `json:"service_id"`
	RegionID  string `json:"region_id"`
	Interface string `json:"interface"`
	URL       string `json:"url"`
	Enabled   bool   `json:"enabled"`
	// CertificateID is the client certificate for users of the endpoint, "" for none.
	CertificateID string `json:"cert_id"`
}

// User is a user account.
type User struct {
	ID              string `json:"id"`
	Name            string `json:"name"`
	DomainID        string `json:"domain_id"`
	Enabled         bool   `json:"enabled"`
	IsSystemAccount bool   `json:"is_system_account"`
	AllowWebConsole bool   `json:"allow_web_console"`
}

// Region is a region, or a zone of one ("region0-zone0").
type Region struct {
	ID string `json:"id"`
}

type assignment struct {
	User  ref `json:"user"`
	Role  ref `json:"role"`
	Scope struct {
		Project ref `json:"project"`
	} `json:"scope"`
}

// Snapshot holds the records of the identity service at the time it was read, with every change made by Ensure calls since. They look records up in
// it instead of querying, so that a whole installation takes one list call per kind of record. It is safe for concurrent use, but the same record
// must not be changed from several goroutines.
type Snapshot struct {
	mu          sync.Mutex
	services    []Service
	endpoints   []Endpoint
	users       []User
	regions     []Region
	assignments []assignment
}

// Snapshot reads services, endpoints, users, regions and role assignments, one list call each.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	t, err := c.session(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	var users []User
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { s.services, err = c.ListServices(ctx); return })
	g.Go(func() (err error) { s.endpoints, err = c.ListEndpoints(ctx); return })
	g.Go(func() (err error) { s.regions, err = list[Region](ctx, c, c.o.AuthURL, "regions", nil); return })
	g.Go(func() (err error) {
		// A plain list hides service accounts.
		users, err = list[User](ctx, c, c.o.AuthURL, "users", url.Values{"system": {"true"}, "admin": {"true"}, "scope": {"system"}})
		return
	})
	g.Go(func() (err error) {
		q := url.Values{"include_system": {"true"}, "include_names": {"true"}}
		if t.project.ID != "" {
			q.Set("scope.project.id", t.project.ID)
		}
		s.assignments, err = list[assignment](ctx, c, c.o.AuthURL, "role_assignments", q)
		if IsNotFound(err) || IsForbidden(err) {
			// The list only saves calls: assigning a role again is harmless.
			return nil
		}
		return
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.users = lists.Filter(users, func(u User) bool { return u.DomainID == "" || t.user.Domain.ID == "" || u.DomainID == t.user.Domain.ID })
	return s, nil
}

func (c *Client) ListServices(ctx context.Context) ([]Service, error) {
	return list[Service](ctx, c, c.o.AuthURL, "services", nil)
}

func (c *Client) ListEndpoints(ctx context.Context) ([]Endpoint, error) {
	return list[Endpoint](ctx, c, c.o.AuthURL, "endpoints", nil)
}

// Service finds a service by id or name.
func (s *Snapshot) Service(idOrName string) (Service, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.services, func(x Service) bool { return x.ID == idOrName || x.Name == idOrName })
}

// Endpoints returns the endpoints of a service, by id or name.
func (s *Snapshot) Endpoints(service string) []Endpoint {
	if svc, ok := s.Service(service); ok {
		service = svc.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return lists.Filter(s.endpoints, func(e Endpoint) bool { return e.ServiceID == service })
}

func (s *Snapshot) usesCertificate(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.endpoints, func(e Endpoint) bool { return e.CertificateID == id })
}

// User finds a user by id or name.
func (s *Snapshot) User(idOrName string) (User, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.users, func(u User) bool { return u.ID == idOrName || u.Name == idOrName })
}

func (s *Snapshot) HasRegion(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := find(s.regions, func(r Region) bool { return r.ID == id })
	return ok
}

// HasRole reports whether the user (id or name) has the role in the project, as far as the snapshot knows.
func (s *Snapshot) HasRole(user, project, role string) bool {
	if u, ok := s.User(user); ok {
		user = u.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := find(s.assignments, func(a assignment) bool { return a.User.is(user) && a.Scope.Project.is(project) && a.Role.is(role) })
	return ok
}

func find[T any](in []T, match func(T) bool) (T, bool) {
	if i := slices.IndexFunc(in, match); i >= 0 {
		return in[i], true
	}
	var none T
	return none, false
}

// put replaces the record with the same id, or adds it.
func put[T any](s *Snapshot, in *[]T, record T, same func(T) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(*in, same); i >= 0 {
		(*in)[i] = record
		return
	}
	*in = append(*in, record)
}

func (s *Snapshot) putService(x Service) {
	put(s, &s.services, x, func(y Service) bool { return y.ID == x.ID })
}

func (s *Snapshot) putEndpoint(x Endpoint) {
	put(s, &s.endpoints, x, func(y Endpoint) bool { return y.ID == x.ID })
}

func (s *Snapshot) putUser(x User) { put(s, &s.users, x, func(y User) bool { return y.ID == x.ID }) }

func (s *Snapshot) dropEndpoint(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = slices.DeleteFunc(s.endpoints, func(e Endpoint) bool { return e.ID == id })
}

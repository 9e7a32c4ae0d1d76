// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
)

// EnsureRegion creates the region if it is missing.
func (c *Client) EnsureRegion(ctx context.Context, s *Snapshot, id string) (changed bool, err error) {
	if s.HasRegion(id) {
		return false, nil
	}
	_, err = write[Region](ctx, c, http.MethodPost, fmt.Sprintf("creating region %q", id), c.o.AuthURL+"/regions", "region", map[string]any{"id": id})
	if err != nil && !IsConflict(err) {
		return false, err
	}
	put(s, &s.regions, Region{ID: id}, func(r Region) bool { return r.ID == id })
	return err == nil, nil
}

// EnsureService creates or enables the service, and returns its id. The type of a service cannot be changed later.
func (c *Client) EnsureService(ctx context.Context, s *Snapshot, name, serviceType string) (id string, changed bool, err error) {
	svc, ok := s.Service(name)
	if !ok {
		svc, changed, err = create[Service](ctx, c, services, name, map[string]any{"name": name, "type": serviceType, "enabled": true})
		if err != nil {
			return "", false, err
		}
		s.putService(svc)
	}
	if svc.Type != serviceType {
		return "", changed, &Error{Class: ClassMismatch, Op: creating(services, name),
			Title: fmt.Sprintf("it exists with type %q instead of %q", svc.Type, serviceType)}
	}
	if svc.Enabled {
		return svc.ID, changed, nil
	}
	_, err = write[Service](ctx, c, http.MethodPut, fmt.Sprintf("enabling service %q", name), join(c.o.AuthURL, "services", svc.ID), "service",
		map[string]any{"enabled": true})
	if err != nil {
		return "", changed, err
	}
	svc.Enabled = true
	s.putService(svc)
	return svc.ID, true, nil
}

// create creates a record in the identity service. If the name is taken, it reads the existing record: one created since the snapshot, or hidden from its list.
func create[T any](ctx context.Context, c *Client, k Kind, name string, fields map[string]any, secrets ...string) (r T, made bool, err error) {
	op := creating(k, name)
	r, err = write[T](ctx, c, http.MethodPost, op, c.o.AuthURL+"/"+k.Plural, k.Singular, fields, secrets...)
	if !IsConflict(err) {
		return r, err == nil, err
	}
	old, err := get[T](ctx, c, c.o.AuthURL, k.Plural, k.Singular, name)
	if err == nil && old == nil {
		err = &Error{Status: http.StatusConflict, Class: ClassMismatch, Op: op, Title: "the name is taken by a record that cannot be read"}
	}
	if err != nil {
		return r, false, err
	}
	return *old, false, nil
}

// EnsureEndpoint makes sure that there is exactly one endpoint for a service, region and interface, with this URL and state. ServiceID may also be
// the service's name. Further endpoints for the same three are removed.
func (c *Client) EnsureEndpoint(ctx context.Context, s *Snapshot, want Endpoint) (changed bool, err error) {
	svc, ok := s.Service(want.ServiceID)
	op := fmt.Sprintf("registering the %s endpoint of %q", want.Interface, cmp.Or(svc.Name, want.ServiceID))
	if !ok {
		return false, &Error{Status: http.StatusNotFound, Class: ClassMismatch, Op: op, Title: "the service is not registered"}
	}
	want.ServiceID = svc.ID
	same := slices.DeleteFunc(s.Endpoints(svc.ID), func(e Endpoint) bool {
		return e.RegionID != want.RegionID || e.Interface != want.Interface
	})
	if len(same) == 0 {
		fields := map[string]any{
			"service_id": want.ServiceID, "region_id": want.RegionID, "interface": want.Interface, "url": want.URL, "enabled": want.Enabled,
		}
		if want.CertificateID != "" {
			fields["service_certificate"] = want.CertificateID
		}
		made, err := write[Endpoint](ctx, c, http.MethodPost, op, c.o.AuthURL+"/endpoints", "endpoint", fields)
		if err != nil {
			return false, err
		}
		want.ID = made.ID
		s.putEndpoint(want)
		return true, nil
	}
	keep := max(0, slices.IndexFunc(same, func(e Endpoint) bool { return e.URL == want.URL }))
	for i, e := range same {
		if i == keep {
			continue
		}
		if err := c.removeEndpoint(ctx, s, op, e); err != nil {
			return changed, err
		}
		changed = true
	}
	want.CertificateID = cmp.Or(want.CertificateID, same[keep].CertificateID)
	updated, err := c.updateEndpoint(ctx, s, op, same[keep], want.URL, want.Enabled, want.CertificateID)
	return changed || updated, err
}

func (c *Client) updateEndpoint(
	ctx context.Context, s *Snapshot, op string, e Endpoint, url string, enabled bool, certificate string,
) (changed bool, err error) {
	fields := changes(field{"service_certificate", e.CertificateID, certificate}, field{"url", e.URL, url}, field{"enabled", e.Enabled, enabled})
	if len(fields) == 0 {
		return false, nil
	}
	if _, err := write[Endpoint](ctx, c, http.MethodPut, op, join(c.o.AuthURL, "endpoints", e.ID), "endpoint", fields); err != nil {
		return false, err
	}
	e.URL, e.Enabled, e.CertificateID = url, enabled, certificate
	s.putEndpoint(e)
	return true, nil
}

// removeEndpoint disables the endpoint first, because an enabled one cannot be deleted.
func (c *Client) removeEndpoint(ctx context.Context, s *Snapshot, op string, e Endpoint) error {
	if _, err := c.updateEndpoint(ctx, s, op, e, e.URL, false, e.CertificateID); err != nil {
		return err
	}
	r := request{op: op, method: http.MethodDelete, url: join(c.o.AuthURL, "endpoints", e.ID)}
	if err := c.do(ctx, r, nil); err != nil && !IsNotFound(err) {
		return err
	}
	s.dropEndpoint(e.ID)
	return nil
}

// DisableEndpoints removes the endpoints of a service (id or name) in a region from the catalogue: all, or those of some interfaces.
func (c *Client) DisableEndpoints(ctx context.Context, s *Snapshot, service, region string, interfaces ...string) (changed bool, err error) {
	for _, e := range s.Endpoints(service) {
		if e.RegionID != region || len(interfaces) > 0 && !slices.Contains(interfaces, e.Interface) {
			continue
		}
		did, err := c.updateEndpoint(ctx, s, fmt.Sprintf("disabling the %s endpoint of %q", e.Interface, service), e, e.URL, false, e.CertificateID)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

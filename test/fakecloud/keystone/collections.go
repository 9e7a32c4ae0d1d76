// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/fakecloud/rest"
)

func (s *Server) collections() []rest.Collection {
	named := []string{"name"}
	return []rest.Collection{
		{Path: "/v3/policies", Singular: "policy", Defaults: rest.Record{"enabled": true, "domain_id": defaultDomain, "scope": "project"},
			Required: append(named, "type", "blob"), Prepare: asChange(changePolicy), Change: changePolicy},
		{Path: "/v3/users", Singular: "user", Required: named, Hide: []string{"password"}, System: "is_system_account",
			Defaults: rest.Record{"domain_id": defaultDomain, "enabled": true, "allow_web_console": true, "is_system_account": false},
			Prepare:  asChange(changeUser), Change: changeUser, Remove: s.removeUser},
		{Path: "/v3/services", Singular: "service", Defaults: rest.Record{"enabled": true}, Required: append(named, "type"),
			Remove: s.removeService},
		{Path: "/v3/regions", Singular: "region", Required: []string{"id"}, Unique: []string{"id"}},
		{Path: "/v3/endpoints", Singular: "endpoint", Defaults: rest.Record{"enabled": true}, Required: []string{"interface", "region_id", "url"},
			Prepare: s.prepareEndpoint, Change: s.withCertificate, Remove: removeEndpoint},
		{Path: "/v3/domains", Singular: "domain", Defaults: rest.Record{"enabled": true}, Required: named},
		{Path: "/v3/projects", Singular: "project", Defaults: rest.Record{"domain_id": defaultDomain, "enabled": true}, Required: named},
		{Path: "/v3/roles", Singular: "role", Defaults: rest.Record{"domain_id": defaultDomain}, Required: named},
		{Path: "/v3/servicecertificates", Singular: "servicecertificate", Required: named, Hide: []string{"private_key"},
			Prepare: asChange(checkCertificate), Remove: s.removeCertificate},
		{Path: "/v3/rolepolicies", Singular: "rolepolicy"},
	}
}

// asChange applies the checks of an update to a new record.
func asChange(change func(context.Context, rest.Record) error) func(context.Context, rest.Call, rest.Record) error {
	return func(ctx context.Context, _ rest.Call, r rest.Record) error { return change(ctx, r) }
}

func changePolicy(_ context.Context, changes rest.Record) error {
	if raw, given := changes["blob"]; given {
		if _, err := rest.Decode(raw); err != nil {
			return rest.BadInput("fail to decode policy data: %v", err)
		}
	}
	return nil
}

// shortestPassword is the default of the real service's option password_minimal_length.
const shortestPassword = 6

func changeUser(_ context.Context, changes rest.Record) error {
	if _, given := changes["password"]; given {
		password := changes.Text("password")
		if password == "" {
			return rest.BadInput("empty password")
		}
		if len(password) < shortestPassword {
			return &rest.Error{Code: http.StatusBadRequest, Class: "WeakPasswordError", Details: "too simple password"}
		}
		changes["password"] = hashPassword(password)
	}
	return nil
}

func (s *Server) removeUser(ctx context.Context, user rest.Record) error {
	if user.Text("name") == adminUser {
		return rest.Forbidden("cannot delete system user")
	}
	assignments, err := s.assignments(ctx, user.Text("id"), "")
	for _, a := range assignments {
		err = errors.Join(err, s.store.Delete(ctx, "assignments", a.Text("id")))
	}
	return err
}

// removeService checks the two rules of the real service: no endpoints, not enabled.
func (s *Server) removeService(ctx context.Context, service rest.Record) error {
	endpoints, err := s.store.List(ctx, "endpoints")
	switch {
	case slices.ContainsFunc(endpoints, func(e rest.Record) bool { return e.Text("service_id") == service.Text("id") }):
		return rest.NotEmpty("service contains endpoints")
	case service.True("enabled"):
		return &rest.Error{Code: http.StatusBadRequest, Class: "InvalidStatusError", Details: "service is enabled"}
	}
	return err
}

func (s *Server) prepareEndpoint(ctx context.Context, _ rest.Call, r rest.Record) error {
	service, err := s.store.Get(ctx, "services", r.Text("service_id"))
	if err != nil {
		return err
	}
	r["service_id"], r["service_name"], r["service_type"] = service.Text("id"), service.Text("name"), service.Text("type")
	if r.Text("name") == "" {
		r["name"] = service.Text("type") + "-" + r.Text("interface")
	}
	return s.withCertificate(ctx, r)
}

// removeEndpoint rejects an endpoint that is still in the catalogue.
func removeEndpoint(_ context.Context, endpoint rest.Record) error {
	if endpoint.True("enabled") {
		return &rest.Error{Code: http.StatusBadRequest, Class: "InvalidStatusError", Details: "endpoint is enabled"}
	}
	return nil
}

// catalog returns the enabled services with their enabled endpoints.
func (s *Server) catalog(ctx context.Context) ([]map[string]any, error) {
	services, err := s.store.List(ctx, "services")
	if err != nil {
		return nil, err
	}
	endpoints, err := s.store.List(ctx, "endpoints")
	if err != nil {
		return nil, err
	}
	catalog := []map[string]any{}
	for _, service := range services {
		entries := []map[string]any{}
		for _, e := range endpoints {
			if e.True("enabled") && e.Text("service_id") == service.Text("id") {
				entries = append(entries, map[string]any{"id": e.Text("id"), "interface": e.Text("interface"), "url": e.Text("url"),
					"region": e.Text("region_id"), "region_id": e.Text("region_id"), "name": e.Text("name")})
			}
		}
		if service.True("enabled") && len(entries) > 0 {
			catalog = append(catalog, map[string]any{"id": service.Text("id"), "name": service.Text("name"),
				"type": service.Text("type"), "endpoints": entries})
		}
	}
	return catalog, nil
}

// checkCertificate rejects a certificate that no client could use, and two CAs of which the second has not signed the first.
func checkCertificate(_ context.Context, r rest.Record) error {
	pair, err := tls.X509KeyPair([]byte(r.Text("certificate")), []byte(r.Text("private_key")))
	if err != nil {
		return rest.BadInput("invalid certificate: %v", err)
	}
	chain, err := pki.ParseCerts([]byte(r.Text("ca_certificate")))
	roots := x509.NewCertPool()
	for i, ca := range chain {
		if roots.AddCert(ca); i > 0 && err == nil {
			err = chain[i-1].CheckSignatureFrom(ca) // it takes a chain, not a list
		}
	}
	if err != nil {
		return rest.BadInput("invalid ca_certificate: %v", err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return rest.BadInput("the certificate is not the CA's: %v", err)
	}
	return nil
}

// withCertificate resolves the certificate of an endpoint, given by id or name. Answers have its id under another name.
func (s *Server) withCertificate(ctx context.Context, endpoint rest.Record) error {
	named := endpoint.Text("service_certificate")
	if named == "" {
		return nil
	}
	certificate, err := s.store.Get(ctx, "servicecertificates", named)
	if err != nil {
		return err
	}
	delete(endpoint, "service_certificate")
	endpoint["cert_id"] = certificate.Text("id")
	return nil
}

// removeCertificate also removes a certificate in use: its endpoints then have none.
func (s *Server) removeCertificate(ctx context.Context, certificate rest.Record) error {
	endpoints, err := s.store.List(ctx, "endpoints")
	for _, e := range endpoints {
		if err == nil && e.Text("cert_id") == certificate.Text("id") {
			_, err = s.store.Update(ctx, "endpoints", e, rest.Record{"cert_id": ""})
		}
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"net/http"
	"slices"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

func (s *Server) collections() []rest.Collection {
	named := func(table, singular string, defaults rest.Record) rest.Collection {
		return rest.Collection{Path: "/v3/" + table, Table: table, Singular: singular, Prepare: prepareNamed(defaults)}
	}
	inDomain := rest.Record{"domain_id": defaultDomain, "enabled": true}
	policies := named("policies", "policy", rest.Record{"enabled": true, "domain_id": defaultDomain})
	policies.Prepare = preparePolicy(policies.Prepare)
	policies.Change = changePolicy
	users := named("users", "user", rest.Record{"domain_id": defaultDomain, "enabled": true, "allow_web_console": true, "is_system_account": false})
	users.Hide, users.Prepare, users.Change = []string{"password"}, prepareUser(users.Prepare), changeUser
	users.Remove = s.removeUser
	services := named("services", "service", rest.Record{"enabled": true})
	services.Prepare, services.Remove = prepareService(services.Prepare), s.removeService
	regions := rest.Collection{Path: "/v3/regions", Table: "regions", Singular: "region", Prepare: prepareRegion}
	endpoints := rest.Collection{Path: "/v3/endpoints", Table: "endpoints", Singular: "endpoint", Prepare: s.prepareEndpoint, Remove: removeEndpoint,
		Change: func(ctx context.Context, _, changes rest.Record) (rest.Record, error) {
			return changes, s.withCertificate(ctx, changes)
		}}
	certificates := named("servicecertificates", "servicecertificate", nil)
	certificates.Hide, certificates.Prepare = []string{"private_key"}, prepareCertificate(certificates.Prepare)
	certificates.Remove = s.removeCertificate
	return []rest.Collection{
		policies, users, services, regions, endpoints,
		named("domains", "domain", rest.Record{"enabled": true}),
		named("projects", "project", inDomain),
		named("roles", "role", rest.Record{"domain_id": defaultDomain}),
		certificates,
		{Path: "/v3/rolepolicies", Table: "rolepolicies", Singular: "rolepolicy"},
	}
}

type prepare = func(context.Context, rest.Call, rest.Record) (rest.Record, string, error)

func prepareNamed(defaults rest.Record) prepare {
	return func(_ context.Context, _ rest.Call, r rest.Record) (rest.Record, string, error) {
		if r.Text("name") == "" {
			return nil, "", rest.BadInput("missing name")
		}
		for key, value := range defaults {
			if _, given := r[key]; !given {
				r[key] = value
			}
		}
		return r, r.Text("name"), nil
	}
}

func preparePolicy(next prepare) prepare {
	return func(ctx context.Context, c rest.Call, r rest.Record) (rest.Record, string, error) {
		if r.Text("scope") == "" {
			r["scope"] = "project"
		}
		if _, err := changePolicy(ctx, nil, r); err != nil {
			return nil, "", err
		}
		if _, given := r["blob"]; !given {
			return nil, "", rest.BadInput("missing policy blob")
		}
		return next(ctx, c, r)
	}
}

func changePolicy(_ context.Context, _, changes rest.Record) (rest.Record, error) {
	if raw, given := changes["blob"]; given {
		if _, err := rest.Decode(raw); err != nil {
			return nil, rest.BadInput("fail to decode policy data: %v", err)
		}
	}
	if scope := changes.Text("scope"); scope != "" && !slices.Contains([]string{"system", "domain", "project"}, scope) {
		return nil, rest.BadInput("invalid scope %q", scope)
	}
	return changes, nil
}

func prepareUser(next prepare) prepare {
	return func(ctx context.Context, c rest.Call, r rest.Record) (rest.Record, string, error) {
		r, err := changeUser(ctx, nil, r)
		if err != nil {
			return nil, "", err
		}
		return next(ctx, c, r)
	}
}

func changeUser(_ context.Context, _, changes rest.Record) (rest.Record, error) {
	if _, given := changes["password"]; given {
		password := changes.Text("password")
		if password == "" {
			return nil, rest.BadInput("empty password")
		}
		changes["password"] = hashPassword(password)
	}
	return changes, nil
}

func (s *Server) removeUser(ctx context.Context, user rest.Record) error {
	if user.Text("name") == adminUser {
		return rest.Forbidden("cannot delete system user")
	}
	assignments, err := s.store.List(ctx, "assignments")
	if err != nil {
		return err
	}
	for _, a := range assignments {
		if a.Text("user_id") == user.Text("id") {
			if err := s.store.Delete(ctx, "assignments", a.Text("id")); err != nil {
				return err
			}
		}
	}
	return nil
}

func prepareService(next prepare) prepare {
	return func(ctx context.Context, c rest.Call, r rest.Record) (rest.Record, string, error) {
		if r.Text("type") == "" {
			return nil, "", rest.BadInput("missing type")
		}
		if r.Text("name") == "" {
			r["name"] = r.Text("type")
		}
		return next(ctx, c, r)
	}
}

// removeService has the two rules of the real one: no endpoints, not enabled.
func (s *Server) removeService(ctx context.Context, service rest.Record) error {
	endpoints, err := s.store.List(ctx, "endpoints")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(endpoints, func(e rest.Record) bool { return e.Text("service_id") == service.Text("id") }) {
		return &rest.Error{Code: http.StatusNotAcceptable, Class: "NotEmptyError", Details: "service contains endpoints"}
	}
	if service.True("enabled") {
		return &rest.Error{Code: http.StatusBadRequest, Class: "InvalidStatusError", Details: "service is enabled"}
	}
	return nil
}

func prepareRegion(_ context.Context, _ rest.Call, r rest.Record) (rest.Record, string, error) {
	if r.Text("id") == "" {
		return nil, "", rest.BadInput("missing id")
	}
	return r, r.Text("id"), nil
}

func (s *Server) prepareEndpoint(ctx context.Context, _ rest.Call, r rest.Record) (rest.Record, string, error) {
	if !slices.Contains([]string{"public", "internal", "admin", "console", "slave"}, r.Text("interface")) {
		return nil, "", rest.BadInput("invalid interface %q", r.Text("interface"))
	}
	if r.Text("url") == "" {
		return nil, "", rest.BadInput("missing url")
	}
	service, err := s.store.Get(ctx, "services", r.Text("service_id"))
	if err != nil {
		return nil, "", err
	}
	region, err := s.store.Get(ctx, "regions", r.Text("region_id"))
	if err != nil {
		return nil, "", err
	}
	if err := s.withCertificate(ctx, r); err != nil {
		return nil, "", err
	}
	r["service_id"], r["region_id"] = service.Text("id"), region.Text("id")
	r["service_name"], r["service_type"] = service.Text("name"), service.Text("type")
	unique := r.Text("service_id") + "/" + r.Text("region_id") + "/" + r.Text("interface")
	if r.Text("name") == "" {
		r["name"] = service.Text("type") + "-" + r.Text("interface")
	}
	if _, given := r["enabled"]; !given {
		r["enabled"] = true
	}
	return r, unique, nil
}

// removeEndpoint refuses what is still in the catalogue.
func removeEndpoint(_ context.Context, endpoint rest.Record) error {
	if endpoint.True("enabled") {
		return &rest.Error{Code: http.StatusBadRequest, Class: "InvalidStatusError", Details: "endpoint is enabled"}
	}
	return nil
}

// catalog lists enabled services with their enabled endpoints.
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

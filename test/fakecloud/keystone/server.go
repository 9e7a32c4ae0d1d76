// SPDX-License-Identifier: Apache-2.0

// Package keystone is a stand-in for the identity service: the part of its REST API that an operator and the other services need. All its data is in
// its database, so replicas share it and a restart keeps it. Like the real one, a fresh keystone forbids everything except policies and roles, and a
// grant takes effect only after the policy cache is refreshed. TestContract compares its answers with those of the real service.
package keystone

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// Tables returns the tables that the database must have.
func Tables() []string {
	return []string{"domains", "projects", "users", "roles", "policies", "rolepolicies", "services", "endpoints", "regions",
		"assignments", "tokens", "service_configs", "servicecertificates"}
}

// Server is one keystone process.
type Server struct {
	store  *rest.Store
	ttl    time.Duration
	grants atomic.Pointer[grants]
}

// Start bootstraps a fresh database and fills the policy cache, which it then refreshes until ctx ends.
func Start(ctx context.Context, s *rest.Store, options servicespec.Values) (*Server, error) {
	if err := bootstrap(ctx, s, options); err != nil {
		return nil, fmt.Errorf("bootstrapping: %w", err)
	}
	server := &Server{store: s, ttl: time.Duration(options.Number("token_expiration_seconds", 86400)) * time.Second}
	if err := server.Refresh(ctx); err != nil {
		return nil, err
	}
	go server.keepFresh(ctx, time.Duration(options.Number("rbac_policy_refresh_interval_seconds", 30))*time.Second)
	return server, nil
}

func (s *Server) keepFresh(ctx context.Context, interval time.Duration) {
	for wait.Sleep(ctx, max(interval, time.Second)) == nil {
		if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
			log.Printf("refreshing policies: %v", err)
		}
	}
}

// Routes returns the whole API.
func (s *Server) Routes() rest.Routes {
	guard := rest.Guard(s.admit)
	routes := rest.Routes{
		{Method: http.MethodGet, Path: "/v3", Handle: func(rest.Call) (any, error) {
			return map[string]any{"version": map[string]any{"id": "v3.0", "status": "stable"}}, nil
		}},
		{Method: http.MethodPost, Path: "/v3/auth/tokens", Handle: s.issueToken},
		{Method: http.MethodGet, Path: "/v3/auth/tokens", Handle: guard.Only("tokens", rest.Perform, s.checkToken)},
		{Method: http.MethodGet, Path: "/v3/auth/policies", Handle: s.matched},
		{Method: http.MethodPost, Path: "/v3/roles/{id}/{action}", Handle: s.changeRole},
		{Method: http.MethodGet, Path: "/v3/services/{id}/config", Handle: guard.Only("services", rest.Get, s.readOptions)},
		{Method: http.MethodPost, Path: "/v3/services/{id}/config", Handle: guard.Only("services", rest.Update, s.writeOptions)},
		{Method: http.MethodGet, Path: "/v3/role_assignments", Handle: s.listAssignments},
		{Method: http.MethodGet, Path: "/v3/users/{user}/projects", Handle: guard.Only("projects", rest.List, s.userProjects)},
		{Method: http.MethodGet, Path: "/v3/projects/{project}/users/{user}/roles", Handle: guard.Only("roles", rest.List, s.userRoles)},
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodGet} {
		routes = append(routes, rest.Route{Method: method, Path: "/v3/projects/{project}/users/{user}/roles/{role}",
			Handle: guard.Only("projects", rest.Perform, s.assign)})
	}
	for _, collection := range s.collections() {
		routes = append(routes, collection.Routes(s.store, guard)...)
	}
	return routes
}

// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// changeRole handles add-policy and remove-policy.
func (s *Server) changeRole(c rest.Call) (any, error) {
	action := c.Params["action"]
	if action != "add-policy" && action != "remove-policy" {
		return nil, rest.NotFound("no action %s on roles", action)
	}
	if _, err := s.admit(c, "roles", rest.Perform, action); err != nil {
		return nil, err
	}
	role, err := s.store.Get(c.Context(), "roles", c.Params["id"])
	if err != nil {
		return nil, err
	}
	input, err := c.Inner("role")
	if err != nil {
		return nil, err
	}
	policy, err := s.store.Get(c.Context(), "policies", input.Text("policy_id"))
	if err != nil {
		return nil, err
	}
	project := rest.Record{}
	if key := input.Text("project_id"); key != "" {
		if project, err = s.store.Get(c.Context(), "projects", key); err != nil {
			return nil, err
		}
	}
	id := role.Text("id") + "/" + project.Text("id") + "/" + policy.Text("id")
	if action == "add-policy" {
		binding := rest.Record{"role_id": role.Text("id"), "project_id": project.Text("id"), "policy_id": policy.Text("id"), "name": id,
			"role": role.Text("name"), "project": project.Text("name"), "policy": policy.Text("name")}
		_, err = s.store.Insert(c.Context(), "rolepolicies", binding, id)
	} else if binding, getErr := s.store.Get(c.Context(), "rolepolicies", id); getErr == nil {
		err = s.store.Delete(c.Context(), "rolepolicies", binding.Text("id"))
	}
	if err != nil && !errors.Is(err, rest.ErrDuplicate) {
		return nil, err
	}
	return map[string]any{"role": role}, nil
}

// assign adds, removes or checks a role of a user in a project.
func (s *Server) assign(c rest.Call) (any, error) {
	ids, err := idsOf(c.Context(), s.store, c.Params["user"], c.Params["project"], c.Params["role"])
	if err != nil {
		return nil, err
	}
	if c.Method == http.MethodPut {
		return map[string]any{}, assignRole(c.Context(), s.store, ids[0], ids[1], ids[2])
	}
	assignments, err := s.assignments(c.Context(), ids[0], ids[1])
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(assignments, func(a rest.Record) bool { return a.Text("role_id") == ids[2] })
	if i < 0 {
		return nil, rest.NotFound("role not assigned")
	}
	if c.Method == http.MethodDelete {
		err = s.store.Delete(c.Context(), "assignments", assignments[i].Text("id"))
	}
	return map[string]any{}, err
}

// assignments returns those of a user in a project; "" means any.
func (s *Server) assignments(ctx context.Context, user, project string) ([]rest.Record, error) {
	all, err := s.store.List(ctx, "assignments")
	return lists.Filter(all, func(a rest.Record) bool {
		return (user == "" || a.Text("user_id") == user) && (project == "" || a.Text("project_id") == project)
	}), err
}

func (s *Server) userRoles(c rest.Call) (any, error) {
	user, err := s.store.Get(c.Context(), "users", c.Params["user"])
	if err != nil {
		return nil, err
	}
	project, err := s.store.Get(c.Context(), "projects", c.Params["project"])
	if err != nil {
		return nil, err
	}
	roles, err := s.rolesOf(c.Context(), user.Text("id"), project.Text("id"))
	return map[string]any{"roles": roles, "total": len(roles)}, err
}

func (s *Server) userProjects(c rest.Call) (any, error) {
	user, err := s.store.Get(c.Context(), "users", c.Params["user"])
	if err != nil {
		return nil, err
	}
	assignments, err := s.assignments(c.Context(), user.Text("id"), "")
	projects := s.existing(c.Context(), "projects", assignments, "project_id")
	return map[string]any{"projects": projects, "total": len(projects)}, err
}

// existing returns the existing records of a table that a field of others names, each once.
func (s *Server) existing(ctx context.Context, table string, by []rest.Record, field string) []rest.Record {
	ids := lists.Unique(lists.Map(by, func(r rest.Record) string { return r.Text(field) }))
	return append([]rest.Record{}, lists.Pick(ids, func(id string) (rest.Record, bool) {
		r, err := s.store.Get(ctx, table, id)
		return r, err == nil
	})...)
}

func (s *Server) listAssignments(c rest.Call) (any, error) {
	query, found := c.URL.Query(), []any{}
	assignments, err := s.assignments(c.Context(), query.Get("user.id"), query.Get("scope.project.id"))
	if err != nil {
		return nil, err
	}
	for _, a := range assignments {
		user, userErr := s.reference(c, "users", a.Text("user_id"))
		role, roleErr := s.reference(c, "roles", a.Text("role_id"))
		project, projectErr := s.reference(c, "projects", a.Text("project_id"))
		if err := errors.Join(userErr, roleErr, projectErr); err != nil {
			return nil, err
		}
		found = append(found, map[string]any{"user": user, "role": role, "scope": map[string]any{"project": project}})
	}
	return map[string]any{"role_assignments": found, "total": len(found)}, nil
}

// reference returns a reference to a record, as other records contain it.
func (s *Server) reference(c rest.Call, table, id string) (map[string]any, error) {
	mention := map[string]any{"id": id}
	if c.URL.Query().Get("include_names") == "" {
		return mention, nil
	}
	r, err := s.store.Get(c.Context(), table, id)
	mention["name"] = r.Text("name")
	return mention, err
}

func (s *Server) readOptions(c rest.Call) (any, error) {
	service, err := s.store.Get(c.Context(), "services", c.Params["id"])
	if err != nil {
		return nil, err
	}
	options, err := loadOptions(c.Context(), s.store, service.Text("id"))
	if err != nil {
		return nil, err
	}
	config := map[string]any{}
	if len(options) > 0 {
		config["default"] = options
	}
	return map[string]any{"service": map[string]any{"config": config}}, nil
}

// writeOptions replaces the stored configuration. The action "update" changes only the given options, "remove" deletes them. The service "common"
// stores only shared options, and every other service only the rest. Options that belong in the file are never stored.
func (s *Server) writeOptions(c rest.Call) (any, error) {
	service, err := s.store.Get(c.Context(), "services", c.Params["id"])
	if err != nil {
		return nil, err
	}
	input, err := c.Inner("service")
	if err != nil {
		return nil, err
	}
	groups, ok := input["config"].(map[string]any)
	if !ok {
		return nil, rest.BadInput("missing config")
	}
	given, _ := groups["default"].(map[string]any)
	given = maps.Clone(given)
	common := service.Text("type") == "common"
	maps.DeleteFunc(given, func(key string, _ any) bool { return !options.Stored(key) || options.Shared(key) != common })
	options := servicespec.StoredOptions{}
	if action := input.Text("action"); action == "update" || action == "remove" {
		if options, err = loadOptions(c.Context(), s.store, service.Text("id")); err != nil {
			return nil, err
		}
		if action == "remove" {
			maps.DeleteFunc(options, func(key string, _ any) bool { _, drop := given[key]; return drop })
			given = nil
		}
	}
	maps.Copy(options, given)
	if err := saveOptions(c.Context(), s.store, service.Text("id"), options); err != nil {
		return nil, err
	}
	return s.readOptions(c)
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"yunion.io/x/ocadm/internal/lists"
)

// Account is a user of the cloud with a project.
type Account struct{ User, Project, Password, UserID, ProjectID string }

// AddAccount creates a user who is administrator of a project.
func (s *Session) AddAccount(ctx context.Context, user, project, password string) (Account, error) {
	out := Account{User: user, Project: project, Password: password}
	for _, o := range []struct {
		kind string
		body map[string]string
		id   *string
	}{
		{"project", map[string]string{"name": project}, &out.ProjectID},
		{"user", map[string]string{"name": user, "password": password}, &out.UserID},
	} {
		var answer map[string]struct{ ID string }
		if _, err := s.call(ctx, http.MethodPost, s.sc.url(1, keystonePort, "/v3/"+o.kind+"s"), map[string]any{o.kind: o.body}, &answer); err != nil {
			return out, fmt.Errorf("adding %s: %w", o.kind, err)
		}
		*o.id = answer[o.kind].ID
	}
	role := "/v3/projects/" + out.ProjectID + "/users/" + out.UserID + "/roles/admin"
	if _, err := s.call(ctx, http.MethodPut, s.sc.url(1, keystonePort, role), nil, nil); err != nil {
		return out, fmt.Errorf("giving %s a role: %w", user, err)
	}
	return out, nil
}

// Whose asks the identity service for the account of a token. The result has no password.
func (s *Session) Whose(ctx context.Context, token string) (Account, error) {
	var answer struct {
		Token struct{ User, Project struct{ ID, Name string } }
	}
	header := http.Header{"X-Auth-Token": {s.token}, "X-Subject-Token": {token}}
	_, text, err := fetch(ctx, s.http, http.MethodGet, s.sc.url(1, keystonePort, "/v3/auth/tokens"), header, nil)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	t := answer.Token
	return Account{User: t.User.Name, UserID: t.User.ID, Project: t.Project.Name, ProjectID: t.Project.ID}, err
}

// Images returns glance's images, as a map from ID to name.
func (s *Session) Images(ctx context.Context) (map[string]string, error) {
	var answer struct{ Images []struct{ ID, Name string } }
	if _, err := s.call(ctx, http.MethodGet, s.sc.url(1, glancePort, "/v1/images"), nil, &answer); err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	out := map[string]string{}
	for _, i := range answer.Images {
		out[i.ID] = i.Name
	}
	return out, nil
}

// AddProject creates a project.
func (s *Session) AddProject(ctx context.Context, name string) error {
	_, err := s.call(ctx, http.MethodPost, s.sc.url(1, keystonePort, "/v3/projects"), map[string]any{"project": map[string]string{"name": name}}, nil)
	return err
}

// Projects returns the names of all projects.
func (s *Session) Projects(ctx context.Context) (map[string]bool, error) {
	var answer struct{ Projects []struct{ Name string } }
	if _, err := s.call(ctx, http.MethodGet, s.sc.url(1, keystonePort, "/v3/projects"), nil, &answer); err != nil {
		return nil, fmt.Errorf("listing projects: %w", err)
	}
	return lists.Set(answer.Projects, func(p struct{ Name string }) string { return p.Name }), nil
}

// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// open returns the record of a token. Tokens are in the database, so that every replica knows them.
func (s *Server) open(ctx context.Context, token string) (rest.Record, error) {
	r, err := s.store.Get(ctx, "tokens", token)
	if err != nil && !errors.Is(err, rest.ErrNotFound) {
		return nil, err
	}
	if expires, timeErr := time.Parse(time.RFC3339, r.Text("expires_at")); err != nil || timeErr != nil || time.Now().After(expires) {
		return nil, &rest.Error{Code: http.StatusUnauthorized, Class: "InvalidCredentialError", Details: "invalid token"}
	}
	return r, nil
}

// principal is a caller: the user, the project and the roles.
type principal struct {
	user, project rest.Record
	roles         []rest.Record
}

func (s *Server) principal(ctx context.Context, token rest.Record) (principal, error) {
	user, err := s.store.Get(ctx, "users", token.Text("user_id"))
	if errors.Is(err, rest.ErrNotFound) || err == nil && !user.True("enabled") {
		return principal{}, &rest.Error{Code: http.StatusUnauthorized, Class: "InvalidCredentialError", Details: "invalid user"}
	}
	if err != nil || token.Text("project_id") == "" {
		return principal{user: user}, err
	}
	project, err := s.store.Get(ctx, "projects", token.Text("project_id"))
	if err != nil {
		return principal{}, err
	}
	roles, err := s.rolesOf(ctx, user.Text("id"), project.Text("id"))
	return principal{user, project, roles}, err
}

func (s *Server) rolesOf(ctx context.Context, user, project string) ([]rest.Record, error) {
	assignments, err := s.assignments(ctx, user, project)
	return s.existing(ctx, "roles", assignments, "role_id"), err
}

// authRequest is the body of POST /v3/auth/tokens.
type authRequest struct {
	Auth struct {
		Identity struct {
			Methods  []string
			Password struct {
				User struct {
					ID, Name, Password string
					Domain             reference
				}
			}
			Token struct{ ID string }
		}
		Scope struct {
			Project struct {
				reference
				Domain reference
			}
		}
	}
}

type reference struct{ ID, Name string }

func (r reference) key() string { return cmp.Or(r.ID, r.Name) }

func (s *Server) issueToken(c rest.Call) (any, error) {
	if c.Body == nil {
		return nil, rest.BadInput("fail to decode request body")
	}
	data, err := json.Marshal(c.Body)
	if err != nil {
		return nil, fmt.Errorf("encoding body: %w", err)
	}
	var request authRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, rest.BadInput("unrecognized input %v", err)
	}
	user, err := s.authenticate(c.Context(), request)
	if err != nil {
		return nil, unauthorized(err)
	}
	token := rest.Record{"id": "gAAAAA" + rest.NewID(), "user_id": user.Text("id"), "expires_at": time.Now().Add(s.ttl).UTC().Format(time.RFC3339)}
	if key := request.Auth.Scope.Project.key(); key != "" {
		project, err := s.store.Get(c.Context(), "projects", key)
		if err != nil {
			return nil, unauthorized(fmt.Errorf("ProjectManager.FetchProject: %w", err))
		}
		token["project_id"] = project.Text("id")
	}
	who, err := s.principal(c.Context(), token)
	if err == nil && who.project != nil && len(who.roles) == 0 {
		err = errors.New("[auth] user not in project")
	}
	if err != nil {
		return nil, unauthorized(err)
	}
	if token, err = s.store.Insert(c.Context(), "tokens", token, ""); err != nil {
		return nil, err
	}
	return s.answerToken(c.Context(), token, who)
}

// unauthorized returns the answer to a login that failed. Even an unreachable database is one.
func unauthorized(err error) error {
	if refusal, ok := errors.AsType[*rest.Error](err); ok {
		return refusal
	}
	text := err.Error()
	if errors.Is(err, rest.ErrNotFound) {
		text += ": sql: no rows in result set"
	}
	return &rest.Error{Code: http.StatusUnauthorized, Class: "UnauthorizedError", Details: "unauthorized " + text}
}

func (s *Server) authenticate(ctx context.Context, request authRequest) (rest.Record, error) {
	identity := request.Auth.Identity
	if slices.Contains(identity.Methods, "token") {
		token, err := s.open(ctx, identity.Token.ID)
		if err != nil {
			return nil, fmt.Errorf("[auth] %v", err) //nolint:errorlint // another answer
		}
		who, err := s.principal(ctx, token)
		return who.user, err
	}
	if !slices.Contains(identity.Methods, "password") {
		return nil, errors.New("[auth] invalid auth methods")
	}
	given := identity.Password.User
	user, err := s.store.Get(ctx, "users", reference{given.ID, given.Name}.key())
	domain := rest.Record{"enabled": true}
	if err == nil && given.Domain.key() != "" {
		if domain, err = s.store.Get(ctx, "domains", given.Domain.key()); err == nil && domain.Text("id") != user.Text("domain_id") {
			err = rest.ErrNotFound
		}
	}
	switch {
	case errors.Is(err, rest.ErrNotFound):
		return nil, &rest.Error{Code: http.StatusNotFound, Class: "UserNotFound", Details: "unauthorized UserNotFound"}
	case err != nil:
		return nil, err
	case !user.True("enabled"): // whatever the password
		return nil, &rest.Error{Code: http.StatusLocked, Class: "UserDisabled", Details: "UserDisabled"}
	case user.Text("password") == "":
		return nil, errors.New("VerifyPassword: sql: no rows in result set")
	case !checkPassword(user.Text("password"), given.Password):
		return nil, &rest.Error{Code: http.StatusUnauthorized, Class: "WrongPassword", Details: "unauthorized WrongPassword"}
	case !domain.True("enabled"):
		return nil, errors.New("[auth] domain is disabled")
	}
	return user, nil
}

// checkToken returns the principal of a token to the service that received it.
func (s *Server) checkToken(c rest.Call) (any, error) {
	token, err := s.open(c.Context(), c.Header.Get("X-Subject-Token"))
	if err != nil {
		return nil, err
	}
	who, err := s.principal(c.Context(), token)
	if err != nil {
		return nil, err
	}
	return s.answerToken(c.Context(), token, who)
}

func (s *Server) answerToken(ctx context.Context, token rest.Record, who principal) (any, error) {
	catalog, err := s.catalog(ctx)
	if err != nil {
		return nil, err
	}
	domain := map[string]any{"id": defaultDomain, "name": "Default"}
	answer := map[string]any{
		"methods": []string{"password"}, "expires_at": token["expires_at"], "issued_at": token["created_at"],
		"user":    map[string]any{"id": who.user.Text("id"), "name": who.user.Text("name"), "domain": domain},
		"catalog": catalog, "policies": s.grants.Load().names(who),
	}
	if who.project != nil {
		answer["project"] = map[string]any{"id": who.project.Text("id"), "name": who.project.Text("name"), "domain": domain}
		roles := []map[string]any{}
		for _, role := range who.roles {
			roles = append(roles, map[string]any{"id": role.Text("id"), "name": role.Text("name")})
		}
		answer["roles"] = roles
	}
	return rest.Reply{Header: map[string]string{"X-Subject-Token": token.Text("id")}, Body: map[string]any{"token": answer}}, nil
}

// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// claims is what a token carries, sealed with the key in the database: any replica opens it.
type claims struct {
	User    string    `json:"u"`
	Project string    `json:"p,omitempty"`
	Expires time.Time `json:"e"`
}

func (s *Server) seal(c claims) (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding token: %w", err)
	}
	aead, err := s.cipher()
	if err != nil {
		return "", err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	return "gAAAAA" + base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, data, nil)), nil
}

func (s *Server) open(token string) (claims, error) {
	invalid := &rest.Error{Code: http.StatusUnauthorized, Class: "InvalidCredentialError", Details: "invalid token"}
	if len(token) < 6 {
		return claims{}, invalid
	}
	data, err := base64.RawURLEncoding.DecodeString(token[6:])
	if err != nil {
		return claims{}, invalid
	}
	aead, err := s.cipher()
	if err != nil {
		return claims{}, err
	}
	if len(data) < aead.NonceSize() {
		return claims{}, invalid
	}
	plain, err := aead.Open(nil, data[:aead.NonceSize()], data[aead.NonceSize():], nil)
	var c claims
	if err != nil || json.Unmarshal(plain, &c) != nil || time.Now().After(c.Expires) {
		return claims{}, invalid
	}
	return c, nil
}

func (s *Server) cipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(s.key)
	if err != nil {
		return nil, fmt.Errorf("reading token key: %w", err)
	}
	return cipher.NewGCM(block)
}

// principal is a caller: who, where, with which roles.
type principal struct {
	user, project rest.Record
	roles         []rest.Record
}

func (p principal) hasRole(name string) bool {
	return slices.ContainsFunc(p.roles, func(r rest.Record) bool { return r.Text("name") == name })
}

func (s *Server) principal(ctx context.Context, c claims) (principal, error) {
	user, err := s.store.Get(ctx, "users", c.User)
	if errors.Is(err, rest.ErrNotFound) || err == nil && !user.True("enabled") {
		return principal{}, &rest.Error{Code: http.StatusUnauthorized, Class: "InvalidCredentialError", Details: "invalid user"}
	}
	if err != nil || c.Project == "" {
		return principal{user: user}, err
	}
	project, err := s.store.Get(ctx, "projects", c.Project)
	if err != nil {
		return principal{}, err
	}
	roles, err := s.rolesOf(ctx, user.Text("id"), project.Text("id"))
	return principal{user, project, roles}, err
}

func (s *Server) rolesOf(ctx context.Context, user, project string) ([]rest.Record, error) {
	assignments, err := s.store.List(ctx, "assignments")
	if err != nil {
		return nil, err
	}
	roles := []rest.Record{}
	for _, a := range assignments {
		if a.Text("user_id") != user || a.Text("project_id") != project {
			continue
		}
		role, err := s.store.Get(ctx, "roles", a.Text("role_id"))
		if err == nil {
			roles = append(roles, role)
		}
	}
	return roles, nil
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

func (r reference) key() string {
	if r.ID != "" {
		return r.ID
	}
	return r.Name
}

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
		return nil, err
	}
	claim := claims{User: user.Text("id"), Expires: time.Now().Add(s.ttl).UTC().Truncate(time.Second)}
	if key := request.Auth.Scope.Project.key(); key != "" {
		project, err := s.store.Get(c.Context(), "projects", key)
		if errors.Is(err, rest.ErrNotFound) {
			return nil, &rest.Error{Code: http.StatusNotFound, Class: "ProjectNotFound", Details: "unauthorized ProjectNotFound"}
		}
		if err != nil {
			return nil, err
		}
		claim.Project = project.Text("id")
	}
	who, err := s.principal(c.Context(), claim)
	if err != nil {
		return nil, err
	}
	if claim.Project != "" && len(who.roles) == 0 {
		return nil, rest.Unauthorized("unauthorized [auth] user not in project")
	}
	return s.answerToken(c.Context(), claim, who)
}

func (s *Server) authenticate(ctx context.Context, request authRequest) (rest.Record, error) {
	identity := request.Auth.Identity
	if slices.Contains(identity.Methods, "token") {
		claim, err := s.open(identity.Token.ID)
		if err != nil {
			return nil, err
		}
		who, err := s.principal(ctx, claim)
		return who.user, err
	}
	if !slices.Contains(identity.Methods, "password") {
		return nil, rest.BadInput("unsupported authentication methods %v", identity.Methods)
	}
	given := identity.Password.User
	user, err := s.store.Get(ctx, "users", reference{given.ID, given.Name}.key())
	if err == nil && given.Domain.key() != "" {
		var domain rest.Record
		if domain, err = s.store.Get(ctx, "domains", given.Domain.key()); err == nil && domain.Text("id") != user.Text("domain_id") {
			err = rest.ErrNotFound
		}
	}
	switch {
	case errors.Is(err, rest.ErrNotFound):
		return nil, &rest.Error{Code: http.StatusNotFound, Class: "UserNotFound", Details: "unauthorized UserNotFound"}
	case err != nil:
		return nil, err
	case !checkPassword(user.Text("password"), given.Password):
		return nil, &rest.Error{Code: http.StatusUnauthorized, Class: "WrongPassword", Details: "unauthorized WrongPassword"}
	case !user.True("enabled"):
		return nil, &rest.Error{Code: http.StatusForbidden, Class: "UserDisabled", Details: "unauthorized UserDisabled"}
	}
	return user, nil
}

// checkToken tells a service whose token it was given.
func (s *Server) checkToken(c rest.Call) (any, error) {
	if err := s.guard(c, "tokens", rest.Perform); err != nil {
		return nil, err
	}
	claim, err := s.open(c.Header.Get("X-Subject-Token"))
	if err != nil {
		return nil, err
	}
	who, err := s.principal(c.Context(), claim)
	if err != nil {
		return nil, err
	}
	return s.answerToken(c.Context(), claim, who)
}

func (s *Server) answerToken(ctx context.Context, claim claims, who principal) (any, error) {
	id, err := s.seal(claim)
	if err != nil {
		return nil, err
	}
	catalog, err := s.catalog(ctx)
	if err != nil {
		return nil, err
	}
	domain := map[string]any{"id": defaultDomain, "name": "Default"}
	token := map[string]any{
		"methods": []string{"password"}, "expires_at": claim.Expires, "issued_at": time.Now().UTC().Truncate(time.Second),
		"user":    map[string]any{"id": who.user.Text("id"), "name": who.user.Text("name"), "domain": domain},
		"catalog": catalog, "policies": s.grants.Load().names(who),
	}
	if who.project != nil {
		token["project"] = map[string]any{"id": who.project.Text("id"), "name": who.project.Text("name"), "domain": domain}
		roles := []map[string]any{}
		for _, role := range who.roles {
			roles = append(roles, map[string]any{"id": role.Text("id"), "name": role.Text("name")})
		}
		token["roles"] = roles
	}
	return rest.Reply{Header: map[string]string{"X-Subject-Token": id}, Body: map[string]any{"token": token}}, nil
}

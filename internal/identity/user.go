// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"net/http"
)

// EnsureUser creates the account of a service, or corrects its flags, enables it, and resets its password if logging in with it fails. User lists hide such an
// account, and it may not use the web console.
func (c *Client) EnsureUser(ctx context.Context, s *Snapshot, name, password string) (id string, changed bool, err error) {
	if password == "" {
		return "", false, &Error{Class: ClassMismatch, Op: creating(users, name), Title: "an account needs a password"}
	}
	user, ok := s.User(name)
	if !ok {
		var made bool
		if user, made, err = c.createUser(ctx, name, password); err != nil {
			return "", false, err
		}
		s.putUser(user)
		if made {
			return user.ID, true, nil
		}
	}
	fields := changes(field{"is_system_account", user.IsSystemAccount, true}, field{"allow_web_console", user.AllowWebConsole, false}, field{"enabled", user.Enabled, true})
	works := false // a disabled user cannot log in: the service answers 423 to any password
	if user.Enabled {
		if works, err = c.passwordWorks(ctx, name, password); err != nil {
			return "", false, err
		}
	}
	if !works {
		fields["password"] = password
	}
	if len(fields) == 0 {
		return user.ID, false, nil
	}
	op := fmt.Sprintf("updating user %q", name)
	if _, err := write[User](ctx, c, http.MethodPut, op, join(c.o.AuthURL, "users", user.ID), "user", fields, password); err != nil {
		return "", false, err
	}
	user.IsSystemAccount, user.AllowWebConsole, user.Enabled = true, false, true
	s.putUser(user)
	return user.ID, true, nil
}

func (c *Client) createUser(ctx context.Context, name, password string) (u User, made bool, err error) {
	u, made, err = create[User](ctx, c, users, name, map[string]any{
		"name": name, "password": password, "is_system_account": true, "allow_web_console": false,
	}, password)
	if !made {
		return u, false, err
	}
	u.Name, u.IsSystemAccount, u.AllowWebConsole, u.Enabled = name, true, false, true
	return u, true, nil
}

// EnsureUserRole gives the user (id or name) the role in the project.
func (c *Client) EnsureUserRole(ctx context.Context, s *Snapshot, user, project, role string) (changed bool, err error) {
	if s.HasRole(user, project, role) {
		return false, nil
	}
	op := fmt.Sprintf("giving user %q the role %q in project %q", user, role, project)
	id := user
	if u, ok := s.User(user); ok {
		id = u.ID
	}
	r := request{op: op, method: http.MethodPut, url: join(c.o.AuthURL, "projects", project, "users", id, "roles", role), body: map[string]any{}}
	if err := c.do(ctx, r, nil); err != nil {
		return false, err
	}
	a := assignment{User: ref{ID: id}, Role: ref{Name: role}}
	a.Scope.Project = ref{Name: project}
	put(s, &s.assignments, a, func(assignment) bool { return false })
	return true, nil
}

// AllowWebConsole lets the user (id or name) log in at the web console.
func (c *Client) AllowWebConsole(ctx context.Context, user string) (changed bool, err error) {
	op := fmt.Sprintf("allowing user %q to use the web console", user)
	u, err := get[User](ctx, c, c.o.AuthURL, "users", "user", user)
	if err != nil {
		return false, err
	}
	if u == nil {
		return false, &Error{Status: http.StatusNotFound, Class: "UserNotFound", Op: op, Title: "there is no such user"}
	}
	if u.AllowWebConsole {
		return false, nil
	}
	_, err = write[User](ctx, c, http.MethodPatch, op, join(c.o.AuthURL, "users", u.ID), "user", map[string]any{"allow_web_console": true})
	return err == nil, err
}

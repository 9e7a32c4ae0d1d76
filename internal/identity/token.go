// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/http"
	"time"
)

type ref struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

func (r ref) is(idOrName string) bool { return r.ID == idOrName || r.Name == idOrName }

type token struct {
	id              string
	issued, expires time.Time
	user            struct {
		ref
		Domain ref `json:"domain"`
	}
	project ref
}

type tokenAnswer struct {
	Token struct {
		ExpiresAt time.Time `json:"expires_at"`
		User      struct {
			ref
			Domain ref `json:"domain"`
		} `json:"user"`
		Project ref `json:"project"`
	} `json:"token"`
}

// session returns the cached token, or a new one if there is none, if it expires soon, or if it is the refused one.
func (c *Client) session(ctx context.Context, refused *token) (*token, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.token; t != nil && t != refused && (t.expires.IsZero() || c.o.Now().Add(renewEarly).Before(t.expires)) {
		return t, nil
	}
	if c.refused != nil && c.o.Now().Before(c.refusedUntil) {
		return nil, c.refused
	}
	t, err := c.login(ctx, c.o.Username, c.o.Password, c.o.Project)
	if err != nil {
		if c.refused = nil; IsLoginRefused(err, c.o.Username) {
			c.refused, c.refusedUntil = err, c.o.Now().Add(refusedFor)
		}
		return nil, err
	}
	c.token, c.refused = t, nil
	return t, nil
}

// Login requests a first token. Other calls do so by themselves; Login is for checking that the account works.
func (c *Client) Login(ctx context.Context) error {
	_, err := c.session(ctx, nil)
	return err
}

// CheckLogin tries to log in as another user. Without a project the login has no scope, so that an account without roles passes too.
func (c *Client) CheckLogin(ctx context.Context, user, password, project string) error {
	_, err := c.login(ctx, user, password, project)
	return err
}

func (c *Client) login(ctx context.Context, user, password, project string) (*token, error) {
	type object = map[string]any
	domain := object{"name": c.o.Domain}
	auth := object{
		"context": object{"source": "operator"},
		"identity": object{
			"methods":  []string{"password"},
			"password": object{"user": object{"name": user, "password": password, "domain": domain}},
		},
	}
	if project != "" {
		auth["scope"] = object{"project": object{"name": project, "domain": domain}}
	}
	r := request{
		op: opLogin(user), method: http.MethodPost, url: c.o.AuthURL + "/auth/tokens",
		body: object{"auth": auth}, secrets: []string{password},
	}
	var answer tokenAnswer
	header, err := c.send(ctx, r, "", &answer)
	if err != nil {
		return nil, ofLogin(err)
	}
	t := &token{id: header.Get("X-Subject-Token"), issued: c.o.Now(), expires: answer.Token.ExpiresAt, user: answer.Token.User, project: answer.Token.Project}
	if t.id == "" {
		return nil, &Error{Status: http.StatusOK, Class: ClassMalformed, Op: r.op, URL: r.url, Title: "the response has no X-Subject-Token"}
	}
	return t, nil
}

// passwordWorks reports whether the user can log in with the password. Any other outcome is an error.
func (c *Client) passwordWorks(ctx context.Context, user, password string) (bool, error) {
	err := c.CheckLogin(ctx, user, password, "")
	if IsUnauthorized(err) {
		return false, nil
	}
	return err == nil, err
}

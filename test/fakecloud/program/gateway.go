// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"crypto/aes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// gateway returns the API of apigateway: login, list of regions, and a list that it forwards to a service.
func (s Service) gateway() rest.Routes {
	return rest.Routes{
		{Method: http.MethodPost, Path: "/api/v1/auth/login", Handle: s.login},
		{Method: http.MethodGet, Path: "/api/v1/auth/regions", Handle: s.regions},
		{Method: http.MethodGet, Path: "/api/v2/images", Handle: s.images},
	}
}

// login accepts {"username","password"(base64),"domain"}. It returns the token in the body, in a header and in a cookie of the real form: base64 of
// JSON with the token as "session".
func (s Service) login(c rest.Call) (any, error) {
	name := c.Body.Text("username")
	password, err := base64.StdEncoding.DecodeString(c.Body.Text("password"))
	if err != nil {
		return nil, rest.BadInput("password is not base64")
	}
	if len(password) > aes.BlockSize && len(password)%aes.BlockSize != 0 {
		// The real one first tries to decrypt it with AES-CBC, and panics.
		return nil, errors.New("crypto/cipher: input not full blocks")
	}
	if name == "" || len(password) == 0 {
		return nil, rest.BadInput("username or password is empty")
	}
	domain := cmp.Or(c.Body.Text("domain"), "Default")
	token, err := s.Cloud.Authenticate(c.Context(), name, string(password), domain, "")
	if err != nil {
		return nil, &rest.Error{Code: http.StatusUnauthorized, Class: "InvalidCredentialError", Details: "username/password incorrect"}
	}
	var user struct{ User map[string]any }
	if err := s.Cloud.Identity(c.Context(), http.MethodGet, "/users/"+token.User.ID, nil, &user); err != nil {
		return nil, fmt.Errorf("reading user: %w", err)
	}
	if allowed, ok := user.User["allow_web_console"].(bool); ok && !allowed {
		return nil, rest.Forbidden("user forbidden login from web")
	}
	var joined struct{ Projects []struct{ Name string } }
	if err := s.Cloud.Identity(c.Context(), http.MethodGet, "/users/"+token.User.ID+"/projects", nil, &joined); err != nil {
		return nil, fmt.Errorf("reading projects: %w", err)
	}
	if len(joined.Projects) > 0 {
		if token, err = s.Cloud.Authenticate(c.Context(), name, string(password), domain, joined.Projects[0].Name); err != nil {
			return nil, fmt.Errorf("entering project: %w", err)
		}
	}
	cookie, err := json.Marshal(map[string]any{"session": token.ID, "user": name, "exp": token.ExpiresAt})
	if err != nil {
		return nil, fmt.Errorf("encoding cookie: %w", err)
	}
	return rest.Reply{
		Header: map[string]string{
			"X-Auth-Token": token.ID,
			"Set-Cookie":   (&http.Cookie{Name: "yunionauth", Value: base64.RawURLEncoding.EncodeToString(cookie), Path: "/", Expires: token.ExpiresAt}).String(),
		},
		Body: map[string]any{"token": token.ID, "user": name, "project": token.Project.Name, "expires_at": token.ExpiresAt},
	}, nil
}

func (s Service) regions(c rest.Call) (any, error) {
	regions := s.Cloud.Current().Regions() // of the service's own session, as in the real one
	if len(regions) == 0 {
		return nil, fmt.Errorf("region is empty")
	}
	var domains struct {
		Domains []struct {
			Name    string
			Enabled bool
		}
	}
	if err := s.Cloud.Identity(c.Context(), http.MethodGet, "/domains", nil, &domains); err != nil {
		return nil, fmt.Errorf("listing domains: %w", err)
	}
	names := []string{}
	for _, d := range domains.Domains {
		if d.Enabled {
			names = append(names, d.Name)
		}
	}
	var common struct {
		Config struct{ Default map[string]any }
	}
	// Without the service "common", a cloud has no api_server to show.
	_ = s.Cloud.Identity(c.Context(), http.MethodGet, "/services/common/config", nil, &common)
	apiServer, _ := common.Config.Default["api_server"].(string)
	return map[string]any{"regions": regions, "domains": names, "idps": []any{}, "api_server": cmp.Or(apiServer, s.Options.Text("api_server", "")),
		"captcha": s.Options.Flag("show_captcha"), "encrypt_passwd": false}, nil
}

// images forwards a list of images with the caller's token.
func (s Service) images(c rest.Call) (any, error) {
	token := c.Header.Get("X-Auth-Token")
	who, err := s.Cloud.Check(c.Context(), token)
	if err != nil {
		return nil, fmt.Errorf("checking token: %w", err)
	}
	base, found := who.Endpoint("image", "internal", s.Options.Text("region", ""))
	if !found {
		return nil, rest.NotFound("no endpoint of image")
	}
	answer, _, err := s.Cloud.Send(c.Context(), http.MethodGet, base+"/images?"+c.URL.RawQuery, map[string]string{"X-Auth-Token": token}, nil)
	return json.RawMessage(answer), err
}

// SPDX-License-Identifier: Apache-2.0

// Package program contains a stand-in's client of keystone and of the other services. It logs in, reads the catalogue, checks a caller's token and
// keeps the service configuration. It verifies certificates, which the real clients never do.
package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// UserAgent is the user agent of the cloud's own clients.
const UserAgent = "yunioncloud-go/201708"

// Credentials is an account and the place to log in.
type Credentials struct {
	AuthURL                         string
	User, Password, Domain, Project string
	Authorities                     *x509.CertPool
	Insecure                        bool
	// Dial replaces the default dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport replaces the network.
	Transport http.RoundTripper
}

// Client is a session. It logs in again if its token is rejected.
type Client struct {
	credentials Credentials
	http        *http.Client

	mu    sync.Mutex
	token Token
}

// Token is a scoped token and its details from keystone.
type Token struct {
	ID      string
	User    struct{ ID string }
	Project struct {
		ID, Name string
		Domain   struct{ ID string }
	}
	ExpiresAt time.Time `json:"expires_at"`
	Catalog   []struct {
		Type      string
		Endpoints []struct {
			Interface, URL string
			RegionID       string `json:"region_id"`
		}
	}
}

// Endpoint returns the URL of a service in a region; an empty region matches any.
func (t Token) Endpoint(serviceType, iface, region string) (string, bool) {
	for _, service := range t.Catalog {
		if service.Type != serviceType {
			continue
		}
		for _, e := range service.Endpoints {
			if e.Interface == iface && (region == "" || e.RegionID == region) {
				return e.URL, true
			}
		}
	}
	return "", false
}

// Regions returns the regions that have endpoints.
func (t Token) Regions() []string {
	regions := []string{}
	for _, service := range t.Catalog {
		for _, e := range service.Endpoints {
			if e.RegionID != "" && !slices.Contains(regions, e.RegionID) {
				regions = append(regions, e.RegionID)
			}
		}
	}
	return regions
}

// patience is the timeout for other services. It is long, because the machine may be busy.
const patience = 30 * time.Second

// New returns a session that has not logged in yet.
func New(c Credentials) *Client {
	if c.Transport == nil {
		c.Transport = &http.Transport{
			DialContext:         c.Dial,
			TLSClientConfig:     &tls.Config{RootCAs: c.Authorities, InsecureSkipVerify: c.Insecure, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
		}
	}
	return &Client{credentials: c, http: &http.Client{Transport: c.Transport, Timeout: patience}}
}

// Login gets a token. A refusal by keystone is returned as *rest.Error.
func (c *Client) Login(ctx context.Context) (Token, error) {
	token, err := c.Authenticate(ctx, c.credentials.User, c.credentials.Password, c.credentials.Domain, c.credentials.Project)
	if err != nil {
		return Token{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
	return token, nil
}

// Authenticate gets a token for any account, unscoped if project is empty.
func (c *Client) Authenticate(ctx context.Context, user, password, domain, project string) (Token, error) {
	auth := map[string]any{
		"context": map[string]any{"source": "srv"},
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": user, "password": password, "domain": map[string]any{"name": domain}},
		}},
	}
	if project != "" {
		auth["scope"] = map[string]any{"project": map[string]any{"name": project, "domain": map[string]any{"name": domain}}}
	}
	answer, header, err := c.Send(ctx, http.MethodPost, c.credentials.AuthURL+"/auth/tokens", nil, map[string]any{"auth": auth})
	if err != nil {
		return Token{}, err
	}
	return readToken(answer, header.Get("X-Subject-Token"))
}

// Check asks keystone for the details of a token.
func (c *Client) Check(ctx context.Context, token string) (Token, error) {
	answer, err := c.do(ctx, http.MethodGet, c.credentials.AuthURL+"/auth/tokens", map[string]string{"X-Subject-Token": token}, nil)
	if err != nil {
		return Token{}, err
	}
	return readToken(answer, token)
}

// Policies asks keystone for the effective policies of a token's owner.
func (c *Client) Policies(ctx context.Context, token string) (rest.Policies, error) {
	answer, _, err := c.Send(ctx, http.MethodGet, c.credentials.AuthURL+"/auth/policies", map[string]string{"X-Auth-Token": token}, nil)
	if err != nil {
		return nil, err
	}
	var body struct{ Policies map[string][]any }
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	policies := rest.Policies{}
	for scope, all := range body.Policies {
		for _, rules := range all {
			policy, err := rest.DecodeRules(rules)
			if err != nil {
				return nil, fmt.Errorf("reading a policy: %w", err)
			}
			policies[scope] = append(policies[scope], policy)
		}
	}
	return policies, nil
}

func readToken(answer []byte, id string) (Token, error) {
	var body struct{ Token Token }
	if err := json.Unmarshal(answer, &body); err != nil {
		return Token{}, fmt.Errorf("reading token: %w", err)
	}
	body.Token.ID = id
	return body.Token, nil
}

// Current returns the last token of this session.
func (c *Client) Current() Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// Identity calls keystone with this session's token.
func (c *Client) Identity(ctx context.Context, method, path string, body, out any) error {
	return c.Call(ctx, method, c.credentials.AuthURL+path, body, out)
}

// Call calls any URL with this session's token and decodes the response.
func (c *Client) Call(ctx context.Context, method, target string, body, out any) error {
	answer, err := c.do(ctx, method, target, nil, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("reading answer of %s %s: %w", method, target, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, target string, header map[string]string, body any) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		headers := map[string]string{"X-Auth-Token": c.Current().ID}
		maps.Copy(headers, header)
		answer, _, err := c.Send(ctx, method, target, headers, body)
		var refusal *rest.Error
		if !errors.As(err, &refusal) || refusal.Code != http.StatusUnauthorized && refusal.Code != http.StatusForbidden || attempt > 0 {
			return answer, err
		}
		if _, err := c.Login(ctx); err != nil {
			return nil, err
		}
	}
}

// Send sends one plain request.
func (c *Client) Send(ctx context.Context, method, target string, header map[string]string, body any) ([]byte, http.Header, error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, nil, fmt.Errorf("making request: %w", err)
	}
	request.Header.Set("User-Agent", UserAgent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("calling service: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("reading answer of %s: %w", target, err)
	}
	if response.StatusCode >= 300 {
		refusal := &rest.Error{}
		if json.Unmarshal(answer, refusal) != nil || refusal.Class == "" {
			refusal.Details = strings.TrimSpace(string(answer))
		}
		refusal.Code = response.StatusCode
		return nil, nil, refusal
	}
	return answer, response.Header, nil
}

// ServiceID returns the id of a registered service by type, "" if there is none.
func (c *Client) ServiceID(ctx context.Context, serviceType string) (string, error) {
	var list struct{ Services []struct{ ID string } }
	if err := c.Identity(ctx, http.MethodGet, "/services?type="+url.QueryEscape(serviceType), nil, &list); err != nil {
		return "", err
	}
	if len(list.Services) == 0 {
		return "", nil
	}
	return list.Services[0].ID, nil
}

// SyncOptions merges the stored configuration of the service and of "common" over the file, and uploads the result. It returns the options of the
// file if the service is not registered yet or keystone does not let it read.
func (c *Client) SyncOptions(ctx context.Context, file servicespec.Values, p servicespec.Spec) servicespec.Values {
	ownID, own, ownErr := c.stored(ctx, p.StoredIn)
	commonID, common, commonErr := c.stored(ctx, "common")
	for _, err := range []error{ownErr, commonErr} {
		if err != nil {
			log.Printf("reading stored configuration: %v", err)
		}
	}
	merged, changed := servicespec.Merge(file, p.Schema(), own, common)
	servicespec.LogChanges(changed)
	ownUpload, commonUpload := servicespec.Upload(merged)
	if ownID != "" && ownErr == nil {
		c.upload(ctx, ownID, ownUpload, "")
	}
	maps.DeleteFunc(commonUpload, func(key string, _ any) bool { _, have := common[key]; return have })
	if commonID != "" && commonErr == nil && len(commonUpload) > 0 {
		c.upload(ctx, commonID, commonUpload, "update")
	}
	return merged
}

func (c *Client) stored(ctx context.Context, serviceType string) (string, servicespec.StoredOptions, error) {
	id, err := c.ServiceID(ctx, serviceType)
	if err != nil || id == "" {
		return "", nil, err
	}
	var answer struct {
		Service struct {
			Config struct{ Default servicespec.StoredOptions }
		}
	}
	if err := c.Identity(ctx, http.MethodGet, "/services/"+id+"/config", nil, &answer); err != nil {
		return "", nil, err
	}
	return id, answer.Service.Config.Default, nil
}

func (c *Client) upload(ctx context.Context, id string, options servicespec.StoredOptions, action string) {
	service := map[string]any{"config": map[string]any{"default": options}}
	if action != "" {
		service["action"] = action
	}
	body := map[string]any{"service": service}
	if err := c.Identity(ctx, http.MethodPost, "/services/"+id+"/config", body, nil); err != nil {
		log.Print(fmt.Errorf("uploading configuration: %w", err))
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package identity is a client of the cloud's identity service, and of the two services (region, yunionconf) that need a few records after their
// first start. Ensure calls are idempotent: they look, change only what differs, and report whether they changed anything. It is not a general client
// of the cloud, and it never waits: a caller that gets Forbidden or Unavailable tries again later.
package identity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	defaultTimeout   = 30 * time.Second
	defaultUserAgent = "ocadm (yunioncloud-go/201708)"
	// renewEarly is how long before its expiry a token is replaced.
	renewEarly = 5 * time.Minute
	// refusedFor is how long a refused login is not retried: many calls that fail together count as one attempt.
	refusedFor = 500 * time.Millisecond
	// doubtedAfter is the age from which a token that is forbidden something is replaced.
	doubtedAfter = 30 * time.Second
	// maxParallel is the maximum number of concurrent requests of a client; others wait.
	maxParallel = 8
	// maxAnswer limits how much of a response is read.
	maxAnswer = 64 << 20
)

// Options holds the address of the identity service and the account to use.
type Options struct {
	// AuthURL ends in /v3: https://default-keystone:30357/v3.
	AuthURL  string
	Username string
	Password string
	// Domain and Project are Default and system when empty.
	Domain  string
	Project string
	// CAPEM holds the CA certificates of the services; empty means the system's. ServerName, when set, is the name that every certificate must have,
	// whatever address is dialled.
	CAPEM      []byte
	ServerName string
	// Transport replaces the one made from CAPEM and ServerName.
	Transport http.RoundTripper
	// UserAgent is sent with every request. The services answer /ping only if it contains "yunioncloud-go/201708" or "kube-probe".
	UserAgent string
	// Timeout limits each request; 30 s when zero.
	Timeout time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Client is a session with the identity service. It is safe for concurrent use.
type Client struct {
	o     Options
	http  *http.Client
	slots chan struct{}
	// configuring is held while stored options are read and changed.
	configuring chan struct{}

	mu    sync.Mutex
	token *token
	// refused is the error of the last login; until refusedUntil it is returned to all callers that waited for one.
	refused      error
	refusedUntil time.Time
}

// New returns a client without sending anything.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.AuthURL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("identity: %q is not a URL of an identity service", o.AuthURL)
	}
	o.AuthURL = strings.TrimSuffix(o.AuthURL, "/")
	o.Domain = cmp.Or(o.Domain, "Default")
	o.Project = cmp.Or(o.Project, "system")
	o.UserAgent = cmp.Or(o.UserAgent, defaultUserAgent)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Transport == nil {
		if o.Transport, err = newTransport(o); err != nil {
			return nil, err
		}
	}
	return &Client{
		o: o, http: &http.Client{Transport: o.Transport}, slots: make(chan struct{}, maxParallel), configuring: make(chan struct{}, 1),
	}, nil
}

func newTransport(o Options) (http.RoundTripper, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if len(o.CAPEM) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(o.CAPEM) {
			return nil, errors.New("identity: the CA contains no certificate")
		}
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{}
	}
	t := base.Clone()
	// The services are in the cluster, so a proxy from the environment must not be used.
	t.Proxy = nil
	t.TLSClientConfig = cfg
	t.MaxIdleConnsPerHost = maxParallel
	return t, nil
}

func (c *Client) Close() { c.http.CloseIdleConnections() }

type request struct {
	op     string
	method string
	url    string
	query  url.Values
	body   any
	// secrets must not appear in the error.
	secrets []string
}

// do sends a request with a token; if the token may no longer be accepted, it replaces it once. The services treat a token that they do not know as none
// at all, and forbid what it asks for.
func (c *Client) do(ctx context.Context, r request, out any) error {
	t, err := c.session(ctx, nil)
	if err != nil {
		return err
	}
	_, err = c.send(ctx, r, t.id, out)
	if !IsUnauthorized(err) && (!IsForbidden(err) || c.o.Now().Sub(t.issued) < doubtedAfter) {
		return err
	}
	if t, err = c.session(ctx, t); err != nil {
		return err
	}
	_, err = c.send(ctx, r, t.id, out)
	return err
}

// send does one round trip. It does not follow redirects with a body; the services send none. They read a body only if it has a length and the JSON
// content type: http.NewRequest sets the length because it knows the size of a bytes.Reader.
func (c *Client) send(ctx context.Context, r request, token string, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s: encoding the request: %w", r.op, err)
		}
		body = bytes.NewReader(data)
	}
	target := r.url
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	req.Header.Set("User-Agent", c.o.UserAgent)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("X-Auth-Token", token)
	}
	secrets := append([]string{c.o.Password, token}, r.secrets...)
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, transportError(r, ctx.Err(), secrets)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(r, err, secrets)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, transportError(r, err, secrets)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, statusError(r, resp.StatusCode, data, secrets)
	}
	if out == nil || len(bytes.TrimSpace(data)) == 0 {
		return resp.Header, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		// The parser's message may quote the response.
		return nil, &Error{Status: resp.StatusCode, Class: ClassMalformed, Op: r.op, URL: r.url, Title: "the response is not the expected JSON"}
	}
	return resp.Header, nil
}

// Ping checks that a service responds; baseURL is its base URL, such as https://default-region:30888.
func (c *Client) Ping(ctx context.Context, baseURL string) error {
	_, err := c.send(ctx, request{op: "pinging", method: http.MethodGet, url: strings.TrimSuffix(baseURL, "/") + "/ping"}, "", nil)
	return err
}

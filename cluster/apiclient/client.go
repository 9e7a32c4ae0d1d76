// SPDX-License-Identifier: Apache-2.0

// Package apiclient is a client of the REST API, for commands written for a Kubernetes client. It serves clouds, operations and machines, and the
// results that the API computes from them. It refuses everything else with a finding. docs/decisions/0067 has the reasons.
package apiclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
)

// Options of a client.
type Options struct {
	// URL of the API: https://HOST[:PORT]. Without TLS it must be a loopback address.
	URL string
	// Token for Kubernetes. It is sent with each request and appears in no error.
	Token string
	// CA holds PEM certificates to verify the server with; empty means those of the system.
	CA []byte
	// Fingerprint is the SHA-256 of the server's certificate, to use instead of a CA.
	Fingerprint string
	// Patience is the timeout for the start of an answer, and for the next heartbeat of a stream. 0 means the default.
	Patience time.Duration
}

// usualPatience is three times the heartbeat interval of a stream.
const usualPatience = 45 * time.Second

// Client is a client of the REST API.
type Client struct {
	refusals
	base     *url.URL
	token    string
	http     *http.Client
	scheme   *runtime.Scheme
	patience time.Duration
}

var _ client.WithWatch = (*Client)(nil)

// New creates a client. It sends no request yet.
func New(o Options) (*Client, error) {
	base, err := address(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Token = strings.TrimSpace(o.Token); o.Token == "" || strings.ContainsAny(o.Token, " \r\n\t") {
		return nil, unusable("the token is missing, or contains white space", "give --api-token-file FILE, or OCADM_API_TOKEN; for example kubectl -n onecloud create token NAME >FILE")
	}
	c := &Client{base: base, token: o.Token, scheme: kube.Scheme(), patience: cmp.Or(o.Patience, usualPatience)}
	c.http, err = transport(o, c.patience)
	return c, err
}

func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// RESTMapper returns an empty mapper: paths come from package restapi.
func (c *Client) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// GroupVersionKindFor returns the kind of an object.
func (c *Client) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.scheme)
}

// IsObjectNamespaced returns true: the API serves nothing else.
func (c *Client) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

// path returns the path of the resources of a kind, in a namespace.
func (c *Client) path(o runtime.Object, namespace string) (string, error) {
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return "", fmt.Errorf("finding the kind of %T: %w", o, err)
	}
	kind := strings.TrimSuffix(gvk.Kind, "List")
	path := restapi.PathOf(kind)
	switch {
	case path == "":
		return "", refused("the command needs " + kind + " objects")
	case namespace == "":
		return "", refused("the command needs the " + path + " of all namespaces")
	}
	return "namespaces/" + url.PathEscape(namespace) + "/" + path, nil
}

type request struct {
	method, path string
	query        url.Values
	body         any
	// version is for If-Match, "" for no such header.
	version string
}

// open sends a request, and returns the answer unless it is an error. It retries when the server asks it to.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("writing a request: %w", err)
		}
	}
	to := c.base.JoinPath("api", "v1", r.path)
	to.RawQuery = r.query.Encode()
	for {
		q, err := http.NewRequestWithContext(ctx, r.method, to.String(), bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("writing a request: %w", err)
		}
		q.Header.Set("Authorization", "Bearer "+c.token)
		switch {
		case r.method == http.MethodPatch:
			q.Header.Set("Content-Type", string(types.MergePatchType))
		case body != nil:
			q.Header.Set("Content-Type", "application/json")
		}
		if r.version != "" {
			q.Header.Set("If-Match", strconv.Quote(r.version))
		}
		answer, err := c.http.Do(q)
		if err != nil {
			return nil, unreachable(c.base, err)
		}
		if answer.StatusCode < http.StatusBadRequest {
			return answer, nil
		}
		delay, again := later(answer)
		err = read(c.base, answer)
		if !again {
			return nil, err
		}
		if wait.Sleep(ctx, delay) != nil {
			return nil, err
		}
	}
}

// later returns the delay after which the server asks to repeat a rejected request.
func later(answer *http.Response) (time.Duration, bool) {
	if answer.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(max(seconds, 1)) * time.Second, err == nil
}

// maxAnswer exceeds any answer: a page of 500 resources of the maximum size is not served.
const maxAnswer = 256 << 20

// ask sends a request and decodes its answer into out, if that is not nil.
func (c *Client) ask(ctx context.Context, r request, out any) error {
	answer, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return unreachable(c.base, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return noAPI(c.base, fmt.Sprintf("the response to %s %s is not JSON: %v", r.method, r.path, err))
	}
	return nil
}

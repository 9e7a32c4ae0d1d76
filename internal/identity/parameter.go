// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Parameters is a client of the yunionconf service: named JSON values that belong to a service.
type Parameters struct {
	c    *Client
	base string
}

// Parameters returns a client of the yunionconf service at the URL, with this client's login.
func (c *Client) Parameters(baseURL string) Parameters {
	return Parameters{c, strings.TrimSuffix(baseURL, "/")}
}

type parameter struct {
	// ID is a number in JSON, sometimes in quotes.
	ID        json.RawMessage `json:"id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Value     map[string]any  `json:"value"`
}

func (p parameter) id() string { return strings.Trim(string(p.ID), `"`) }

// Ensure stores the value that want returns for the current one, which is nil if there is none. want must not change its argument; if it returns an
// equal value, nothing is written.
func (p Parameters) Ensure(ctx context.Context, name, service string, want func(old map[string]any) map[string]any) (changed bool, err error) {
	all, err := list[parameter](ctx, p.c, p.base, "parameters", url.Values{"name": {name}, "scope": {"system"}})
	if err != nil {
		return false, err
	}
	old, there := find(all, func(x parameter) bool { return x.Name == name && (x.Namespace == "service" || x.Namespace == "") })
	value := want(old.Value)
	fields := map[string]any{"service_id": service, "value": value}
	switch {
	case there && sameJSON(old.Value, value):
		return false, nil
	case there:
		_, err = write[parameter](ctx, p.c, http.MethodPut, fmt.Sprintf("updating parameter %q", name), join(p.base, "parameters", old.id()),
			"parameter", fields)
	default:
		fields["name"] = name
		_, err = write[parameter](ctx, p.c, http.MethodPost, fmt.Sprintf("creating parameter %q", name), p.base+"/parameters", "parameter", fields)
	}
	return err == nil, err
}

// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// Records is a client of any service of the cloud: collections of named records, each with actions.
type Records struct {
	c    *Client
	base string
	// in is the path of the record in which others are created.
	in string
	// secrets are redacted in errors.
	secrets []string
}

// Kind is the name of a collection in the API: "zones", "zone".
type Kind struct{ Plural, Singular string }

// Collections of the identity service itself. The catalogue returns one of the client certificates with an endpoint.
var (
	certificates = Kind{"servicecertificates", "servicecertificate"}
	policies     = Kind{"policies", "policy"}
	roles        = Kind{"roles", "role"}
	services     = Kind{"services", "service"}
	users        = Kind{"users", "user"}
)

func creating(k Kind, name string) string { return fmt.Sprintf("creating %s %q", k.Singular, name) }

// Records returns a client of the service at the URL, with this client's login.
func (c *Client) Records(baseURL string) Records {
	return Records{c: c, base: strings.TrimSuffix(baseURL, "/")}
}

// Hiding returns r with more secrets to redact in errors.
func (r Records) Hiding(secrets ...string) Records {
	r.secrets = append(r.secrets[:len(r.secrets):len(r.secrets)], secrets...)
	return r
}

// In returns r for creating records within another one; reads are not affected. A wire, for example, is created in its zone.
func (r Records) In(k Kind, id string) Records {
	r.in = join("", k.Plural, id)
	return r
}

// Ensure creates the record if there is none of that name. It does not change an existing one, which users may have edited.
func (r Records) Ensure(ctx context.Context, k Kind, name string, fields map[string]any) (id string, changed bool, err error) {
	old, err := get[ref](ctx, r.c, r.base, k.Plural, k.Singular, name)
	if err != nil {
		return "", false, err
	}
	if old != nil {
		return old.ID, false, nil
	}
	return r.create(ctx, k, name, fields)
}

func (r Records) create(ctx context.Context, k Kind, name string, fields map[string]any) (id string, changed bool, err error) {
	all := map[string]any{"name": name}
	maps.Copy(all, fields)
	made, err := write[ref](ctx, r.c, http.MethodPost, creating(k, name), r.base+r.in+"/"+k.Plural, k.Singular, all, r.secrets...)
	return made.ID, err == nil, err
}

// Create creates a record. It is for collections that must be listed to find existing records.
func (r Records) Create(ctx context.Context, k Kind, name string, fields map[string]any) error {
	_, _, err := r.create(ctx, k, name, fields)
	return err
}

func (r Records) List(ctx context.Context, k Kind, query url.Values) ([]map[string]any, error) {
	return list[map[string]any](ctx, r.c, r.base, k.Plural, query)
}

func (r Records) Read(ctx context.Context, k Kind, id, aspect string, out any) error {
	q := request{op: fmt.Sprintf("reading %s of %s %q", aspect, k.Singular, id), method: http.MethodGet, url: join(r.base, k.Plural, id, aspect)}
	var answer map[string]json.RawMessage
	if err := r.c.do(ctx, q, &answer); err != nil {
		return err
	}
	return decode(q, answer[k.Singular], out)
}

func (r Records) Perform(ctx context.Context, k Kind, id, action string, params map[string]any) error {
	_, err := write[json.RawMessage](ctx, r.c, http.MethodPost, fmt.Sprintf("running an action of %s %q: %s", k.Singular, id, action),
		join(r.base, k.Plural, id, action), k.Singular, params, r.secrets...)
	return err
}

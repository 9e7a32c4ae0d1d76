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

// Records is the API of any service of the cloud: collections of named records, each with actions.
type Records struct {
	c    *Client
	base string
	// in is the path of the record within which others are created.
	in string
	// secrets are blackened in errors.
	secrets []string
}

// Kind names a collection on the wire: "zones", "zone".
type Kind struct{ Plural, Singular string }

// The collections of the identity service itself. The catalogue hands out one of the certificates, of clients, with an address.
var (
	certificates = Kind{"servicecertificates", "servicecertificate"}
	policies     = Kind{"policies", "policy"}
	roles        = Kind{"roles", "role"}
	services     = Kind{"services", "service"}
	users        = Kind{"users", "user"}
)

func creating(k Kind, name string) string { return fmt.Sprintf("creating %s %q", k.Singular, name) }

// Records speaks to the service at the URL, with this client's login.
func (c *Client) Records(baseURL string) Records {
	return Records{c: c, base: strings.TrimSuffix(baseURL, "/")}
}

// Hiding blackens words in the errors of what follows.
func (r Records) Hiding(secrets ...string) Records {
	r.secrets = append(r.secrets[:len(r.secrets):len(r.secrets)], secrets...)
	return r
}

// In creates records within another one, and reads them as others: a wire is created in its zone.
func (r Records) In(k Kind, id string) Records {
	r.in = join("", k.Plural, id)
	return r
}

// Ensure creates the record where there is none of that name; what people changed about one that is there stays.
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

// Create makes a record; it is for collections that have to be listed to know what is there.
func (r Records) Create(ctx context.Context, k Kind, name string, fields map[string]any) error {
	_, _, err := r.create(ctx, k, name, fields)
	return err
}

// List reads a collection into a slice.
func (r Records) List(ctx context.Context, k Kind, query url.Values) ([]map[string]any, error) {
	return list[map[string]any](ctx, r.c, r.base, k.Plural, query)
}

// Read gets what the service says about one aspect of a record ("components-status").
func (r Records) Read(ctx context.Context, k Kind, id, aspect string, out any) error {
	q := request{op: fmt.Sprintf("reading %s of %s %q", aspect, k.Singular, id), method: http.MethodGet, url: join(r.base, k.Plural, id, aspect)}
	var answer map[string]json.RawMessage
	if err := r.c.do(ctx, q, &answer); err != nil {
		return err
	}
	return decode(q, answer[k.Singular], out)
}

// Perform asks for an action on a record.
func (r Records) Perform(ctx context.Context, k Kind, id, action string, params map[string]any) error {
	_, err := write[json.RawMessage](ctx, r.c, http.MethodPost, fmt.Sprintf("asking %s %q for %s", k.Singular, id, action),
		join(r.base, k.Plural, id, action), k.Singular, params, r.secrets...)
	return err
}

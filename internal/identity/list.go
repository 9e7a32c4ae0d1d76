// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// pageLimit is the maximum page size of the services; without a limit they return twenty records.
const pageLimit = 2048

// list reads every page of a collection.
func list[T any](ctx context.Context, c *Client, base, plural string, query url.Values) ([]T, error) {
	var all []T
	for {
		q := url.Values{}
		maps.Copy(q, query)
		q.Set("limit", strconv.Itoa(pageLimit))
		if len(all) > 0 {
			q.Set("offset", strconv.Itoa(len(all)))
		}
		var answer map[string]json.RawMessage
		r := request{op: "listing " + plural, method: http.MethodGet, url: base + "/" + plural, query: q}
		if err := c.do(ctx, r, &answer); err != nil {
			return nil, err
		}
		var page []T
		var total int
		if err := decode(r, answer[plural], &page); err != nil {
			return nil, err
		}
		_ = json.Unmarshal(answer["total"], &total)
		all = append(all, page...)
		if len(page) == 0 || len(all) >= total {
			return all, nil
		}
	}
}

// get reads one record by id or name; it returns nil if there is none.
func get[T any](ctx context.Context, c *Client, base, plural, singular, idOrName string) (*T, error) {
	r := request{op: fmt.Sprintf("reading %s %q", singular, idOrName), method: http.MethodGet, url: join(base, plural, idOrName)}
	var answer map[string]json.RawMessage
	err := c.do(ctx, r, &answer)
	if IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented: a missing record is not an error
	}
	if err != nil {
		return nil, err
	}
	var out T
	return &out, decode(r, answer[singular], &out)
}

// write creates or updates a record and returns the service's response.
func write[T any](ctx context.Context, c *Client, method, op, target, singular string, fields map[string]any, secrets ...string) (T, error) {
	var out T
	r := request{op: op, method: method, url: target, body: map[string]any{singular: fields}, secrets: secrets}
	var answer map[string]json.RawMessage
	if err := c.do(ctx, r, &answer); err != nil {
		return out, err
	}
	if raw, ok := answer[singular]; ok {
		return out, decode(r, raw, &out)
	}
	return out, nil
}

func decode(r request, raw json.RawMessage, out any) error {
	if len(raw) == 0 || json.Unmarshal(raw, out) != nil {
		if len(raw) == 0 && r.method == http.MethodGet {
			return &Error{Status: http.StatusOK, Class: ClassMalformed, Op: r.op, URL: r.url, Title: "the response lacks the requested data"}
		}
		return &Error{Status: http.StatusOK, Class: ClassMalformed, Op: r.op, URL: r.url, Title: "the response is not the expected JSON"}
	}
	return nil
}

// join builds a URL from path segments, each escaped.
func join(base string, segments ...string) string {
	for _, s := range segments {
		base += "/" + url.PathEscape(s)
	}
	return base
}

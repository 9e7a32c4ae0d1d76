// SPDX-License-Identifier: Apache-2.0

// Package resource gives a table of a store the REST verbs that the services offer for every kind of object.
package resource

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"yunion.io/x/ocadm/test/standin/store"
	"yunion.io/x/ocadm/test/standin/wire"
)

// Action is what a caller wants to do with a resource, as policies name it.
type Action string

const (
	List    Action = "list"
	Get     Action = "get"
	Create  Action = "create"
	Update  Action = "update"
	Delete  Action = "delete"
	Perform Action = "perform"
)

// Guard refuses callers that may not do something.
type Guard func(c wire.Call, resource string, action Action) error

// Collection is one kind of object.
type Collection struct {
	// Path is where the collection lies, such as /v3/users; its last segment is also the table and the key of lists.
	Path, Table, Singular string
	// Hide lists fields that never leave the service.
	Hide []string
	// Prepare completes and validates a new record; what it returns second must be unique in the table.
	Prepare func(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error)
	// Change validates the fields of an update.
	Change func(ctx context.Context, old, changes store.Record) (store.Record, error)
	// Remove refuses a deletion, or cleans up before it.
	Remove func(ctx context.Context, r store.Record) error
}

// Routes are list, get, create, update and delete.
func (k Collection) Routes(s *store.Store, guard Guard) wire.Routes {
	guarded := func(action Action, handle wire.Handler) wire.Handler {
		return func(c wire.Call) (any, error) {
			if err := guard(c, k.Table, action); err != nil {
				return nil, err
			}
			return handle(c)
		}
	}
	one := k.Path + "/{id}"
	update := guarded(Update, func(c wire.Call) (any, error) { return k.update(s, c) })
	return wire.Routes{
		{Method: http.MethodGet, Path: k.Path, Handle: guarded(List, func(c wire.Call) (any, error) { return k.list(s, c) })},
		{Method: http.MethodPost, Path: k.Path, Handle: guarded(Create, func(c wire.Call) (any, error) { return k.create(s, c) })},
		{Method: http.MethodGet, Path: one, Handle: guarded(Get, func(c wire.Call) (any, error) {
			r, err := s.Get(c.Context(), k.Table, c.Params["id"])
			return k.wrap(r), err
		})},
		{Method: http.MethodPatch, Path: one, Handle: update},
		{Method: http.MethodPut, Path: one, Handle: update},
		{Method: http.MethodDelete, Path: one, Handle: guarded(Delete, func(c wire.Call) (any, error) { return k.remove(s, c) })},
	}
}

func (k Collection) list(s *store.Store, c wire.Call) (any, error) {
	records, err := s.List(c.Context(), k.Table)
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	found := []store.Record{}
	for _, r := range records {
		if Matches(r, query) {
			found = append(found, k.visible(r))
		}
	}
	total := len(found)
	offset, _ := strconv.Atoi(query.Get("offset"))
	found = found[min(max(offset, 0), len(found)):]
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return map[string]any{k.Table: found, "total": total, "offset": offset}, nil
}

// Matches tells whether a record has the values that a query asks for. Words that steer the list itself are no filters.
func Matches(r store.Record, query url.Values) bool {
	steering := []string{"limit", "offset", "scope", "details", "order", "order_by", "field", "show_fail_reason", "admin", "system"}
	for key, want := range query {
		if slices.Contains(steering, key) || len(want) == 0 {
			continue
		}
		if !slices.Contains(want, r.Text(key)) {
			return false
		}
	}
	return true
}

func (k Collection) create(s *store.Store, c wire.Call) (any, error) {
	r, err := c.Inner(k.Singular)
	if err != nil {
		return nil, err
	}
	unique := r.Text("name")
	if k.Prepare != nil {
		if r, unique, err = k.Prepare(c.Context(), c, maps.Clone(r)); err != nil {
			return nil, err
		}
	}
	r, err = s.Insert(c.Context(), k.Table, r, unique)
	return k.wrap(r), err
}

func (k Collection) update(s *store.Store, c wire.Call) (any, error) {
	old, err := s.Get(c.Context(), k.Table, c.Params["id"])
	if err != nil {
		return nil, err
	}
	changes, err := c.Inner(k.Singular)
	if err != nil {
		return nil, err
	}
	changes = maps.Clone(changes)
	delete(changes, "id")
	if k.Change != nil {
		if changes, err = k.Change(c.Context(), old, changes); err != nil {
			return nil, err
		}
	}
	r, err := s.Update(c.Context(), k.Table, old, changes)
	return k.wrap(r), err
}

func (k Collection) remove(s *store.Store, c wire.Call) (any, error) {
	r, err := s.Get(c.Context(), k.Table, c.Params["id"])
	if err != nil {
		return nil, err
	}
	if k.Remove != nil {
		if err := k.Remove(c.Context(), r); err != nil {
			return nil, err
		}
	}
	return k.wrap(r), s.Delete(c.Context(), k.Table, r.Text("id"))
}

func (k Collection) wrap(r store.Record) any { return map[string]any{k.Singular: k.visible(r)} }

func (k Collection) visible(r store.Record) store.Record {
	shown := maps.Clone(r)
	for _, field := range k.Hide {
		delete(shown, field)
	}
	return shown
}

// SPDX-License-Identifier: Apache-2.0

// Package rest offers the REST verbs of the services for each kind of object, on a table of a store.
package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Action is an action on a resource, as policies name it.
type Action string

const (
	List    Action = "list"
	Get     Action = "get"
	Create  Action = "create"
	Update  Action = "update"
	Delete  Action = "delete"
	Perform Action = "perform"
)

// Access is a caller with the scope of its permission.
type Access struct {
	Caller
	Scope Scope
}

// Admit decides whether a caller may perform an action. Its errors are those of the real services.
func Admit(caller Caller, service string, c Call, name string, action Action, extra ...string) (Access, error) {
	scope, ok := caller.Act(service, name, string(action), extra...)
	if action == List {
		query := c.URL.Query()
		scope, ok = caller.List(service, name, query.Get("scope"), query.Get("admin") == "true")
	}
	if !ok {
		return Access{}, Forbidden(fmt.Sprintf("not enough privilege to do %s:%s:%s", service, name, action))
	}
	return Access{caller, scope}, nil
}

// sees reports whether a record is within the scope.
func (a Access) sees(r Record) bool {
	switch a.Scope {
	case System:
		return true
	case Domain:
		return r.Text("domain_id") == a.Domain
	}
	return r.Text("tenant_id") == a.Project
}

// Guard rejects callers without permission.
type Guard func(c Call, resource string, action Action, extra ...string) (Access, error)

// Only returns a handler that requires a permission.
func (g Guard) Only(resource string, action Action, handle Handler) Handler {
	return func(c Call) (any, error) {
		if _, err := g(c, resource, action); err != nil {
			return nil, err
		}
		return handle(c)
	}
}

// Collection is one kind of object.
type Collection struct {
	// Path is the path of the collection, such as /v3/users. Its last segment is also the name of the table and the key of lists.
	Path, Singular string
	// Defaults are the default fields of a new record; Required are the fields that it must have in the end.
	Defaults Record
	Required []string
	// Unique lists the fields that must be unique in the table: nil means the name, empty means no field.
	Unique []string
	// Hide lists fields that are never returned.
	Hide []string
	// Owned records belong to the project in which they were created. Other projects see them only with a wider scope.
	Owned bool
	// System names a field: lists have records in which it is true only with system=true.
	System string
	// Prepare completes and validates a new record.
	Prepare func(ctx context.Context, c Call, r Record) error
	// Stored is called after a new record has been stored.
	Stored func(r Record)
	// Change completes and validates the fields of an update.
	Change func(ctx context.Context, changes Record) error
	// Remove rejects a deletion, or cleans up before it.
	Remove func(ctx context.Context, r Record) error
}

func (k Collection) table() string { return path.Base(k.Path) }

// Routes returns list, get, create, update and delete.
func (k Collection) Routes(s *Store, guard Guard) Routes {
	guarded := func(action Action, handle func(*Store, Call, Access) (any, error)) Handler {
		return func(c Call) (any, error) {
			a, err := guard(c, k.table(), action)
			if err != nil {
				return nil, err
			}
			return handle(s, c, a)
		}
	}
	one := k.Path + "/{id}"
	update := guarded(Update, k.update)
	return Routes{
		{Method: http.MethodGet, Path: k.Path, Handle: guarded(List, k.list)},
		{Method: http.MethodPost, Path: k.Path, Handle: guarded(Create, k.create)},
		{Method: http.MethodGet, Path: one, Handle: guarded(Get, func(s *Store, c Call, a Access) (any, error) {
			r, err := k.find(s, c, a)
			return k.wrap(r), err
		})},
		{Method: http.MethodPatch, Path: one, Handle: update},
		{Method: http.MethodPut, Path: one, Handle: update},
		{Method: http.MethodDelete, Path: one, Handle: guarded(Delete, k.remove)},
	}
}

// find returns the record of the call, if it is within the caller's scope.
func (k Collection) find(s *Store, c Call, a Access) (Record, error) {
	r, err := s.Get(c.Context(), k.table(), c.Params["id"])
	if err == nil && k.Owned && !a.sees(r) {
		return nil, NotFound("%s %s not found", k.Singular, c.Params["id"])
	}
	return r, err
}

func (k Collection) list(s *Store, c Call, a Access) (any, error) {
	records, err := s.List(c.Context(), k.table())
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	found := []Record{}
	for _, r := range records {
		if Matches(r, query) && (!k.Owned || a.sees(r)) && (!r.True(k.System) || query.Get("system") == "true") {
			found = append(found, k.visible(r))
		}
	}
	total := len(found)
	offset, _ := strconv.Atoi(query.Get("offset"))
	found = found[min(max(offset, 0), len(found)):]
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return map[string]any{k.table(): found, "total": total, "offset": offset}, nil
}

// Matches reports whether a record has the values of a query. Parameters that control the list itself are not filters.
func Matches(r Record, query url.Values) bool {
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

func (k Collection) create(s *Store, c Call, a Access) (any, error) {
	given, err := c.Inner(k.Singular)
	if err != nil {
		return nil, err
	}
	r := Record{}
	maps.Copy(r, k.Defaults)
	maps.Copy(r, given)
	if k.Owned {
		r["tenant_id"], r["domain_id"] = a.Project, a.Domain
	}
	if k.Prepare != nil {
		if err := k.Prepare(c.Context(), c, r); err != nil {
			return nil, err
		}
	}
	for _, field := range k.Required {
		if r.Text(field) == "" {
			return nil, BadInput("missing %s", field)
		}
	}
	fields := k.Unique
	if fields == nil {
		fields = []string{"name"}
	}
	unique := lists.Map(fields, r.Text)
	r, err = s.Insert(c.Context(), k.table(), r, strings.Join(unique, "/"))
	if err == nil && k.Stored != nil {
		k.Stored(r)
	}
	return k.wrap(r), err
}

func (k Collection) update(s *Store, c Call, a Access) (any, error) {
	old, err := k.find(s, c, a)
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
		if err := k.Change(c.Context(), changes); err != nil {
			return nil, err
		}
	}
	r, err := s.Update(c.Context(), k.table(), old, changes)
	return k.wrap(r), err
}

func (k Collection) remove(s *Store, c Call, a Access) (any, error) {
	r, err := k.find(s, c, a)
	if err != nil {
		return nil, err
	}
	if k.Remove != nil {
		if err := k.Remove(c.Context(), r); err != nil {
			return nil, err
		}
	}
	return k.wrap(r), s.Delete(c.Context(), k.table(), r.Text("id"))
}

func (k Collection) wrap(r Record) any { return map[string]any{k.Singular: k.visible(r)} }

func (k Collection) visible(r Record) Record {
	shown := maps.Clone(r)
	for _, field := range k.Hide {
		delete(shown, field)
	}
	return shown
}

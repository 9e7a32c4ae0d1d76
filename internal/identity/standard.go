// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"yunion.io/x/ocadm/internal/lists"
)

// Role is a role that users have in projects, with its policies.
type Role struct {
	Name, Description string
	// Public roles are visible in every domain.
	Public bool
	// Policies lists names of policies. They apply only in Project, or in every project if that is "".
	Policies []string
	Project  string
}

// Standard holds the policies and roles that a cloud should have.
type Standard struct {
	Policies []Policy
	Roles    []Role
}

// unfinished is the description of a role that does not have all its policies yet. Only such a role, and one without any policy, gets what it lacks: all
// others keep exactly what they have, so that what an administrator removed stays removed, also in a cloud that is adopted.
const unfinished = "ocadm is giving this role its policies"

// standardParallel is the maximum number of concurrent requests of EnsureStandard: half of the client's maximum, to leave some for others.
const standardParallel = maxParallel / 2

// EnsureStandard creates the missing policies and roles. It never changes existing ones, whoever created them. It takes three lists, one request for
// each record that it creates, and one more for each role. It may be interrupted at any point, and continues the next time.
func (c *Client) EnsureStandard(ctx context.Context, want Standard) (changed bool, err error) {
	t, err := c.session(ctx, nil)
	if err != nil {
		return false, err
	}
	m := &standardMaker{c: c, domain: t.user.Domain.ID, project: t.project, policies: map[string]string{}, roles: map[string]string{},
		partial: map[string]bool{}}
	err = m.run(ctx, want)
	return m.changed.Load(), err
}

type standardMaker struct {
	c       *Client
	domain  string
	project ref
	changed atomic.Bool

	mu sync.Mutex
	// policies and roles map names to ids.
	policies, roles map[string]string
	// partial has the names of the roles that may lack policies.
	partial map[string]bool
}

func (m *standardMaker) run(ctx context.Context, want Standard) error {
	if err := m.makePolicies(ctx, want.Policies); err != nil {
		return err
	}
	if err := m.makeRoles(ctx, want.Roles); err != nil {
		return err
	}
	if err := m.bind(ctx, want); err != nil {
		return err
	}
	return m.finishRoles(ctx, want.Roles)
}

// everywhere is the query that lists records of every domain.
var everywhere = url.Values{"scope": {"system"}}

type named struct {
	ref
	DomainID    string `json:"domain_id"`
	Description string `json:"description"`
}

// known returns the ids of the records in the administrator's domain, by name. It notes which of them are unfinished.
func (m *standardMaker) known(ctx context.Context, plural string) (map[string]string, error) {
	all, err := list[named](ctx, m.c, m.c.o.AuthURL, plural, everywhere)
	ids := map[string]string{}
	for _, r := range all {
		if r.DomainID == "" || m.domain == "" || r.DomainID == m.domain {
			ids[r.Name] = r.ID
			m.partial[r.Name] = r.Description == unfinished
		}
	}
	return ids, err
}

// create creates a record, or finds one that was created meanwhile, and notes its id.
func (m *standardMaker) create(ctx context.Context, k Kind, name string, fields map[string]any, ids map[string]string) error {
	r, made, err := create[named](ctx, m.c, k, name, fields)
	if err != nil {
		return err
	}
	if made {
		m.changed.Store(true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ids[name] = r.ID
	m.partial[name] = r.Description == unfinished
	return nil
}

func (m *standardMaker) makePolicies(ctx context.Context, want []Policy) (err error) {
	if m.policies, err = m.known(ctx, "policies"); err != nil {
		return err
	}
	return lists.Each(ctx, missing(want, m.policies, func(p Policy) string { return p.Name }), standardParallel, func(ctx context.Context, p Policy) error {
		return m.create(ctx, policies, p.Name, p.fields(), m.policies)
	})
}

func (m *standardMaker) makeRoles(ctx context.Context, want []Role) (err error) {
	if m.roles, err = m.known(ctx, "roles"); err != nil {
		return err
	}
	return lists.Each(ctx, missing(want, m.roles, func(r Role) string { return r.Name }), standardParallel, func(ctx context.Context, r Role) error {
		return m.create(ctx, roles, r.Name, map[string]any{"name": r.Name, "description": unfinished, "is_public": r.Public}, m.roles)
	})
}

// finishRoles gives the roles that are now complete their final description.
func (m *standardMaker) finishRoles(ctx context.Context, want []Role) error {
	partial := slices.DeleteFunc(slices.Clone(want), func(r Role) bool { return !m.partial[r.Name] })
	return lists.Each(ctx, partial, standardParallel, func(ctx context.Context, r Role) error {
		op := fmt.Sprintf("describing role %q", r.Name)
		_, err := write[ref](ctx, m.c, http.MethodPut, op, join(m.c.o.AuthURL, "roles", m.roles[r.Name]), "role",
			map[string]any{"description": cmp.Or(r.Description, r.Name)})
		return err
	})
}

// missing returns the wanted records that have no id yet.
func missing[T any](want []T, ids map[string]string, name func(T) string) []T {
	return lists.Filter(want, func(w T) bool {
		_, there := ids[name(w)]
		return !there
	})
}

// binding is a policy of a role in a project; project "" means all.
type binding struct{ role, project, policy string }

func (m *standardMaker) bind(ctx context.Context, want Standard) error {
	all, err := list[rolePolicy](ctx, m.c, m.c.o.AuthURL, "rolepolicies", everywhere)
	if err != nil {
		return err
	}
	has, some := map[binding]bool{}, map[string]bool{}
	for _, b := range all {
		has[binding{b.RoleID, b.ProjectID, b.PolicyID}] = true
		some[b.RoleID] = true
	}
	var due []binding
	for _, r := range want.Roles {
		if some[m.roles[r.Name]] && !m.partial[r.Name] {
			continue
		}
		for _, p := range r.Policies {
			b := binding{m.roles[r.Name], r.Project, m.policies[p]}
			if r.Project != "" && m.project.is(r.Project) {
				b.project = m.project.ID
			}
			if !has[b] {
				due = append(due, b)
			}
		}
	}
	return lists.Each(ctx, due, standardParallel, func(ctx context.Context, b binding) error {
		op := fmt.Sprintf("giving role %q the policy %q", b.role, b.policy)
		_, err := write[roleRecord](ctx, m.c, http.MethodPost, op, join(m.c.o.AuthURL, "roles", b.role, "add-policy"), "role",
			map[string]any{"project_id": b.project, "policy_id": b.policy})
		if err == nil {
			m.changed.Store(true)
		}
		return err
	})
}

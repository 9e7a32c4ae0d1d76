// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"fmt"
	"slices"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// grants is the policy cache of one process: the policies of each role in each project. It is only ever replaced as a whole.
type grants []grant

type grant struct {
	role, project, policy, scope string
	rules                        rest.Policy
}

// Refresh reloads the policies, as the server does periodically.
func (s *Server) Refresh(ctx context.Context) error {
	policies, err := s.store.List(ctx, "policies")
	if err != nil {
		return err
	}
	byID := lists.Index(policies, func(p rest.Record) (string, rest.Record) { return p.Text("id"), p })
	bindings, err := s.store.List(ctx, "rolepolicies")
	if err != nil {
		return err
	}
	fresh := grants{}
	for _, b := range bindings {
		policy, found := byID[b.Text("policy_id")]
		if !found || !policy.True("enabled") {
			continue
		}
		rules, err := rest.Decode(policy["blob"])
		if err != nil {
			return fmt.Errorf("reading policy %s: %w", policy.Text("name"), err)
		}
		fresh = append(fresh, grant{b.Text("role_id"), b.Text("project_id"), policy.Text("name"), policy.Text("scope"), rules})
	}
	s.grants.Store(&fresh)
	return nil
}

func (g grant) covers(who principal) bool {
	if who.project == nil || g.project != "" && g.project != who.project.Text("id") {
		return false
	}
	return slices.ContainsFunc(who.roles, func(r rest.Record) bool { return r.Text("id") == g.role })
}

// names returns a caller's policies by scope, as tokens contain them.
func (all grants) names(who principal) map[string][]string {
	names := map[string][]string{}
	for _, g := range all {
		if g.covers(who) {
			names[g.scope] = append(names[g.scope], g.policy)
		}
	}
	return names
}

// caller returns the caller and its effective policies.
func (all grants) caller(who principal) rest.Caller {
	admin := slices.ContainsFunc(who.roles, func(r rest.Record) bool { return r.Text("name") == adminRole })
	c := rest.Caller{Policies: rest.Policies{}, Project: who.project.Text("id"), Domain: who.project.Text("domain_id"),
		Administrator: who.project.Text("name") == systemProject && admin}
	for _, g := range all {
		if g.covers(who) {
			c.Policies[g.scope] = append(c.Policies[g.scope], g.rules)
		}
	}
	return c
}

// matched returns a caller's effective policies with their rules, to the caller or to a service on its behalf.
func (s *Server) matched(c rest.Call) (any, error) {
	who, err := s.caller(c)
	if err != nil {
		return nil, err
	}
	policies, err := s.store.List(c.Context(), "policies")
	if err != nil {
		return nil, err
	}
	bodies := map[string]any{}
	for _, p := range policies {
		if blob, ok := p["blob"].(map[string]any); ok {
			bodies[p.Text("name")] = blob["policy"]
		}
	}
	names, rules := s.grants.Load().names(who), map[string][]any{}
	for scope, list := range names {
		for _, name := range list {
			rules[scope] = append(rules[scope], bodies[name])
		}
	}
	return map[string]any{"names": names, "policies": rules}, nil
}

// caller returns the principal of the call's token. Without a token, or with one that is not valid, the caller is a guest, who may do nothing.
func (s *Server) caller(c rest.Call) (principal, error) {
	known, err := s.open(c.Context(), c.Header.Get("X-Auth-Token"))
	if err != nil {
		return principal{}, rest.Guest(err)
	}
	who, err := s.principal(c.Context(), known)
	return who, rest.Guest(err)
}

// admit decides whether the caller may perform an action.
func (s *Server) admit(c rest.Call, name string, action rest.Action, extra ...string) (rest.Access, error) {
	who, err := s.caller(c)
	if err != nil {
		return rest.Access{}, err
	}
	return rest.Admit(s.grants.Load().caller(who), "identity", c, name, action, extra...)
}

// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/test/standin/resource"
	"yunion.io/x/ocadm/test/standin/store"
	"yunion.io/x/ocadm/test/standin/wire"
)

// grants is the policy cache of one process: which policy a role has in which project. It is only ever replaced whole.
type grants []grant

type grant struct {
	role, project, policy, scope string
	rules                        any
}

func (s *Server) refresh(ctx context.Context) error {
	policies, err := s.store.List(ctx, "policies")
	if err != nil {
		return err
	}
	byID := map[string]store.Record{}
	for _, p := range policies {
		byID[p.Text("id")] = p
	}
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
		blob, _ := policy["blob"].(map[string]any)
		fresh = append(fresh, grant{b.Text("role_id"), b.Text("project_id"), policy.Text("name"), policy.Text("scope"), blob["policy"]})
	}
	s.grants.Store(&fresh)
	return nil
}

func (g grant) covers(who principal) bool {
	if who.project == nil || g.project != "" && g.project != who.project.Text("id") {
		return false
	}
	return slices.ContainsFunc(who.roles, func(r store.Record) bool { return r.Text("id") == g.role })
}

// names lists a caller's policies by scope, as tokens carry them.
func (all grants) names(who principal) map[string][]string {
	names := map[string][]string{}
	for _, g := range all {
		if g.covers(who) {
			names[g.scope] = append(names[g.scope], g.policy)
		}
	}
	return names
}

func (all grants) allow(who principal, path ...string) bool {
	return slices.ContainsFunc(all, func(g grant) bool { return g.scope == "system" && g.covers(who) && permits(g.rules, path) })
}

// permits walks nested rules {service: {resource: {action: "allow"}}}, where a "*" matches and a word decides for all below it.
func permits(rules any, path []string) bool {
	switch node := rules.(type) {
	case string:
		return node == "allow"
	case map[string]any:
		if len(path) == 0 {
			return false
		}
		return permits(node[path[0]], path[1:]) || permits(node["*"], path[1:])
	}
	return false
}

// guard is who may do what. Policies and roles are open to an administrator of the system project even before any policy exists:
// else nobody could ever make the first.
func (s *Server) guard(c wire.Call, name string, action resource.Action) error {
	token := c.Header.Get("X-Auth-Token")
	if token == "" {
		return wire.Unauthorized("missing X-Auth-Token")
	}
	claim, err := s.open(token)
	if err != nil {
		return err
	}
	who, err := s.principal(c.Context(), claim)
	if err != nil {
		return err
	}
	bootstrapping := name == "policies" || name == "roles" || name == "rolepolicies"
	if bootstrapping && who.project.Text("name") == systemProject && who.hasRole(adminRole) {
		return nil
	}
	if s.grants.Load().allow(who, "identity", name, string(action)) {
		return nil
	}
	return wire.Forbidden("not enough privilege to " + string(action) + " " + name)
}

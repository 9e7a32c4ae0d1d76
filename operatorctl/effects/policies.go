// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
)

// standardPolicies makes the policies and roles that a cloud has for users other than its administrator. It only makes what is missing, so
// what users changed stays: the rules of a policy, and which policies a role has.
func standardPolicies(ctx context.Context, s session, _ Input) (bool, error) {
	table, err := policy.Standard()
	if err != nil {
		return false, err
	}
	return s.id.EnsureStandard(ctx, standard(table))
}

// standard is the table as the identity service takes it.
func standard(t policy.Table) identity.Standard {
	var out identity.Standard
	for _, p := range t.Policies {
		out.Policies = append(out.Policies, identity.Policy{Name: p.Name, Scope: p.Scope, Blob: p.Rules})
	}
	for _, r := range t.Roles {
		out.Roles = append(out.Roles, identity.Role{Name: r.Name, Public: r.Public, Policies: r.Policies, Project: r.Project})
	}
	return out
}

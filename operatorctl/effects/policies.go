// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
)

// standardTask is the key of the effect that makes the standard policies and roles.
const standardTask = "setup/standard-policies"

// standardPolicies makes the policies and roles that a cloud has for users other than its administrator. It only makes what is missing, so
// what users changed stays. Once it has succeeded, a later version of the task leaves alone which policies a role has, too.
func standardPolicies(ctx context.Context, s session, in Input) (bool, error) {
	table, err := policy.Standard()
	if err != nil {
		return false, err
	}
	_, before := in.Recorded[standardTask]
	return s.id.EnsureStandard(ctx, standard(table, !before))
}

// standard is the table as the identity service takes it.
func standard(t policy.Table, complete bool) identity.Standard {
	out := identity.Standard{Complete: complete}
	for _, p := range t.Policies {
		out.Policies = append(out.Policies, identity.Policy{Name: p.Name, Scope: p.Scope, Blob: p.Rules})
	}
	for _, r := range t.Roles {
		out.Roles = append(out.Roles, identity.Role{Name: r.Name, Public: r.Public, Policies: r.Policies, Project: r.Project})
	}
	return out
}

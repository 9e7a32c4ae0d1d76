// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"k8s.io/utils/ptr"
)

// Policy is a set of permissions. The administrator of a fresh identity service may write only policies and roles.
type Policy struct {
	Name string
	// Scope is "system", "domain" or "project".
	Scope string
	// Description defaults to the policy's name: the identity service has translations for descriptions that are names of standard policies, and for
	// those of roles (Cloudpods, pkg/keystone/locale).
	Description string
	// Blob holds the rules: {"policy": {"*": "allow"}}.
	Blob map[string]any
}

func (p Policy) fields() map[string]any {
	return map[string]any{
		"name": p.Name, "type": p.Name, "description": cmp.Or(p.Description, p.Name), "scope": p.Scope,
		"enabled": true, "is_system": true, "is_public": true, "blob": p.Blob,
	}
}

type policyRecord struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Scope   string         `json:"scope"`
	Enabled *bool          `json:"enabled"`
	Blob    map[string]any `json:"blob"`
}

// EnsurePolicy creates the policy, or updates the rules and scope of an existing one and enables it.
func (c *Client) EnsurePolicy(ctx context.Context, p Policy) (changed bool, err error) {
	old, err := get[policyRecord](ctx, c, c.o.AuthURL, "policies", "policy", p.Name)
	if err != nil {
		return false, err
	}
	if old == nil {
		_, err := write[policyRecord](ctx, c, http.MethodPost, creating(policies, p.Name), c.o.AuthURL+"/policies", "policy", p.fields())
		return err == nil, err
	}
	fields := changes(field{"blob", old.Blob, p.Blob}, field{"scope", old.Scope, p.Scope}, field{"enabled", ptr.Deref(old.Enabled, true), true})
	if len(fields) == 0 {
		return false, nil
	}
	_, err = write[policyRecord](ctx, c, http.MethodPut, fmt.Sprintf("updating policy %q", p.Name), join(c.o.AuthURL, "policies", old.ID),
		"policy", fields)
	return err == nil, err
}

// field is a field of a record, with its current and wanted values.
type field struct {
	name     string
	is, want any
}

func changes(fields ...field) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		if !sameJSON(f.is, f.want) {
			out[f.name] = f.want
		}
	}
	return out
}

// sameJSON compares two values by their JSON encoding.
func sameJSON(a, b any) bool {
	norm := func(v any) any {
		data, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		var out any
		if json.Unmarshal(data, &out) != nil {
			return nil
		}
		return out
	}
	return reflect.DeepEqual(norm(a), norm(b))
}

type roleRecord struct {
	ref
	MatchPolicies []string            `json:"match_policies"`
	Policies      map[string][]string `json:"policies"`
}

type rolePolicy struct {
	RoleID    string `json:"role_id"`
	ProjectID string `json:"project_id"`
	PolicyID  string `json:"policy_id"`
	Project   string `json:"project"`
	Policy    string `json:"policy"`
}

// EnsureRolePolicy binds a policy to a role in a project. It takes effect when the services reload their policies, half a minute later by default;
// until then calls are Forbidden.
func (c *Client) EnsureRolePolicy(ctx context.Context, role, project, policy string) (changed bool, err error) {
	op := fmt.Sprintf("giving role %q the policy %q", role, policy)
	roles, err := list[roleRecord](ctx, c, c.o.AuthURL, "roles", url.Values{"name": {role}})
	if err != nil {
		return false, err
	}
	r, ok := find(roles, func(r roleRecord) bool { return r.Name == role })
	if !ok {
		return false, &Error{Status: http.StatusNotFound, Class: "ResourceNotFoundError", Op: op, Title: fmt.Sprintf("there is no role %q", role)}
	}
	bound, err := c.bound(ctx, r, project, policy)
	if err != nil || bound {
		return false, err
	}
	_, err = write[roleRecord](ctx, c, http.MethodPost, op, join(c.o.AuthURL, "roles", r.ID, "add-policy"), "role",
		map[string]any{"project_id": project, "policy_id": policy})
	return err == nil, err
}

// bound reports whether the role has the policy: according to the bindings if they are readable, otherwise to the role itself.
func (c *Client) bound(ctx context.Context, r roleRecord, project, policy string) (bool, error) {
	bindings, err := list[rolePolicy](ctx, c, c.o.AuthURL, "rolepolicies", url.Values{"scope": {"system"}})
	if IsForbidden(err) || IsNotFound(err) {
		return slices.Contains(r.MatchPolicies, policy) ||
			slices.Contains(slices.Concat(slices.Collect(maps.Values(r.Policies))...), policy), nil
	}
	return slices.ContainsFunc(bindings, func(b rolePolicy) bool { return b.RoleID == r.ID && b.Project == project && b.Policy == policy }), err
}

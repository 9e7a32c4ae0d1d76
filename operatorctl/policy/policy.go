// SPDX-License-Identifier: Apache-2.0

// Package policy is the table of standard policies and roles: what users other than the administrator may do in a cloud.
// Their definitions are in templates/services/policies.yaml; this package expands them. It is pure.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/templates/services"
)

// Table holds all standard policies and roles.
type Table struct {
	// Policies are sorted by name, Roles are in the order of the file.
	Policies []Policy
	Roles    []Role
}

// Policy is a set of rules for a scope.
type Policy struct {
	Name string
	// Scope is system, domain or project: whose resources the rules apply to.
	Scope string
	// About describes its purpose.
	About string
	// Rules is the blob on the wire: {"policy": {SERVICE: {RESOURCE: {ACTION: "allow" or "deny"}}}}, with "*" for all others.
	Rules map[string]any
}

// Role is a role of a user in a project.
type Role struct {
	Name, About string
	// Policies holds names.
	Policies []string
	// Project is the only project in which the role grants its policies; "" means every project.
	Project string
	// Public roles are available in every domain.
	Public bool
}

// file is templates/services/policies.yaml.
type file struct {
	Definitions []definition `json:"definitions"`
	Reserved    reserved     `json:"reserved"`
	Fixed       []fixed      `json:"fixed"`
	Roles       []struct {
		Name     string   `json:"name"`
		About    string   `json:"about"`
		Policies []string `json:"policies"`
		Project  string   `json:"project"`
		Public   bool     `json:"public"`
	} `json:"roles"`
}

type definition struct {
	Name     string                         `json:"name"`
	About    string                         `json:"about"`
	Scope    string                         `json:"scope"`
	Services map[string][]string            `json:"services"`
	Also     map[string]map[string][]string `json:"also"`
	Levels   []string                       `json:"levels"`
}

type reserved struct {
	Everywhere []string                       `json:"everywhere"`
	Resources  map[string]map[string][]string `json:"resources"`
}

type fixed struct {
	About  string            `json:"about"`
	Names  map[string]string `json:"names"`
	Policy map[string]any    `json:"policy"`
}

// scopes lists the scopes, widest first, with their prefixes in names.
var scopes = []struct{ name, prefix string }{{"system", "sys"}, {"domain", "domain"}, {"project", "project"}}

const (
	allow = "allow"
	deny  = "deny"
	every = "*"
)

// rules are nested by service, resource and action.
type rules = map[string]any

// Standard returns the table of this release. It is read once; callers share it and must not modify it.
var Standard = sync.OnceValues(func() (Table, error) {
	text, err := services.FS.ReadFile("policies.yaml")
	if err != nil {
		return Table{}, fmt.Errorf("reading the standard policies: %w", err)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Table{}, fmt.Errorf("reading the standard policies: %w", err)
	}
	return f.table(), nil
})

// table expands the definitions. A test checks that names are unique, and that scopes, levels and the policies of roles exist.
func (f file) table() (t Table) {
	for _, d := range f.Definitions {
		t.Policies = append(t.Policies, d.expand(f.Reserved)...)
	}
	for _, x := range f.Fixed {
		for name, scope := range x.Names {
			t.Policies = append(t.Policies, Policy{Name: name, Scope: scope, About: x.About, Rules: rules{"policy": x.Policy}})
		}
	}
	slices.SortFunc(t.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range f.Roles {
		t.Roles = append(t.Roles, Role(r))
	}
	return t
}

// Grants returns the total number of policies of the roles.
func (t Table) Grants() int {
	return lists.Sum(t.Roles, func(r Role) int { return len(r.Policies) })
}

// expand returns the policies of a definition: each scope, from the widest to its own, times each level.
func (d definition) expand(r reserved) (out []Policy) {
	levels := d.Levels
	switch {
	case len(d.Services) == 0:
		levels = []string{""}
	case len(levels) == 0:
		levels = []string{"admin", "editor", "viewer"}
	}
	for _, scope := range scopes {
		prefix := scope.prefix
		if d.Scope == "system" {
			prefix = ""
		}
		for _, level := range levels {
			out = append(out, Policy{Name: name(prefix, d.Name, level), Scope: scope.name, About: d.About, Rules: rules{"policy": d.rules(level, r)}})
		}
		if scope.name == d.Scope {
			break
		}
	}
	return out
}

// name joins the parts of a policy's name. The name of the first policy is older than this pattern.
func name(parts ...string) string {
	joined := strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "-")
	if joined == "sys-admin" {
		return "sysadmin"
	}
	return joined
}

func (d definition) rules(level string, r reserved) rules {
	out := rules{}
	for service, resources := range d.services(level, r) {
		if level == "admin" && len(resources) == 0 {
			out[service] = allow
			continue
		}
		body := rules{}
		for _, resource := range resources {
			switch level {
			case "admin":
				body[resource] = allow
			case "editor":
				body[resource] = r.editor(service, resource)
			case "viewer":
				body[resource] = only([]string{"get", "list"})
			}
		}
		out[service] = body
	}
	for service, resources := range d.Also {
		body, _ := out[service].(rules)
		if body == nil {
			body = rules{}
			out[service] = body
		}
		for resource, actions := range resources {
			body[resource] = only(actions)
		}
	}
	return out
}

// services returns the services of the definition, with the resources that have their own rules at that level: for an editor those with reserved
// actions.
func (d definition) services(level string, r reserved) map[string][]string {
	out := maps.Clone(d.Services)
	if _, all := out[every]; all && level == "editor" {
		for service := range r.Resources {
			out[service] = nil
		}
	}
	for service, resources := range out {
		if len(resources) > 0 || level == "admin" {
			continue
		}
		resources = []string{every}
		if level == "editor" {
			resources = slices.AppendSeq(resources, maps.Keys(r.Resources[service]))
		}
		out[service] = resources
	}
	return out
}

func (r reserved) editor(service, resource string) rules {
	perform := rules{every: allow}
	for _, action := range slices.Concat(r.Everywhere, r.Resources[service][resource]) {
		perform[action] = deny
	}
	return rules{every: allow, "create": deny, "delete": deny, "perform": perform}
}

func only(actions []string) rules {
	out := rules{every: deny}
	for _, a := range actions {
		out[a] = allow
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package rest

import "slices"

// Scope defines whose resources a user may access. Wider scopes are larger numbers.
type Scope int

const (
	None Scope = iota
	User
	Project
	Domain
	System
)

var names = []string{"none", "user", "project", "domain", "system"}

func (s Scope) String() string { return names[s] }

// ParseScope parses the name of a scope. Unknown names mean Project.
func ParseScope(name string) Scope {
	if i := slices.Index(names, name); i > 0 {
		return Scope(i)
	}
	return Project
}

// Policies are a caller's policies by scope name.
type Policies map[string][]Policy

// The resources of each service that do not belong to a project.
var (
	systemResources = map[string][]string{
		"identity": {"domains", "services", "endpoints", "regions", "servicecertificates", "rolepolicies", "role_assignments", "tokens"},
		"compute": {"zones", "cloudregions", "serverskus", "cachedimages", "dynamicschedtags", "baremetalagents", "schedpolicies", "dnsrecords", "metadatas",
			"loadbalancerclusters", "loadbalanceragents", "policy_definitions", "schedtags"},
	}
	domainResources = map[string][]string{
		"identity": {"identity_providers", "users", "groups", "projects", "roles", "policies"},
		"compute": {"cloudaccounts", "cloudproviders", "recyclebins", "hosts", "baremetalnetworks", "hoststorages", "hostwires", "isolated-devices", "vpcs",
			"storages", "wires", "globalvpcs", "route_tables", "networkinterfaces", "natgateways", "natsentries", "natdentries", "proxysettings"},
	}
	userResources = map[string][]string{"identity": {"credentials"}, "compute": {"keypairs"}}
)

// ScopeOf returns the scope to which a resource belongs.
func ScopeOf(service, resource string) Scope {
	switch {
	case slices.Contains(systemResources[service], resource):
		return System
	case slices.Contains(domainResources[service], resource):
		return Domain
	case slices.Contains(userResources[service], resource):
		return User
	}
	return Project
}

// everybody holds the permissions, by scope, of every caller with a token, independent of policies.
var everybody = map[Scope][]rule{
	System: {
		yes("", "tasks", "perform"), yes("", "metadatas", "list"),
		yes("compute", "zones", "list"), yes("compute", "zones", "get"), yes("compute", "cloudregions", "list"), yes("compute", "cloudregions", "get"),
		yes("compute", "serverskus", "list"), yes("compute", "schedtags", "list"), yes("compute", "capabilities", "list"),
	},
	Domain: {
		yes("", "usages", "get"), yes("identity", "domains", "get"),
		yes("compute", "vpcs", "list"), yes("compute", "vpcs", "get"), yes("compute", "wires", "list"), yes("compute", "wires", "get"),
	},
	Project: {
		yes("", "tasks", "perform"), yes("", "usages", "get"), yes("identity", "users", "list"), yes("identity", "groups", "list"),
		yes("compute", "networks", "list"), yes("compute", "networks", "get"), yes("image", "image_quotas", "list"), yes("image", "image_quotas", "get"),
	},
}

// bootstrap holds the permissions of an administrator of the system project before any policy exists. Otherwise the first policy could not be created.
var bootstrap = func() (out []rule) {
	for _, resource := range []string{"policies", "roles"} {
		for _, action := range []string{"create", "update", "list", "get", "perform"} {
			out = append(out, yes("identity", resource, action))
		}
	}
	return out
}()

func yes(path ...string) rule { return rule{path, true} }

// Caller is the sender of a request.
type Caller struct {
	Policies Policies
	// Project and Domain are ids, empty without a project.
	Project, Domain string
	// Administrator reports whether the caller has the role admin in the project system.
	Administrator bool
}

// Reach returns the widest scope in which the caller may perform the action.
func (c Caller) Reach(service, resource, action string, extra ...string) Scope {
	path := append([]string{service, resource, action}, extra...)
	of := ScopeOf(service, resource)
	for scope := System; scope > None; scope-- {
		if c.allowed(scope, of, path) {
			return scope
		}
	}
	return None
}

// List returns the scope in which the caller may list a resource. asked is the scope in the call, "" for that of the resource. all is the parameter
// with which administrators request everything.
func (c Caller) List(service, resource, asked string, all bool) (Scope, bool) {
	reach := c.Reach(service, resource, "list")
	want := ScopeOf(service, resource)
	switch {
	case asked == "max" || asked == "maxallowed" || asked == "" && all && reach > Project:
		want = reach
	case asked != "":
		want = ParseScope(asked)
	}
	return want, reach != None && want <= reach
}

// Act returns the scope in which the caller may perform any other action on a resource, which needs at least the scope of the resource.
func (c Caller) Act(service, resource, action string, extra ...string) (Scope, bool) {
	reach := c.Reach(service, resource, action, extra...)
	return reach, reach != None && ScopeOf(service, resource) <= reach
}

func (c Caller) allowed(scope, of Scope, path []string) bool {
	foreign := scope == User && of != User || scope == Project && of != Project || scope == Domain && of == System
	if !foreign && slices.ContainsFunc(c.Policies[scope.String()], func(p Policy) bool { return p.allows(path) }) {
		return true
	}
	all := everybody[scope]
	if scope == System && c.Administrator {
		all = append(slices.Clone(all), bootstrap...)
	}
	return Policy(all).allows(path)
}

// SPDX-License-Identifier: Apache-2.0

// Package rest authorizes callers as the real services do. It finds the most specific rule of a policy, the scope that the caller's policies reach,
// and the scope that a call needs (Cloudpods, pkg/util/rbacutils and pkg/cloudcommon/policy).
package rest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Policy is a decoded policy.
type Policy []rule

// rule allows or denies a path: service, resource, action, and the object of the action. "" and "*" match everything.
type rule struct {
	path  []string
	allow bool
}

// Decode decodes the blob of a policy: {"policy": {SERVICE: {RESOURCE: {ACTION: "allow"}}}}. A word at a higher level applies to everything below it.
func Decode(blob any) (Policy, error) {
	object, _ := blob.(map[string]any)
	body, there := object["policy"]
	if !there {
		return nil, errors.New("no key policy in the blob")
	}
	return DecodeRules(body)
}

// tagKeys appear beside the services in the rules of a policy that applies only to some projects.
var tagKeys = []string{"__domain_tags__", "__project_tags__", "__object_tags__"}

// DecodeRules decodes the rules of a policy as returned by GET /auth/policies of keystone: {SERVICE: {RESOURCE: {ACTION: "allow"}}}, without the key
// that blobs have (measured at v4.0.2).
func DecodeRules(rules any) (Policy, error) {
	object, is := rules.(map[string]any)
	if is {
		if _, blob := object["policy"].(map[string]any); blob {
			return nil, errors.New("a blob, not rules")
		}
		object = maps.Clone(object)
		for _, key := range tagKeys {
			delete(object, key)
		}
		rules = object
	}
	p, err := decode(nil, nil, rules)
	if err == nil && len(p) == 0 {
		err = errors.New("empty policy")
	}
	return p, err
}

func decode(p Policy, path []string, node any) (Policy, error) {
	switch node := node.(type) {
	case string:
		// Words of earlier releases also allow.
		allow := slices.Contains([]string{"allow", "admin", "owner", "user", "guest"}, node)
		return append(p, rule{slices.Clone(path), allow}), nil
	case map[string]any:
		for key, below := range node {
			var err error
			if p, err = decode(p, append(path, key), below); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
	return nil, fmt.Errorf("%v is neither a word nor an object", node)
}

func (r rule) at(i int) string {
	if i < len(r.path) && r.path[i] != "*" {
		return r.path[i]
	}
	return ""
}

// match returns the number of parts of the path that the rule names. Among rules with the same number, the lowest weight wins: it names the earlier
// parts. A rule that is more specific than the path matches as well.
func (r rule) match(path []string) (matched, weight int, ok bool) {
	for i := 0; i < len(path) && i < len(r.path); i++ {
		switch name := r.at(i); {
		case name == "":
		case name != path[i]:
			return 0, 0, false
		case i < 3:
			matched, weight = matched+1, weight+[]int{1, 10, 100}[i]
		default:
			matched, weight = matched+1, weight+1000*(i-2)
		}
	}
	return matched, weight, true
}

// allows applies the most specific rule of the policy; without a rule it denies. Among equal rules, one that allows wins.
func (p Policy) allows(path []string) bool {
	var best rule
	most, least := -1, 0
	for _, r := range p {
		matched, weight, ok := r.match(path)
		switch {
		case !ok || matched < most || matched == most && weight > least:
		case matched == most && weight == least:
			best.allow = best.allow || r.allow
		default:
			best, most, least = r, matched, weight
		}
	}
	return best.allow
}

// SPDX-License-Identifier: Apache-2.0

package env

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunion.io/x/ocadm/test/integration/harness"
)

// NotOfClouds reports whether a permission is needed only for machines, which TestMachines has, or for a rehearsal, which TestRehearsal makes.
func NotOfClouds(right string) bool {
	watches, lists := strings.HasPrefix(right, "watch "), strings.HasPrefix(right, "list ")
	return right == "create pods" || strings.HasSuffix(right, " batch/jobs") || !watches && strings.Contains(right, "onecloudmachines") ||
		!watches && !lists && strings.HasSuffix(right, " nodes")
}

// everybody is the request that Kubernetes allows to every account (system:basic-user, system:discovery).
const everybody = "create authorization.k8s.io/selfsubjectaccessreviews"

// Used returns the permissions that requests needed. A rejected request is a failure.
func (e *Env) Used(requests []harness.Request) map[string]string {
	used := map[string]string{}
	for _, q := range requests {
		if q.Resource == "" || q.Code == 401 {
			continue // every account may list the API's resources
		}
		if q.Code == 403 {
			e.Errorf("refused: %s", q)
		}
		used[Right(q.Verb, q.Group, strings.TrimSuffix(q.Resource+"/"+q.Subresource, "/"))] = q.String()
		if q.Verb == "patch" && q.Code == 201 { // an apply that creates needs both
			used[Right("create", q.Group, q.Resource)] = q.String()
		}
	}
	delete(used, everybody)
	return used
}

// Right names a permission.
func Right(verb, group, resource string) string {
	return verb + " " + strings.TrimPrefix(group+"/"+resource, "/")
}

// narrowEnough reports whether the operator may have a cluster-wide permission.
func narrowEnough(rule rbacv1.PolicyRule) bool {
	switch {
	case slices.Equal(rule.Resources, []string{"nodes"}):
		return slices.Equal(rule.Verbs, []string{"list", "watch"}) || slices.Equal(rule.Verbs, []string{"get", "patch"}) // the second for machines
	case slices.Equal(rule.Resources, []string{"customresourcedefinitions"}):
		return slices.Equal(rule.Verbs, []string{"get", "patch"}) && slices.Equal(rule.ResourceNames,
			[]string{"onecloudclusters.onecloud.yunion.io", "onecloudoperations.onecloud.yunion.io", "onecloudmachines.onecloud.yunion.io"})
	}
	return false
}

// Granted returns the permissions that Roles grant the operator. Cluster-wide ones must be narrowEnough.
func (e *Env) Granted() map[string]bool { return e.GrantedTo("onecloud-operator", narrowEnough) }

// GrantedTo returns the permissions of an account. Cluster-wide ones must be narrow.
func (e *Env) GrantedTo(account string, narrow func(rbacv1.PolicyRule) bool) map[string]bool {
	e.Helper()
	out := map[string]bool{}
	is := func(s rbacv1.Subject) bool { return s.Name == account && s.Namespace == Namespace }
	var rules []rbacv1.PolicyRule
	var wide rbacv1.ClusterRoleBindingList
	e.Must(e.Client.List(e.Context(), &wide))
	for _, b := range wide.Items {
		role := &rbacv1.ClusterRole{}
		if slices.ContainsFunc(b.Subjects, is) {
			e.Must(e.Client.Get(e.Context(), types.NamespacedName{Name: b.RoleRef.Name}, role))
		}
		if i := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return !narrow(r) }); i >= 0 {
			e.Errorf("%s gives the account more in the whole cluster than it needs for nodes, machines and its definitions: %v", b.RoleRef.Name, role.Rules[i])
		}
		rules = append(rules, role.Rules...)
	}
	var roles rbacv1.RoleBindingList
	e.Must(e.Client.List(e.Context(), &roles))
	for _, b := range roles.Items {
		role := &rbacv1.Role{}
		if slices.ContainsFunc(b.Subjects, is) {
			e.Must(e.Client.Get(e.Context(), types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}, role))
		}
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out[Right(verb, group, resource)] = true
				}
			}
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/operator"
)

// accessTimeout is longer than other checks' timeouts, because it covers dozens of requests.
const accessTimeout = 20 * time.Second

// checkAccess asks the API server whether the account may do what an installation does. It asks only once for one that may do everything.
func checkAccess(ctx context.Context, m *machine) []finding.Finding {
	const code, remedy = "OCA-4211", "use an administrator's kubeconfig: --kubeconfig FILE"
	c, err := m.h.Kube(ctx)
	if err != nil {
		return []finding.Finding{finding.Errorf(code, "The permissions of the kubeconfig's account cannot be read", remedy, "%w", err)}
	}
	all, err := may(ctx, c, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
	if err != nil {
		return []finding.Finding{finding.Errorf(code, "The permissions of the kubeconfig's account cannot be read", remedy, "%w", err)}
	}
	if all {
		return nil
	}
	needs, err := needs(c, m)
	if err != nil {
		return []finding.Finding{finding.Errorf(code, "The permissions that the operator needs cannot be determined", "report this as a bug", "%w", err)}
	}
	missing, err := denied(ctx, c, needs)
	if err != nil {
		return []finding.Finding{finding.Errorf(code, "The permissions of the kubeconfig's account cannot be read", remedy, "%w", err)}
	}
	if len(missing) == 0 {
		return nil
	}
	return []finding.Finding{finding.New(code, "The account of the kubeconfig is not allowed to install the operator",
		fmt.Sprintf("it lacks %d of %d permissions: %s", len(missing), len(needs), strings.Join(missing[:min(len(missing), 3)], ", ")), remedy).With(missing...)}
}

// needs returns the permissions for every object of an installation. Binding cluster-admin requires permission to bind any role.
func needs(c client.Client, m *machine) ([]authorizationv1.ResourceAttributes, error) {
	objs, err := operator.Objects(m.h.Config.OperatorImage(), m.h.Config.Cloud.Namespace)
	if err != nil {
		return nil, err
	}
	var out []authorizationv1.ResourceAttributes
	add := func(a authorizationv1.ResourceAttributes, verbs ...string) {
		for _, a.Verb = range verbs {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	for _, o := range objs {
		gvk := o.GroupVersionKind()
		r, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, fmt.Errorf("finding the resource of %s: %w", gvk.Kind, err)
		}
		a := authorizationv1.ResourceAttributes{Namespace: o.GetNamespace(), Group: gvk.Group, Resource: r.Resource.Resource}
		add(a, "get", "create", "patch")
		switch gvk.Kind {
		case "ClusterRole", "Role":
			add(a, "escalate", "bind")
		}
	}
	if m.h.Config.AsksForCloud() {
		ns := m.h.Config.Cloud.Namespace
		for _, resource := range []string{"configmaps", "secrets", "services"} {
			add(authorizationv1.ResourceAttributes{Namespace: ns, Resource: resource}, "get", "create", "patch")
		}
		add(authorizationv1.ResourceAttributes{Namespace: ns, Group: v1alpha1.Group, Resource: v1alpha1.Resource}, "get", "list", "watch", "create")
		add(authorizationv1.ResourceAttributes{Resource: "nodes"}, "patch")
	}
	return out, nil
}

// denied returns the permissions that the account lacks, one line each.
func denied(ctx context.Context, c client.Client, rights []authorizationv1.ResourceAttributes) ([]string, error) {
	lines := make([]string, len(rights))
	errs := lists.Parallel(rights, len(rights), func(i int, a authorizationv1.ResourceAttributes) error {
		ok, err := may(ctx, c, a)
		if !ok {
			lines[i] = right(a)
		}
		return err
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" }), nil
}

func right(a authorizationv1.ResourceAttributes) string {
	s := a.Verb + " " + a.Resource
	if a.Group != "" {
		s += "." + a.Group
	}
	if a.Namespace != "" {
		s += " in namespace " + a.Namespace
	}
	return s
}

func may(ctx context.Context, c client.Client, a authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("checking whether the account may %s: %w", right(a), err)
	}
	return review.Status.Allowed, nil
}

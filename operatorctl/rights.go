// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
)

// watched returns the namespaces to watch, and those of asked where the operator has no permissions now.
func watched(ctx context.Context, cfg *rest.Config, asked []string, log *slog.Logger) (watch, refused []string, err error) {
	if len(asked) < 2 { // no other namespace could suffer
		return asked, nil, nil
	}
	if watch, err = allowed(ctx, cfg, asked); err != nil {
		return nil, nil, err
	}
	refused = slices.DeleteFunc(slices.Clone(asked), func(ns string) bool { return slices.Contains(watch, ns) })
	for _, ns := range refused {
		log.Warn("no permissions in a namespace: its clouds are ignored", "namespace", ns)
	}
	if len(watch) == 0 {
		return nil, nil, fmt.Errorf("the operator is not allowed to list clouds in any of its namespaces (%q); to grant the permission: ocadm init phase operator", asked)
	}
	return watch, refused, nil
}

// right is an optional permission: the manifests of an earlier release do not grant it, or do not define the resource.
type right struct {
	// missing returns the field that records whether the permission is missing.
	missing func(*lacking) *bool
	may     func(context.Context, *rest.Config, Options) (bool, error)
	// moot reports whether the permission makes no difference; nil means never.
	moot func(Options) bool
	// without describes what the operator cannot do without it, gained what it restarts for once it is granted.
	without, gained string
}

// optional returns those permissions. A later one may depend on an earlier one.
func optional() []right {
	return []right{
		{func(l *lacking) *bool { return &l.nodes },
			mayWatchNodes, nil, "no permission to watch nodes: lost ones cannot be reported", "watch nodes"},
		{func(l *lacking) *bool { return &l.operations }, mayOperate, nil,
			"operations are not defined, or there is no permission to run them: clouds keep their versions", "run operations"},
		{func(l *lacking) *bool { return &l.machines }, mayJoin, nil,
			"machines are not defined, or there is no permission to join them: nodes must be joined manually", "join machines"},
		{func(l *lacking) *bool { return &l.jobs }, mayCreateJobs, func(o Options) bool { return o.without.machines || o.Image == "" },
			"no permission to create Jobs: the operator itself connects to machines", "create Jobs"},
	}
}

// lookUp records which permissions are missing, and logs what the operator cannot do. lacking reports whether a later call may find more.
func lookUp(ctx context.Context, cfg *rest.Config, o *Options) (lacking bool, err error) {
	for _, r := range optional() {
		yes, err := r.may(ctx, cfg, *o)
		if err != nil {
			return false, err
		}
		if *r.missing(&o.without) = !yes; !yes && (r.moot == nil || !r.moot(*o)) {
			lacking = true
			o.Log.Warn(r.without + "; to grant the permission: ocadm init phase operator")
		}
	}
	return lacking, nil
}

// rightsInterval is how often missing permissions are checked again.
const rightsInterval = time.Minute

// granted returns a function that ends the operator once it gets permissions for a refused namespace, or those that o lacks: only a restarted
// operator can watch more.
func granted(cfg *rest.Config, refused []string, o Options) func(context.Context) error {
	return func(ctx context.Context) error {
		for wait.Sleep(ctx, rightsInterval) == nil {
			// Errors are ignored: the next round tries again.
			if now, err := allowed(ctx, cfg, refused); err == nil && len(now) > 0 {
				return fmt.Errorf("restarting to watch namespaces %q, for which permissions were granted", now)
			}
			for _, r := range optional() {
				if !*r.missing(&o.without) {
					continue
				}
				if yes, err := r.may(ctx, cfg, o); err == nil && yes {
					return fmt.Errorf("restarting to %s, which is now permitted", r.gained)
				}
			}
		}
		return nil
	}
}

// allowed returns the namespaces in which the operator may list clouds. A watch without permissions never starts and would keep the operator from
// starting, so a deleted namespace must not stop the clouds of all others.
func allowed(ctx context.Context, cfg *rest.Config, namespaces []string) (out []string, err error) {
	for _, ns := range namespaces {
		yes, err := may(ctx, cfg, authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Group: v1alpha1.Group, Resource: v1alpha1.Resource})
		if err != nil {
			return nil, err
		}
		if yes {
			out = append(out, ns)
		}
	}
	return out, nil
}

// mayWatchNodes reports whether the operator may read nodes.
func mayWatchNodes(ctx context.Context, cfg *rest.Config, _ Options) (bool, error) {
	return may(ctx, cfg, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "nodes"})
}

// mayOperate reports whether operations are defined and the operator may run them in all its namespaces.
func mayOperate(ctx context.Context, cfg *rest.Config, o Options) (bool, error) {
	return mayWatch(ctx, cfg, o.Namespaces, v1alpha1.OperationResource)
}

// mayJoin reports whether the operator may join machines to the cluster.
func mayJoin(ctx context.Context, cfg *rest.Config, o Options) (bool, error) {
	if o.without.nodes || o.without.operations {
		return false, nil
	}
	yes, err := mayWatch(ctx, cfg, o.Namespaces, v1alpha1.MachineResource)
	if err != nil || !yes {
		return false, err
	}
	return may(ctx, cfg, authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceSystem, Verb: "create", Resource: "secrets"})
}

// mayCreateJobs reports whether the operator may create Jobs for the work on machines.
func mayCreateJobs(ctx context.Context, cfg *rest.Config, o Options) (bool, error) {
	if o.without.machines || o.Image == "" {
		return false, nil
	}
	return mayInAll(ctx, cfg, o.Namespaces, authorizationv1.ResourceAttributes{Verb: "create", Group: batchv1.GroupName, Resource: "jobs"})
}

// mayWatch reports whether one of our resources is defined and the operator may watch it in its namespaces.
func mayWatch(ctx context.Context, cfg *rest.Config, namespaces []string, resource string) (bool, error) {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return false, fmt.Errorf("looking up %s: %w", resource, err)
	}
	known, err := c.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking up %s: %w", resource, err)
	case !slices.ContainsFunc(known.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }):
		return false, nil
	}
	return mayInAll(ctx, cfg, namespaces, authorizationv1.ResourceAttributes{Verb: "watch", Group: v1alpha1.Group, Resource: resource})
}

// mayInAll reports whether the operator has a permission in all the given namespaces, or in the whole cluster if none are given.
func mayInAll(ctx context.Context, cfg *rest.Config, namespaces []string, right authorizationv1.ResourceAttributes) (bool, error) {
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, right.Namespace = range namespaces {
		if yes, err := may(ctx, cfg, right); err != nil || !yes {
			return false, err
		}
	}
	return true, nil
}

// may reports whether the operator has a permission.
func may(ctx context.Context, cfg *rest.Config, right authorizationv1.ResourceAttributes) (bool, error) {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return false, fmt.Errorf("checking permissions: %w", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
	answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("checking the permission to %s %s in namespace %q: %w", right.Verb, right.Resource, right.Namespace, err)
	}
	return answer.Status.Allowed, nil
}

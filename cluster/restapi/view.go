// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// views registers what the page shows in addition to the resources.
func (s *server) views(api huma.API) {
	const item = "/namespaces/{namespace}/clouds/{name}"
	components := describe("list-components", http.MethodGet, item+"/components", "components", "List the components of a cloud with their states")
	huma.Register(api, components, func(ctx context.Context, in *Named) (*list[Component], error) {
		status, err := cluster.Get(ctx, of(ctx), in.key())
		return listOf(withNeeds(status.Components)), failed(err)
	})
	backups := describe("list-backups", http.MethodGet, item+"/backups", "backups", "List the latest attempts to back up a cloud, and their results")
	backups.Description = "The record in the cluster. The files are in a store, and ocadm cluster backup list reads them there."
	huma.Register(api, backups, func(ctx context.Context, in *Named) (*list[backup.Record], error) {
		if _, err := cluster.Get(ctx, of(ctx), in.key()); err != nil {
			return nil, failed(err)
		}
		all, err := archive.History(ctx, of(ctx), in.Namespace)
		return listOf(all), failed(err)
	})
	metrics := describe("list-metrics", http.MethodGet, item+"/metrics", "metrics", "List the figures of the last hour")
	metrics.Description = "What the operator measured of the cloud and of itself. Prometheus keeps more: GET /metrics at the address of metrics."
	huma.Register(api, metrics, func(ctx context.Context, in *Named) (*list[Series], error) {
		if _, err := cluster.Get(ctx, of(ctx), in.key()); err != nil {
			return nil, failed(err)
		}
		return listOf(s.samples.series(in.Namespace, in.Name)), nil
	})
	rights := describe("get-rights", http.MethodGet, "/namespaces/{namespace}/rights", "rights", "Read the name of the sender, and what it may change")
	huma.Register(api, rights, rightsOf)
}

// Component is a component of a cloud with its dependencies.
type Component struct {
	v1alpha1.ComponentStatus
	After []string `json:"after,omitempty" doc:"components that must be Available before it starts"`
}

func withNeeds(states []v1alpha1.ComponentStatus) []Component {
	after := lists.Index(catalog.All(), func(c component.Component) (string, []string) { return c.Name, c.After })
	return lists.Map(states, func(s v1alpha1.ComponentStatus) Component { return Component{s, after[s.Name]} })
}

// changes lists what the page can change. It offers only what the user may do.
var changes = []struct{ path, resource, verb string }{
	{"clouds", "onecloudclusters", "update"},
	{"operations", "onecloudoperations", "create"},
	{"operations", "onecloudoperations", "update"},
	{"machines", "onecloudmachines", "create"},
	{"machines", "onecloudmachines", "update"},
	{"machines", "onecloudmachines", "delete"},
}

// Rights lists what a sender may change in a namespace.
type Rights struct {
	User    string   `json:"user" doc:"name of the sender in Kubernetes"`
	Allowed []string `json:"allowed" doc:"what it may change: kind and verb" example:"operations:create"`
}

// rightsOf asks the API server on behalf of the sender.
func rightsOf(ctx context.Context, in *Place) (*struct{ Body Rights }, error) {
	var user string
	answers := make([]authorizationv1.SelfSubjectAccessReview, len(changes))
	g, asking := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		user, err = sender(asking)
		return err
	})
	for i, c := range changes {
		answers[i].Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: in.Namespace, Group: v1alpha1.GroupVersion.Group, Resource: c.resource, Verb: c.verb,
		}
		g.Go(func() error { return of(ctx).Create(asking, &answers[i]) })
	}
	if err := g.Wait(); err != nil {
		return nil, failed(err)
	}
	out := &struct{ Body Rights }{Rights{User: user, Allowed: []string{}}}
	for i, c := range changes {
		if answers[i].Status.Allowed {
			out.Body.Allowed = append(out.Body.Allowed, c.path+":"+c.verb)
		}
	}
	return out, nil
}

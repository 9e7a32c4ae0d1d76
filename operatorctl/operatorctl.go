// SPDX-License-Identifier: Apache-2.0

// Package operatorctl is the operator: it watches OnecloudClusters and brings each cloud to what its spec says.
// One reconcile gathers, resolves, renders, applies and observes; everything between gather and apply is pure (packages resolve, render, status).
// It never waits: what is not ready is a state, and a watch event or a timer brings the next pass.
package operatorctl

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Run runs the operator until ctx ends.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	current := updateDefinitions(ctx, cfg, o.Log)
	namespaces, refused, err := watched(ctx, cfg, o.Namespaces, o.Log)
	if err != nil {
		return err
	}
	o.Namespaces = namespaces
	lacking, err := lookUp(ctx, cfg, &o)
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, o)
	if err != nil {
		return err
	}
	if len(refused) > 0 || lacking {
		if err := mgr.Add(manager.RunnableFunc(granted(cfg, refused, o))); err != nil {
			return fmt.Errorf("setting up the operator: %w", err)
		}
	}
	if err := setup(ctx, mgr, o, current); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// Options of a running operator.
type Options struct {
	// Namespaces whose clouds are looked after, the only ones where permissions are needed; none means all.
	Namespaces []string
	// Image is the operator's own, which the jobs of clouds run from, too.
	Image string
	// Components are the catalogue of this build, nil for the usual one: a test runs another build.
	Components []component.Component
	// Lease is the namespace of the lease by which several operators take turns; "" lets this one work at once.
	Lease string
	// Listen are the addresses that it listens on.
	Listen Addresses
	// Audit is how often what lies outside Kubernetes is verified again; 0 means reconcile.DefaultAudit, negative never.
	Audit time.Duration
	// Operations say how operations move clouds.
	Operations operation.Settings
	// Options are how the databases and the services are reached.
	effects.Options
	// Grace bounds an orderly stop; 0 means two seconds. What has not ended by then is cut off, and the next leader waits for the lease.
	Grace time.Duration
	Log   *slog.Logger

	without lacking
}

// Addresses of the metrics, of the health checks and of Go's profiler: HOST:PORT; "0" or "" turns one off.
type Addresses struct {
	Metrics, Health, Profile string
}

// lacking is what the operator goes without, because it has no permission to it, or because it is not defined. Run finds that out.
type lacking struct {
	// nodes are not read: it cannot say which ones are lost.
	nodes bool
	// operations do not run; machines are not brought into the cluster.
	operations, machines bool
	// jobs cannot be created, or the operator does not know its own image: this process does the work on machines.
	jobs bool
}

// jobImage is the image of Jobs, "" where there can be none.
func jobImage(o Options) string {
	if o.without.jobs {
		return ""
	}
	return o.Image
}

// SPDX-License-Identifier: Apache-2.0

// Package operatorctl is the operator: it watches OnecloudClusters and makes each cloud match its spec.
// One reconcile gathers, resolves, renders, applies and observes; everything between gather and apply is pure (packages resolve, render, status).
// It never waits: whatever is not ready is recorded as a state, and a watch event or a timer triggers the next reconcile.
package operatorctl

import (
	"cmp"
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
	o.Log = cmp.Or(o.Log, slog.Default())
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

// Options configures an operator.
type Options struct {
	// Namespaces are the namespaces to watch, the only ones where permissions are needed; empty means all.
	Namespaces []string
	// Image is the operator's own image, which Jobs of clouds use, too.
	Image string
	// Components is the catalogue; nil means the built-in one. Tests pass that of another build.
	Components []component.Component
	// Lease is the namespace of the leader election lease; "" turns leader election off.
	Lease  string
	Listen Addresses
	// Audit is how often everything outside Kubernetes is verified again; 0 means reconcile.DefaultAudit, negative never.
	Audit time.Duration
	// Operations configures the execution of operations.
	Operations operation.Settings
	// Options configures the connections to databases and services.
	effects.Options
	// Grace limits a graceful stop; 0 means seven seconds. Whatever is still running then is cut off, and the next leader waits for the lease.
	Grace time.Duration
	Log   *slog.Logger

	without lacking
}

// Addresses holds the addresses (HOST:PORT) of the metrics, the health checks and Go's profiler; "0" or "" turns one off.
type Addresses struct {
	Metrics, Health, Profile string
}

// lacking records what the operator runs without, because it has no permission or the CRD is missing. Run fills it in.
type lacking struct {
	// nodes cannot be read, so lost ones are not reported.
	nodes bool
	// operations do not run; machines do not join the cluster.
	operations, machines bool
	// jobs cannot be created, or the operator does not know its own image: the operator itself does the work on machines.
	jobs bool
}

// jobImage returns the image of Jobs, or "" if the operator cannot create any.
func jobImage(o Options) string {
	if o.without.jobs {
		return ""
	}
	return o.Image
}

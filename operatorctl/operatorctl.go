// SPDX-License-Identifier: Apache-2.0

// Package operatorctl is the operator: it watches OnecloudClusters and brings each cloud to what its spec says.
// One reconcile gathers, resolves, renders, applies and observes; everything between gather and apply is pure (packages resolve, render, status).
// It never waits: what is not ready is a state, and a watch event or a timer brings the next pass.
package operatorctl

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
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

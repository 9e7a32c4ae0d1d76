// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"yunion.io/x/ocadm/test/integration/harness"
)

func (b *bench) tuned(ctx context.Context) error {
	return b.available(ctx, tuned, "kube-controller-manager as ocadm init sets it", "≤ 5 s", func(took, _ time.Duration) bool { return took <= 5*time.Second })
}

func (b *bench) untuned(ctx context.Context) error {
	return b.available(ctx, untuned, "kube-controller-manager with its defaults", "≤ 1.5 × flat", func(took, flat time.Duration) bool { return ratio(took, flat) <= 1.5 })
}

// available measures from the CR until every service is Available, with a real kube-controller-manager and a kubelet that calls pods
// ready at once; beside it, 50 Deployments that wait for nothing.
func (b *bench) available(ctx context.Context, kind, what, goal string, met func(took, flat time.Duration) bool) error {
	w, err := b.newWorld(ctx, kind)
	if err != nil {
		return err
	}
	defer w.close()
	o := &operator{w: w}
	o.start(ctx)
	defer func() { _ = o.stop() }()
	var took, flat times
	for range b.options.rounds {
		d, err := w.flat(ctx)
		if err != nil {
			return err
		}
		flat = append(flat, d)
		cr, err := w.newCloud(ctx)
		if err != nil {
			return err
		}
		if err := w.accounts(ctx, cr.Namespace); err != nil {
			return err
		}
		if _, err = o.count(ctx, harness.Filter{}, func() error { d, err = w.create(ctx, cr); return err }); err != nil {
			return err
		}
		took = append(took, d)
		b.say("%s: flat %s, the cloud %s", kind, short(flat[len(flat)-1]), short(d))
		if err := w.remove(ctx, cr); err != nil {
			return err
		}
	}
	b.add(row{ID: "P7", Metric: "from the CR to all Available, " + what, Goal: goal, Result: took.String(),
		Ratio: fmt.Sprintf("%.2f (50 flat Deployments: %s)", ratio(took.median(), flat.median()), flat), Anchor: anchorTime, Samples: took.seconds()},
		met(took.median(), flat.median()))
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
)

// requester names who requests an operation, as far as known.
func requester() string {
	name := "ocadm"
	if u, err := user.Current(); err == nil {
		name += ":" + u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// operate creates an operation and, with --wait, follows it to its end.
func (a *app) operate(ctx context.Context, k client.WithWatch, f *cloudFlags, o *cluster.Operation) error {
	o.Namespace = f.namespace
	again, err := cluster.OperateOnce(ctx, k, o)
	if err != nil {
		return err
	}
	switch {
	case again:
		fmt.Fprintf(a.Err, "Operation %s, which was requested earlier, has not ended\n", o.Name)
	case f.wait:
		fmt.Fprintf(a.Err, "Operation %s created\n", o.Name)
	}
	if f.wait {
		return a.followOperation(ctx, k, f, client.ObjectKeyFromObject(o))
	}
	if o.Spec.Action == v1alpha1.ActionRollback { // like an update, it may be refused
		if _, err := a.watchOperation(ctx, k, f, client.ObjectKeyFromObject(o)); err != nil || f.output.String() == "jsonl" {
			return err
		}
	}
	return a.printOperation(f, o)
}

// followOperation shows an operation until it has ended: an updated tree on a terminal, a JSON document per line with -o jsonl, otherwise a line per
// change. Only data goes to standard output.
func (a *app) followOperation(ctx context.Context, k client.WithWatch, f *cloudFlags, key client.ObjectKey) error {
	last, err := a.watchOperation(ctx, k, f, key)
	if last == nil || f.output.String() == "jsonl" {
		return err
	}
	if f.output.String() != "table" || err == nil {
		if perr := a.printOperation(f, last); perr != nil {
			return perr
		}
	}
	return err
}

// watchOperation is like followOperation without the result; without --wait it ends after the checks.
func (a *app) watchOperation(ctx context.Context, k client.WithWatch, f *cloudFlags, key client.ObjectKey) (*cluster.Operation, error) {
	show, end := a.operationView(f.output.String())
	defer end()
	if !f.wait {
		return cluster.FollowChecks(ctx, k, key, show)
	}
	return cluster.FollowOperation(ctx, k, key, show)
}

func (a *app) operationView(format string) (show func(*cluster.Operation), end func()) {
	if format == "jsonl" {
		return func(o *cluster.Operation) { _ = writeJSONLine(a.events, o) }, func() {} // an error is reported at the end
	}
	if ui.IsTerminal(a.Err) {
		p := ui.NewPicture(a.Err)
		return func(o *cluster.Operation) {
			p.Show(func(now time.Time) []string { return cluster.OperationTree(o, now) })
		}, p.Close
	}
	var before *cluster.Operation
	return func(o *cluster.Operation) {
		a.say(cluster.OperationChanges(before, o))
		before = o.DeepCopy()
	}, func() {}
}

func (a *app) printOperation(f *cloudFlags, o *cluster.Operation) error {
	return a.print(f.output, o, func(p *page) {
		if f.wait {
			p.line("Operation %s %s", o.Name, o.Status.Phase)
		} else {
			p.line("Operation %s created; to follow it: ocadm operation show %s", o.Name, o.Name)
		}
	})
}

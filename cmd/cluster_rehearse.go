// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
)

// rehearseUpdate creates an operation that runs an update's migrations on copies of the databases.
func (a *app) rehearseUpdate(c *cobra.Command, f *updateFlags) error {
	o, err := f.trial(c, v1alpha1.ActionRehearse, "rehearse")
	if err != nil {
		return err
	}
	o.Namespace = f.namespace
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		if _, err := cluster.OperateOnce(ctx, k, o); err != nil {
			return err
		}
		if !f.wait {
			return a.printOperation(&f.cloudFlags, o)
		}
		last, err := a.watchOperation(ctx, k, &f.cloudFlags, client.ObjectKeyFromObject(o))
		if last == nil || f.output.String() == "jsonl" {
			return err
		}
		return errors.Join(a.print(f.output, last, func(p *page) { printRehearsal(p, last.Status.Rehearsal) }), err)
	})
}

// checkUpdate creates an operation that runs the checks of an update and makes the nodes pull its images.
func (a *app) checkUpdate(c *cobra.Command, f *updateFlags) error {
	o, err := f.trial(c, v1alpha1.ActionCheck, "dry-run")
	if err != nil {
		return err
	}
	f.wait, o.Spec.Update.NoBackup = true, f.noBackup // copies need space
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.operate(ctx, k, &f.cloudFlags, o) })
}

// trial returns an operation that tries an update without changing the cloud; flag is the flag that requests it. It ignores settings that it does not
// support, but not flags.
func (f *updateFlags) trial(c *cobra.Command, action, flag string) (*cluster.Operation, error) {
	for _, name := range []string{"at-once", "on-failure", "profile", "operator-version", "operator-image", "operator-only"} {
		if typed(c, name) {
			return nil, misused("--"+name+" and --"+flag+" cannot be combined", "leave out --"+name)
		}
	}
	return &cluster.Operation{Spec: v1alpha1.OnecloudOperationSpec{
		Cloud: f.name, Action: action, Requester: requester(), Update: &v1alpha1.UpdateParameters{
			Version: f.Version, ImageRepository: f.ImageRepository, Edition: f.Edition, DisableResourceManagement: f.DisableResourceManagement,
			AllowDowngrade: f.downgrade,
		},
	}}, nil
}

// printRehearsal writes a line for each component.
func printRehearsal(p *page, list []v1alpha1.Rehearsed) {
	if len(list) == 0 {
		return
	}
	table(p, []string{"COMPONENT", "RESULT", "TIME", "ROWS", "BEFORE", "AFTER", "DATABASES", "MESSAGE"}, list, func(one v1alpha1.Rehearsed) []string {
		return []string{one.Component, string(one.Result), one.Duration, strconv.FormatInt(one.Rows, 10), ui.Bytes(one.BytesBefore), ui.Bytes(one.BytesAfter),
			strings.Join(one.Databases, ","), strings.ReplaceAll(one.Message, "\n", " ")}
	})
}

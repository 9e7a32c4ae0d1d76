// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
)

// rehearseUpdate lets an operation run the migrations of an update on copies of the databases.
func (a *app) rehearseUpdate(c *cobra.Command, f *cloudFlags, u cluster.Update, downgrade bool) error {
	o, err := trial(c, f, v1alpha1.ActionRehearse, "rehearse", u, downgrade)
	if err != nil {
		return err
	}
	o.Namespace = f.namespace
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		if _, err := cluster.OperateOnce(ctx, k, o); err != nil {
			return err
		}
		if !f.wait {
			return a.printOperation(f, o)
		}
		last, err := a.watchOperation(ctx, k, f, client.ObjectKeyFromObject(o))
		if last == nil || f.output.String() == "jsonl" {
			return err
		}
		return errors.Join(ui.Print(a.Out, f.output.String(), last, func(w io.Writer) error { return printRehearsal(w, last.Status.Rehearsal) }), err)
	})
}

// checkUpdate lets an operation run the checks of an update, and the nodes pull its images.
func (a *app) checkUpdate(c *cobra.Command, f *cloudFlags, u cluster.Update, downgrade, noBackup bool) error {
	o, err := trial(c, f, v1alpha1.ActionCheck, "dry-run", u, downgrade)
	if err != nil {
		return err
	}
	f.wait, o.Spec.Update.NoBackup = true, noBackup // copies need space
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.operate(ctx, k, f, o) })
}

// trial is an operation that tries an update and changes nothing of the cloud; flag is the one that asks for it.
func trial(c *cobra.Command, f *cloudFlags, action, flag string, u cluster.Update, downgrade bool) (*cluster.Operation, error) {
	for _, name := range []string{"at-once", "on-failure", "profile", "operator-version", "operator-image", "operator-only"} {
		if c.Flags().Changed(name) {
			return nil, misused("--"+name+" and --"+flag+" do not go together", "leave out --"+name)
		}
	}
	return &cluster.Operation{Spec: v1alpha1.OnecloudOperationSpec{
		Cloud: f.name, Action: action, Requester: requester(), Update: &v1alpha1.UpdateParameters{
			Version: u.Version, ImageRepository: u.ImageRepository, Edition: u.Edition, DisableResourceManagement: u.DisableResourceManagement,
			AllowDowngrade: downgrade,
		},
	}}, nil
}

// printRehearsal writes a line for each component.
func printRehearsal(out io.Writer, list []v1alpha1.Rehearsed) error {
	if len(list) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tRESULT\tTIME\tROWS\tBEFORE\tAFTER\tDATABASES\tMESSAGE")
	for _, one := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", one.Component, one.Result, one.Duration, one.Rows, ui.Bytes(one.BytesBefore), ui.Bytes(one.BytesAfter),
			strings.Join(one.Databases, ","), strings.ReplaceAll(one.Message, "\n", " "))
	}
	return w.Flush()
}

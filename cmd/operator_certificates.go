// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// newOperatorCertificates returns the command of the operator's Jobs on each control-plane node.
func newOperatorCertificates(a *app) *cobra.Command {
	var renew bool
	var since, report string
	c := &cobra.Command{
		Use: "node-certificates", Short: "Report on the certificates of this control-plane node, and renew them", Hidden: true,
		Long: "Writes a report on the certificates of this control-plane node. With --renew, it first renews those that are due. As the first\n" +
			"process of a container it runs itself again, forwards signals to that process, and reaps processes that lost their parent.",
		Example: "  ocadm operator node-certificates --report /dev/termination-log\n  ocadm operator node-certificates --renew --since 2027-01-02T15:04:05Z",
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Getpid() == firstProcess {
				return runBelow()
			}
			var older time.Time
			if since != "" {
				var err error
				if older, err = time.Parse(time.RFC3339, since); err != nil {
					return fmt.Errorf("reading --since: %w", err)
				}
			}
			h, err := controlPlaneHost(c.Context(), !renew)
			if err != nil {
				return err
			}
			if renew {
				if err := a.renewUnattended(c.Context(), h, older); err != nil {
					return err
				}
			}
			found, err := kubernetes.ReportCertificates(h, time.Now())
			if err != nil {
				return err
			}
			text, err := json.Marshal(found)
			if err != nil {
				return fmt.Errorf("writing the report: %w", err)
			}
			if report == "" {
				_, err = fmt.Fprintln(a.Out, string(text))
				return err
			}
			if err := os.WriteFile(report, text, 0o600); err != nil {
				return fmt.Errorf("writing the report: %w", err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&renew, "renew", false, "first renew the certificates that are due")
	c.Flags().StringVar(&since, "since", "", "also renew certificates issued before this time")
	c.Flags().StringVar(&report, "report", "", "file for the report; empty prints it")
	return c
}

// renewUnattended renews under the lock of the machine. The pod's log shows the progress. There is no journal, because each step detects whether it
// is done.
func (a *app) renewUnattended(ctx context.Context, h *host.Host, since time.Time) (err error) {
	unlock, err := workflow.Lock(filepath.Join(h.Files.Path("/"), lockFile))
	if err != nil {
		return err
	}
	defer unlock()
	kubernetes.UseValidity(ctx, h)
	n, err := kubernetes.PlanUnattended(h, time.Now(), since)
	if err != nil {
		return err
	}
	renderer := ui.New(a.Err, ui.Options{})
	defer renderer.Close()
	_, err = workflow.Runner[*kubernetes.Renewal]{Plan: "certs renew", Phases: kubernetes.RenewSteps(), Sink: a.redacted(renderer)}.
		Run(Killed(ctx), n, workflow.Options{Stop: ctx})
	if err != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("renewing certificates: %w", context.Cause(ctx))
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
)

func newClusterStatus(a *app) *cobra.Command {
	var f cloudFlags
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the state and version of every component",
		Long: "Shows the status that the operator reports: the state and version of each component, and what the unavailable ones wait for.\n\n" +
			"--watch keeps the status up to date until Ctrl-C, or until --timeout if it is given; with --wait it ends when every component is\n" +
			"available. On a terminal, it shows a tree of the unavailable components, what each waits for, and why that is not available.\n" +
			"Otherwise it prints a line for each change, with -o json a JSON document.\n\n" +
			"The exit status is 0 if the cloud is ready, 72 if it is degraded, and 73 if it is not ready yet; also when Ctrl-C or --timeout ends\n" +
			"--watch without --wait. When --timeout ends --wait, it is 70.",
		Example: "  ocadm cluster status\n  ocadm cluster status --wait --timeout 10m\n  ocadm cluster status --watch\n" +
			"  ocadm cluster status -o json | jq -r '.components[] | select(.state != \"Available\") | .name'",
		RunE: func(c *cobra.Command, _ []string) error {
			if watch {
				if f.output.String() == "yaml" {
					return misused("--watch has no output format yaml", "ocadm cluster status --watch -o json")
				}
				timeout := f.timeout
				if !f.wait && !c.Flags().Changed("timeout") {
					timeout = unbounded
				}
				return f.within(c.Context(), timeout, func(ctx context.Context, k client.WithWatch) error {
					return a.watchCloud(ctx, k, &f)
				})
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				if f.wait {
					return a.waitForCloud(ctx, k, &f)
				}
				return a.printStatus(ctx, k, &f)
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, "wait until every component is available")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show each change")
	return c
}

func (a *app) printStatus(ctx context.Context, k client.Client, f *cloudFlags) error {
	s, err := cluster.Get(ctx, k, f.key())
	if err != nil {
		return err
	}
	if s.Database, err = cluster.DatabaseLine(ctx, k, f.key()); err != nil {
		return err
	}
	if err := a.print(f.output, s, func(p *page) { statusTable(p, s, time.Now()) }); err != nil {
		return err
	}
	return unwell(s)
}

// unwell returns the error for the exit status of commands that show a cloud's status: nil if it is Ready.
func unwell(s cluster.Status) error {
	key := client.ObjectKey{Namespace: s.Namespace, Name: s.Name}
	switch cause := errors.New(cmp.Or(s.Unreachable, s.Message)); {
	case s.Ready && s.Unreachable == "":
		return nil
	case s.Degraded:
		return &shownError{finding.Errorf("OCA-7201", fmt.Sprintf("Cloud %s is Degraded", key), "ocadm cluster status --watch", "%w", cause)}
	default:
		return &shownError{finding.Errorf("OCA-7301", fmt.Sprintf("Cloud %s is not ready yet", key), "ocadm cluster status --wait", "%w", cause)}
	}
}

func statusTable(p *page, s cluster.Status, now time.Time) {
	state := s.Health()
	if !s.Ready {
		state += ": " + s.Reason()
	}
	p.line("cloud %s/%s, version %s: %s\n%s", s.Namespace, s.Name, cmp.Or(s.Version, "-"), state, s.Tally())
	for _, fact := range []struct{ title, text string }{
		{"blocked: ", s.Blocked}, {"paused: ", s.Paused}, {"fields ignored: ", s.Ignored}, {"", s.NodesNotReady},
		{"not highly available: ", s.NotSpread}, {"database: ", s.Database}, {"no proven backup: ", s.NotProven}, {"certificates of nodes: ", s.NodeCertificates},
		{"operation: ", s.Operation}, {"operation failed: ", s.UpdateFailed}, {"update available: ", s.UpdateAvailable}, {"", certificates(s.Certificates)},
	} {
		if fact.text != "" {
			p.line("%s%s", fact.title, fact.text)
		}
	}
	if len(s.Components) == 0 {
		return
	}
	p.line("")
	table(p, []string{"COMPONENT", "STATE", "VERSION", "SINCE", "WHY"}, s.Components, func(c v1alpha1.ComponentStatus) []string {
		since := ""
		if !c.Since.IsZero() {
			since = now.Sub(c.Since.Time).Round(time.Second).String()
		}
		why := cluster.Why(c)
		if c.State == v1alpha1.Available && !c.Outdated {
			why = ""
		}
		return []string{c.Name, string(c.State), cmp.Or(c.Version, "-"), cmp.Or(since, "-"), why}
	})
}

// certificates describes the certificates in a line; "" if the operator has not reported any.
func certificates(c v1alpha1.CertificatesStatus) string {
	if c.NotAfter.IsZero() {
		return ""
	}
	line := "certificates expire " + c.NotAfter.UTC().Format(time.DateOnly) + ", their CA " + c.CANotAfter.UTC().Format(time.DateOnly)
	switch {
	case c.Message != "":
		line += ": " + c.Message
	case c.Supplied:
		line += "; provided by you"
	case !c.RenewAt.IsZero():
		line += "; renewal " + c.RenewAt.UTC().Format(time.DateOnly)
	}
	return line
}

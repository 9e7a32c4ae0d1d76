// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/cluster/why/gather"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
)

// printReport prints the cause, followed by the rest.
func printReport(w io.Writer, r why.Report) {
	fmt.Fprintln(w, r.State)
	switch {
	case r.Cause != nil:
		if len(r.Way) > 1 {
			steps := lists.Map(r.Way, func(s why.Subject) string { return string(s) })
			word := "because"
			if r.Healthy {
				word = "warning"
			}
			fmt.Fprintln(w, word+": "+strings.Join(steps, " → "))
		}
		ui.Findings(w, program, finding.List{r.Cause.Finding})
	case r.Healthy && len(r.Others) > 0:
		fmt.Fprintln(w, "No known problem affects it.")
	case r.Healthy:
		fmt.Fprintln(w, "Nothing is wrong.")
	default:
		fmt.Fprintln(w, "No cause is known. To see what the cloud waits for: ocadm cluster status --watch. To ask for help: ocadm support")
	}
	printShort(w, "Found elsewhere, too", r.Same)
	printShort(w, "Also explained by this cause", r.Consequences)
	if len(r.Others) > 0 {
		head := "Not explained by this cause:"
		if r.Cause == nil {
			head = "Found elsewhere:"
		}
		fmt.Fprintln(w, head)
		for _, x := range r.Others {
			ui.Findings(w, program, finding.List{x.Finding})
		}
	}
	for _, m := range r.Missing {
		fmt.Fprintln(w, "not read: "+m)
	}
}

func printShort(w io.Writer, head string, list []why.Found) {
	if len(list) > 0 {
		fmt.Fprintf(w, "%s (%d):\n", head, len(list))
	}
	for _, x := range list {
		fmt.Fprintf(w, "  %s: %s\n", x.Code, x.What)
	}
}

type knownCause struct {
	ID       string           `json:"id"`
	Code     string           `json:"code"`
	Layer    string           `json:"layer"`
	Severity finding.Severity `json:"severity"`
	Title    string           `json:"title"`
	Fix      why.Action       `json:"fix,omitempty"`
}

func causesListed() []knownCause {
	return lists.Map(why.Causes(), func(c why.Cause) knownCause {
		l := knownCause{ID: c.ID, Code: c.Code, Layer: c.Layer.String(), Severity: finding.Error, Title: c.Title}
		if c.Warning {
			l.Severity = finding.Warning
		}
		if c.Fix != nil {
			l.Fix = c.Fix.Action
		}
		return l
	})
}

func (a *app) printCauses(output *ui.Choice) error {
	list := causesListed()
	return a.print(output, list, func(p *page) {
		table(p, []string{"CAUSE", "CODE", "LAYER", "MEANING"}, list, func(l knownCause) []string { return []string{l.ID, l.Code, l.Layer, l.Title} })
	})
}

// fix shows the repairs and makes those that are confirmed. It reports whether the cause is repaired everywhere.
func (a *app) fix(ctx context.Context, f *whyFlags, k client.Client, r why.Report) (fixed bool, _ error) {
	repairs := r.Repairs()
	if len(repairs) == 0 {
		fmt.Fprintln(a.Err, "ocadm has no safe repair for this. Run the next command of the cause.")
		return false, nil
	}
	done := map[string]bool{}
	for _, x := range repairs {
		fmt.Fprintf(a.Err, "%s\n  %s\n", x.Title, x.Command)
		if f.yes && !r.Unasked(x) {
			fmt.Fprintf(a.Err, "Skipped: only a person can decide whether it is safe. To do it: ocadm why %s --fix\n", x.Node)
			continue
		}
		if !f.yes {
			yes, err := ui.Confirm(ctx, a.In, a.Err, "Do this? [yes/no]", "yes", "--yes")
			if err != nil {
				return false, err
			}
			if !yes {
				fmt.Fprintln(a.Err, "Skipped.")
				continue
			}
		}
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		left, err := gather.Repair(bounded, k, x)
		cancel()
		if err != nil {
			return false, err
		}
		if left != "" {
			fmt.Fprintf(a.Err, "Skipped: %s. To check again: ocadm why\n", left)
			continue
		}
		fmt.Fprintln(a.Err, "Done. To check again: ocadm why")
		done[x.Command] = true
	}
	return r.Repaired(done), nil
}

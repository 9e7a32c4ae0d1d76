// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
)

func newClusterHistory(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use:   "history",
		Short: "List the releases of the cloud",
		Long: "Lists the releases of the cloud, the latest first. A release is everything that the operator rendered for the cloud at one time. The\n" +
			"operator keeps the last ten, the last one in which every component worked, and the last one of another version.",
		Example: "  ocadm cluster history\n  ocadm cluster history -o json | jq '.[0].why'",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) ([]cluster.Release, error) {
		return cluster.History(ctx, k, f.key())
	}, func(p *page, list []cluster.Release) {
		table(p, []string{"REVISION", "TIME", "VERSION", "OPERATOR", "STATE", "WHY"}, list, func(r cluster.Release) []string {
			return []string{strconv.Itoa(r.Revision), r.Time.UTC().Format(time.RFC3339), r.Version, r.Operator, state(r), strings.Join(r.Why, "; ")}
		})
	})
}

func state(r cluster.Release) string {
	switch {
	case r.InForce && r.Good:
		return "in force, served"
	case r.InForce:
		return "in force"
	case r.Good:
		return "served last"
	}
	return ""
}

func newClusterDiff(a *app) *cobra.Command {
	var f cloudFlags
	var p cluster.Proposal
	var file string
	c := &cobra.Command{
		Use:   "diff [REVISION [REVISION]]",
		Short: "Show what an update would change, or compare releases",
		Long: "Shows object by object and field by field what would change: without arguments, what ocadm cluster update would change; with --version\n" +
			"or -f, what the version or the manifest would change. With one revision, it compares that release with the current one; with two, it\n" +
			"compares both. It writes nothing, and shows no secret. For a paused cloud, it shows what will change when the pause ends. The result\n" +
			"is valid for an operator of the same version as this program.",
		Example: "  ocadm cluster diff\n  ocadm cluster diff --version v4.0.4 -o diff\n  ocadm cluster diff -f cloud.yaml -o json\n  ocadm cluster diff 3 5",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkVersion(c, p.Update.Version); err != nil {
				return err
			}
			var revisions []int
			for _, arg := range args {
				n, err := strconv.Atoi(arg)
				if err != nil || n < 1 {
					return misused(fmt.Sprintf("%q is not a revision", arg), "ocadm cluster history")
				}
				revisions = append(revisions, n)
			}
			if len(args) > 0 && (file != "" || p.Update.Version != "") {
				return misused("a revision cannot be combined with --version or --filename", "give one of them")
			}
			if file != "" {
				var err error
				if p.File, err = os.ReadFile(file); err != nil {
					return misused(err.Error(), "give a file with the manifest of the cloud")
				}
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				d, err := cluster.Diff(ctx, k, f.key(), p, revisions...)
				if err != nil {
					return err
				}
				return ui.Print(a.Out, f.output.String(), d, func(w io.Writer) error {
					if f.output.String() != "diff" {
						return d.Words(w)
					}
					for _, o := range d.Objects {
						if _, err := io.WriteString(w, o.Unified); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}
	f.add(a, c, nil, "words", "diff", "json", "yaml")
	c.Flags().StringVar(&p.Update.Version, "version", "", "release of the cloud")
	c.Flags().StringVarP(&file, "filename", "f", "", "manifest of the cloud to compare with")
	c.MarkFlagsMutuallyExclusive("version", "filename")
	return c
}

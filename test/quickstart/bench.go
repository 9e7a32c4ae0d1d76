// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/scenario"
)

func benchCommand() *cobra.Command {
	var runs int
	cmd := &cobra.Command{
		Use: "bench-init", Args: cobra.NoArgs,
		Short: "ocadm init beside plain kubeadm init with the same manifests, on identical machines",
		RunE:  func(cmd *cobra.Command, _ []string) error { return bench(cmd.Context(), runs) },
	}
	cmd.Flags().IntVar(&runs, "runs", 2, "number of runs of each")
	return cmd
}

// bench measures the time from the command to a Ready node with network, storage and DNS, each time on a fresh machine that already has the node's software and images.
func bench(ctx context.Context, runs int) error {
	ocadm, bundle, err := scenario.Build(ctx, ".", "v4.0.3", "", logf)
	if err != nil {
		return err
	}
	var ours, plain []float64
	for i := range runs {
		o, err := onMachine(ctx, ocadm, bundle, fmt.Sprintf("bench-a%d", i), func(sc *scenario.Scenario) error {
			return sc.Init(ctx, "--ingress", "none", "--skip-phases", "database,operator,cloud-settings,operator-ready,cloud")
		})
		if err != nil {
			return err
		}
		p, err := onMachine(ctx, ocadm, bundle, fmt.Sprintf("bench-b%d", i), func(sc *scenario.Scenario) error { return sc.PlainInit(ctx) })
		if err != nil {
			return err
		}
		ours, plain = append(ours, o), append(plain, p)
	}
	fmt.Printf("ocadm init     %s s\nplain kubeadm  %s s\nratio          %.2f (sum of %d runs each)\n", list(ours), list(plain), sum(ours)/sum(plain), runs)
	return nil
}

func onMachine(ctx context.Context, ocadm, bundle, name string, walk func(*scenario.Scenario) error) (float64, error) {
	l, err := machine.Up(ctx, machine.Options{Name: name, Nodes: 1, Ocadm: ocadm, Bundle: bundle, Logf: logf})
	if err != nil {
		return 0, err
	}
	sc := &scenario.Scenario{Lab: l, Story: os.Stderr}
	werr := sc.Software(ctx)
	if werr == nil {
		werr = walk(sc)
	}
	if err := l.Down(context.WithoutCancel(ctx)); err != nil {
		return 0, err
	}
	if werr != nil {
		return 0, werr
	}
	return lists.Sum(sc.Times, func(s scenario.Step) float64 { return s.Took.Seconds() }), nil
}

func list(v []float64) string {
	return strings.Join(lists.Map(v, func(x float64) string { return fmt.Sprintf("%.1f", x) }), " ")
}

func sum(v []float64) (t float64) {
	for _, x := range v {
		t += x
	}
	return t
}

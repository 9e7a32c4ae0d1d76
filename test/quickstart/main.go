// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command quickstart ("make quickstart") sets up a running cloud on two lab machines, or more, and reports its progress. It also removes them again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/scenario"
)

// lab is the name of the quickstart's lab, which is separate from a developer's.
const lab = "quickstart"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := &cobra.Command{Use: "quickstart", SilenceUsage: true, SilenceErrors: true}
	cmd.AddCommand(upCommand(), downCommand(), benchCommand())
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

var start = time.Now()

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1f s] "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
}

func upCommand() *cobra.Command {
	var nodes, controlPlanes int
	var version, images string
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs, Short: "Machines, cluster, cloud",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), nodes, controlPlanes, version, images)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 2, "how many machines")
	cmd.Flags().IntVar(&controlPlanes, "control-planes", 1, "how many of them are control-plane nodes; more than one get a virtual address")
	cmd.Flags().StringVar(&version, "version", "v4.0.3", "release of the cloud")
	cmd.Flags().StringVar(&images, "service-images", "", "directory of docker-archive files to run instead of the stand-ins")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Args: cobra.NoArgs, Short: "Remove the machines",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := machine.Down(cmd.Context(), lab, logf); err != nil {
				return err
			}
			logf("no mount, namespace, bridge or process is left")
			return nil
		},
	}
}

func up(ctx context.Context, nodes, controlPlanes int, version, images string) error {
	nodes = max(nodes, controlPlanes)
	ocadm, bundle, err := scenario.Build(ctx, ".", version, images, logf)
	if err != nil {
		return err
	}
	options := machine.Options{Name: lab, Nodes: nodes, Ocadm: ocadm, Bundle: bundle, Logf: logf}
	err = install(ctx, options, controlPlanes, version)
	if err == nil || !strings.Contains(err.Error(), otherRelease) {
		return err
	}
	// ocadm changes nothing on a machine that another build installed, and every commit is another build.
	logf("these machines belong to another build: replacing them")
	if err := machine.Down(ctx, lab, logf); err != nil {
		return err
	}
	return install(ctx, options, controlPlanes, version)
}

// otherRelease is the finding that another build of ocadm has installed a machine.
const otherRelease = "OCA-1027"

func install(ctx context.Context, o machine.Options, controlPlanes int, version string) error {
	logf("booting %d machines", o.Nodes)
	l, err := machine.Up(ctx, o)
	if err != nil {
		return err
	}
	sc := &scenario.Scenario{Lab: l, Story: os.Stderr}
	// Do not wait for the cloud yet: its compute agents need the nodes that join next.
	args := []string{"--onecloud-version", version, "--wait=false"}
	create := []string{scenario.Ocadm, "cluster", "create", "--version", version, "--wait"}
	if controlPlanes > 1 { // a cloud created after the others have joined is spread over all of them
		args = []string{"--high-availability-vip", sc.VirtualAddress()}
		create = append(create, "--profile", "ha")
	}
	if err := sc.Init(ctx, args...); err != nil {
		return err
	}
	for i := 2; i <= o.Nodes; i++ {
		join := func() error { return sc.Join(ctx, i) }
		if i <= controlPlanes {
			join = func() error { return sc.JoinControlPlane(ctx, 1, i) }
		}
		if err := join(); err != nil {
			return err
		}
	}
	err = sc.Timed("cloud available", func() error {
		_, err := sc.On(ctx, 1, create...)
		return err
	})
	if err == nil && controlPlanes > 1 {
		err = redundant(ctx, sc)
	}
	if err != nil {
		return err
	}
	return show(ctx, sc, os.Stdout)
}

// redundant adds a replica of the database and prints the state of the control plane.
func redundant(ctx context.Context, sc *scenario.Scenario) error {
	err := sc.Timed("database replica", func() error {
		_, err := sc.On(ctx, 1, scenario.Ocadm, "cluster", "database", "add-replica")
		return err
	})
	if err != nil {
		return err
	}
	status, err := sc.HAStatus(ctx, 1)
	if err == nil && len(status.Problems) > 0 {
		err = fmt.Errorf("the control plane is not complete: %s", strings.Join(status.Problems, "; "))
	}
	return err
}

// show checks and prints the result, as a user would.
func show(ctx context.Context, sc *scenario.Scenario, w io.Writer) error {
	if err := sc.AllAvailable(ctx); err != nil {
		return err
	}
	page, err := sc.Web(ctx)
	if err != nil {
		return err
	}
	token, err := sc.Login(ctx)
	if err != nil {
		return err
	}
	for _, argv := range [][]string{{"get", "nodes", "-o", "wide"}, {"get", "oc", "-A"}} {
		out, err := sc.Kubectl(ctx, argv...)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n$ kubectl %s\n%s", strings.Join(argv, " "), out)
	}
	status, err := sc.On(ctx, 1, scenario.Ocadm, "cluster", "status")
	if err != nil {
		return err
	}
	address, err := sc.Address(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n$ ocadm cluster status\n%s\n", status)
	fmt.Fprintf(w, "console    https://%s/ (%d bytes, certificate of the cloud's CA)\n", address, len(page))
	fmt.Fprintf(w, "login      through apigateway with rcadmin's account: token of %d characters\n\ntimes\n", len(token))
	sc.Report(w)
	fmt.Fprintf(w, "\nnext       make lab-shell LAB=%s NODE=1   ·   make quickstart-down\n", lab)
	return nil
}

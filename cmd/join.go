// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

func newJoin(a *app) *cobra.Command {
	var f runFlags
	p := plan{name: "join", command: config.ForJoin, phases: phases.Join(), prepare: joinImages, finish: finishJoin}
	c := &cobra.Command{
		Use:   "join HOST[:PORT]",
		Short: "Join this machine to a cluster",
		Long: "Turns a fresh machine into a worker of the cluster whose control plane answers at HOST[:PORT], by default on port 6443.\n" +
			"On a control-plane node, \"ocadm token create --print-join-command\" prints the complete command.",
		Example: `  # as printed on the control plane
  ocadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:1234...

  # join a node that runs virtual machines, without internet access
  ocadm join 10.0.0.1 --token ... --discovery-token-ca-cert-hash ... --enable-host-agent --bundle ocadm.bundle`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error { return a.runJoin(c, p, f) },
	}
	flags := func(fs *pflag.FlagSet, f *runFlags) {
		addSettings(fs, config.ForJoin)
		addRunFlags(fs, f)
		addForce(fs, f)
	}
	flags(c.Flags(), &f)
	bindPhases(c, a, p, flags)
	return c
}

func (a *app) runJoin(c *cobra.Command, p plan, f runFlags) error {
	if on, err := c.Flags().GetBool("control-plane"); err == nil && on {
		return finding.Finding{Code: "OCA-0405", Severity: finding.Error, What: "Additional control-plane nodes are not supported yet",
			Cause: "--control-plane was given", Remedy: "join this machine as a worker, without --control-plane"}
	}
	return a.runPlan(c, p, f)
}

func finishJoin(_ context.Context, a *app, h *host.Host, f runFlags) error {
	if f.output.String() == "jsonl" {
		return printResult(a, "join", withNetworks(h, map[string]string{"node": h.Config.Node.Name}))
	}
	if f.quiet {
		return nil
	}
	_, err := fmt.Fprintf(a.Err, "\nThis machine is node %s of the cluster at %s. On the control plane:\n\n  kubectl get nodes\n%s",
		h.Config.Node.Name, h.Config.Join.Endpoint, afterCompute(h))
	return err
}

// afterCompute lists what users must do before a compute node appears in the cloud, because the installer cannot log in to it.
func afterCompute(h *host.Host) string {
	commands := compute.NetworkCommands(h)
	if len(commands) == 0 {
		return ""
	}
	return "\nThe host appears in the cloud only if the cloud has a network of type baremetal for its subnet. If there is none, create it as\n" +
		"administrator of the cloud:\n\n  " + strings.Join(commands, "\n  ") + "\n\nThen enable the host: climc host-list, climc host-enable NAME\n"
}

// withNetworks adds the commands of afterCompute to the result of a run.
func withNetworks(h *host.Host, data map[string]string) map[string]string {
	if commands := compute.NetworkCommands(h); len(commands) > 0 {
		data["networkCommands"] = strings.Join(commands, "\n")
	}
	return data
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/doctor"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/spread"
)

func newJoin(a *app) *cobra.Command {
	var f runFlags
	p := plan{name: "join", command: config.ForJoin, phases: phases.Join(), rollback: phases.Rollback(), prepare: joinImages, finish: finishJoin}
	c := &cobra.Command{
		Use:   "join HOST[:PORT]",
		Short: "Join this machine to a cluster",
		Long: "Turns a fresh machine into a worker of the cluster whose control plane answers at HOST[:PORT], by default on port 6443, or with\n" +
			"--control-plane into an additional control-plane node. On a control-plane node, \"ocadm token create --print-join-command\" prints the\n" +
			"complete command; add --control-plane for a control-plane node. After a failure, run join again: it continues where it stopped.\n\n" +
			"At the end, join tests the pod network to every other node, and warns (OCA-5112) if packets do not get there and back.",
		Example: `  # as printed on the control plane
  ocadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:1234...

  # join another control-plane node; "ocadm token create --print-join-command --control-plane" prints this line
  ocadm join 10.0.0.10:6443 --token ... --discovery-token-ca-cert-hash ... --control-plane --certificate-key ...

  # join a node that runs virtual machines, without internet access
  ocadm join 10.0.0.1 --token ... --discovery-token-ca-cert-hash ... --enable-host-agent --bundle ocadm.bundle`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, _ []string) error { return a.runPlan(c, p, f) },
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

func finishJoin(ctx context.Context, a *app, h *host.Host, f runFlags) error {
	once := a.notRedundant(ctx, h)
	unreached := doctor.Unreached(ctx, h, func(why string) {
		if !f.quiet {
			fmt.Fprintln(a.Err, "waiting for the pod network: "+why)
		}
	})
	a.warnOf(unreached)
	a.warnStillHost(ctx, h)
	if f.output.String() == "jsonl" {
		data := withNetworks(h, map[string]string{"node": h.Config.Node.Name})
		if len(once) > 0 {
			data["notRedundant"] = strings.Join(once, "\n")
		}
		if unreached != nil {
			data["podNetwork"] = unreached.Error()
		}
		return printResult(a, "join", data)
	}
	if f.quiet {
		return nil
	}
	role, where := "node", "On the control plane:"
	if h.Config.Join.ControlPlane {
		role, where = "control-plane node", "To use the cluster as root, run:\n\n  export KUBECONFIG="+h.Kubeconfig()
	}
	_, err := fmt.Fprintf(a.Err, "\nThis machine is %s %s of the cluster at %s. %s\n\n  kubectl get nodes\n%s%s",
		role, h.Config.Node.Name, h.Config.Join.Endpoint, where, afterControlPlane(once), afterCompute(h))
	return err
}

// warnStillHost says that a repeated run without --enable-host-agent leaves the host agent on the node.
func (a *app) warnStillHost(ctx context.Context, h *host.Host) {
	ctx, cancel := context.WithTimeout(ctx, joinCommandTimeout)
	defer cancel()
	if still := compute.StillHost(ctx, h); still != "" {
		a.warn("%s", still)
	}
}

// notRedundant returns what an additional control-plane node does not change by itself: what in the cluster and its clouds still depends on one node.
func (a *app) notRedundant(ctx context.Context, h *host.Host) []string {
	if !h.Config.Join.ControlPlane {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinCommandTimeout)
	defer cancel()
	k, err := h.Kube(ctx)
	var once []string
	if err == nil {
		once, err = spread.Once(ctx, k)
	}
	if err != nil {
		a.warn("cannot determine what still runs on one node only: %v; run ocadm ha status later", err)
	}
	return once
}

// afterControlPlane formats the list; each line ends with a command.
func afterControlPlane(once []string) string {
	if len(once) == 0 {
		return ""
	}
	return "\nThe control plane has another node, but the loss of one node still stops some of what runs on it. To change that, run the command at\n" +
		"the end of each line once all control-plane nodes have joined; ocadm ha status lists what is left:\n\n  " + strings.Join(once, "\n  ") + "\n"
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

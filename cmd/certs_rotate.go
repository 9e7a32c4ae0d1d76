// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/nodefault"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/rotation"
)

// rotated is the output of "certs rotate-ca -o json".
type rotated struct {
	Status rotation.Status `json:"status"`
	stepsRun
}

type rotateFlags struct{ etcd, finish, revert, status bool }

func newCertsRotate(a *app) *cobra.Command {
	var f stepFlags
	var part rotateFlags
	c := &cobra.Command{
		Use: "rotate-ca", Short: "Replace the certificate authorities of Kubernetes in steps",
		Long: "Replaces the certificate authorities of the cluster and of the aggregation layer on all nodes, while the cluster runs. Run it on one\n" +
			"control-plane node. Pods of ocadm do the same on the other control-plane nodes, one after the other, and then on the workers.\n\n" +
			"Without a flag, it creates new authorities, makes all nodes trust both, restarts the pods that use the API, and signs with the\n" +
			"new authorities. Then replace copies of /etc/kubernetes/admin.conf. --finish drops the old authorities: certificates that they signed\n" +
			"are then rejected, and you cannot go back. Until then, --revert returns to the old authorities.\n\n" +
			"A stage begins only when every node has completed the previous one. If the command is interrupted, run it again on any control-plane\n" +
			"node: it continues. --status shows the stage and the nodes that have not completed it.\n\n" +
			"With --etcd it replaces the authority of etcd, too. Then etcd and the API server restart on each control-plane node in turn, at the\n" +
			"beginning and with --finish; with one control-plane node, the API is unavailable meanwhile. The key of service-account tokens is not replaced.",
		Example: "  # show what would be done\n  ocadm certs rotate-ca --dry-run\n\n  ocadm certs rotate-ca\n  ocadm certs rotate-ca --status\n\n" +
			"  # the authority of etcd, too\n  ocadm certs rotate-ca --etcd\n\n" +
			"  # when copies of admin.conf are replaced\n  ocadm certs rotate-ca --finish\n\n  # or go back\n  ocadm certs rotate-ca --revert",
		RunE: func(c *cobra.Command, _ []string) error { return a.rotateCA(c, f, part) },
	}
	f.add(c)
	c.Flags().BoolVar(&part.etcd, "etcd", false, "replace the authority of etcd, too; etcd and API servers restart")
	c.Flags().BoolVar(&part.finish, "finish", false, "drop the old authorities; this cannot be undone")
	c.Flags().BoolVar(&part.revert, "revert", false, "go back to the old authorities")
	c.Flags().BoolVar(&part.status, "status", false, "show the progress of the rotation, and change nothing")
	c.MarkFlagsMutuallyExclusive("etcd", "finish", "revert", "status")
	return c
}

func (a *app) rotateCA(c *cobra.Command, f stepFlags, part rotateFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun || part.status)
	if err != nil {
		return err
	}
	n, err := a.beginRotation(ctx, h, f.dryRun || part.status)
	if err != nil {
		return err
	}
	kubernetes.UseValidity(ctx, h)
	if part.status {
		return a.printRotated(ctx, n, f, rotated{})
	}
	if part.etcd {
		if err := n.WithEtcd(); err != nil {
			return err
		}
	}
	steps := rotation.TrustSteps()
	question := "This replaces the certificate authorities of the cluster, and restarts controller managers, schedulers, kubelets and the pods that use the API"
	if part.etcd {
		question += ", and etcd and API servers on one control-plane node after the other"
	}
	switch {
	case part.finish:
		err = n.Finishable()
		steps, question = rotation.FinishSteps(), "This drops the old certificate authorities. Earlier copies of admin.conf stop working, and this cannot be undone"
	case part.revert:
		err = n.Reversible()
		steps, question = rotation.RevertSteps(), "This goes back to the old certificate authorities"
	case n.Record != nil && (n.Record.Reverting || n.Record.Stage == rotation.Drop):
		steps = nil // the status shows what is next
	}
	if err != nil {
		return err
	}
	out := rotated{stepsRun: noSteps()}
	if out.DryRun = f.dryRun; steps != nil {
		if err := a.confirmSteps(c, f, "Nothing was changed", question); err != nil {
			return err
		}
		f.waits, f.pods = true, true
		inputs := map[string]string{"--finish": fmt.Sprint(part.finish), "--revert": fmt.Sprint(part.revert)}
		if out.stepsRun, err = runSteps(ctx, a, h, "certs rotate-ca", inputs, steps, n, f); err != nil {
			return err
		}
	}
	return a.printRotated(ctx, n, f, out)
}

// beginRotation reads the progress of a rotation. Unless the command only looks, it waits for an API server that an interrupted run may have left restarting. One
// that starts refuses even administrators until it is ready.
func (a *app) beginRotation(ctx context.Context, h *host.Host, look bool) (*rotation.Rotation, error) {
	n, err := rotation.Begin(ctx, h)
	if err != nil {
		err = noCluster(err)
	}
	if look || !silentAPI(err) {
		return n, err
	}
	if a.awaitAPI(ctx, kubernetes.ReloadPatience, func(ctx context.Context) error {
		if why := kubernetes.OwnAPIServer(ctx, h); why != "" {
			return errors.New(why)
		}
		return nil
	}) == nil {
		return a.beginRotation(ctx, h, true)
	}
	return nil, cmp.Or(context.Cause(ctx), err)
}

func (a *app) printRotated(ctx context.Context, n *rotation.Rotation, f stepFlags, out rotated) error {
	var err error
	if out.Status, err = n.Status(ctx); err != nil {
		return err
	}
	if out.Status.Underway {
		out.Next = []string{out.Status.Next}
		if strings.HasSuffix(out.Status.Next, "--finish") && out.Status.Record.Stage == rotation.Sign {
			out.Next = []string{"replace copies of /etc/kubernetes/admin.conf", "print new join commands: ocadm token create --print-join-command", out.Status.Next}
		}
	}
	return a.print(f.output, out, func(p *page) {
		if len(out.Steps) > 0 {
			if out.changes(p, "Nothing to do"); out.DryRun {
				return
			}
			p.line("")
		}
		printRotation(p, out)
	})
}

func printRotation(p *page, out rotated) {
	s := out.Status
	if !s.Underway {
		text := "No rotation of the certificate authorities is underway"
		if s.TwoAuthorities {
			text += ", but this machine trusts two authorities: see ocadm explain OCA-4415"
		}
		p.line("%s", text)
		return
	}
	state := "stage " + string(s.Record.Stage)
	if s.Record.Reverting {
		state += ", reverting"
	}
	p.line("Rotation %s of %s: %s\n", s.Record.ID, strings.Join(s.Record.Authorities, ", "), state)
	table(p, []string{"NODE", "ROLE", "READY", "COMPLETED STAGE", "OLD KUBECONFIGS"}, s.Nodes, func(n rotation.Row) []string {
		role := "worker"
		if n.ControlPlane {
			role = "control-plane"
		}
		return []string{n.Node, role, yesNo(n.Ready), cmp.Or(string(n.Stage), "-"), cmp.Or(strings.Join(n.Left, ","), "-")}
	})
	p.next(out.Next)
}

// newCertsTake returns the command that a pod of a rotation runs on each node.
func newCertsTake(a *app) *cobra.Command {
	var from, report string
	c := &cobra.Command{
		Use: "take-authorities STAGE", Short: "Take over a stage of a rotation on this node", Hidden: true,
		Long: "Writes the certificate authorities of a stage of a rotation to this machine, signs certificates again where the stage requires it, and\n" +
			"restarts programs that do not reread them. The pods of ocadm certs rotate-ca run it; they need access to the processes of the machine\n" +
			"and all permissions.",
		Example: "  ocadm certs take-authorities trust --from /rotation\n  ocadm certs take-authorities sign --from /rotation --report /dev/termination-log",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			data, err := rotation.ReadNode(from)
			if err != nil {
				return err
			}
			to := a.Out
			if report != "" {
				file, err := os.OpenFile(report, os.O_WRONLY, 0) //nolint:gosec // named on the command line; it is in the container, not on the machine
				if err != nil {
					return fmt.Errorf("opening the report: %w", err)
				}
				defer func() { err = errors.Join(err, file.Close()) }()
				to = file
			}
			if err := nodefault.Enter(); err != nil {
				return err
			}
			left, err := a.takeAuthorities(c.Context(), data, rotation.Stage(args[0]))
			if err != nil {
				return err
			}
			return json.NewEncoder(to).Encode(rotation.NewTaken(left))
		},
	}
	c.Flags().StringVar(&from, "from", "", "directory with the record of the rotation")
	c.Flags().StringVar(&report, "report", "", "file for the report; empty prints it")
	return c
}

func (a *app) takeAuthorities(ctx context.Context, data map[string][]byte, stage rotation.Stage) ([]string, error) {
	h, err := controlPlaneHost(ctx, false)
	if err != nil {
		return nil, err
	}
	unlock, err := a.lock(ctx, h, true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	kubernetes.UseValidity(ctx, h)
	n, err := rotation.NewNode(h, data, stage)
	if err != nil {
		return nil, err
	}
	renderer := ui.New(a.Err, ui.Options{})
	defer renderer.Close()
	_, err = workflow.Runner[*rotation.Node]{Plan: "take over", Phases: rotation.NodeSteps(), Sink: a.redacted(renderer)}.
		Run(Killed(ctx), n, workflow.Options{Stop: ctx})
	if err != nil {
		return nil, err
	}
	return n.Left()
}

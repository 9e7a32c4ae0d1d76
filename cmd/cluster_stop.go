// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/lists"
)

func newClusterStop(a *app) *cobra.Command {
	var f cloudFlags
	var yes bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the services of the cloud",
		Long: "Pauses the operator for the cloud, and ends the pods of all services, so that nothing writes to the databases. Agents on nodes and\n" +
			"virtual machines keep running. ocadm cluster start starts the services again.",
		Example: "  ocadm cluster stop --yes\n  ocadm cluster start --wait",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.confirm(c, yes, "Nothing was stopped")(fmt.Sprintf("This stops all services of cloud %s", f.key())); err != nil {
				return err
			}
			return showCloud(a, &f, c, func(ctx context.Context, k client.WithWatch) (outcome, error) {
				return f.outcome("stopped"), cluster.Stop(ctx, k, f.key(), "", a.waiting())
			}, printOutcome)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), true, "wait until the pods are gone")
	_ = c.Flags().MarkHidden("wait")
	addYes(c.Flags(), &yes)
	return c
}

func newClusterStart(a *app) *cobra.Command {
	var f cloudFlags
	c := &cobra.Command{
		Use:   "start",
		Short: "Start the services of the cloud again",
		Long: "Has the operator start the services that ocadm cluster stop, or an interrupted restore or move, has stopped. If the cloud was paused\n" +
			"before, it is paused again. With --wait after a restore of etcd, the cloud must stay ready for a minute: until then, pods may have the\n" +
			"status of the snapshot.",
		Example: "  ocadm cluster start\n  ocadm cluster start --wait",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				hold, err := cluster.Hold(ctx, k, f.key())
				if err != nil {
					return err
				}
				if err := cluster.StartAsked(ctx, k, f.key()); err != nil {
					return err
				}
				if !f.wait {
					return a.printOutcome(&f, f.outcome("started"))
				}
				if hold > 0 {
					fmt.Fprintf(a.Err, "The cloud was restored with etcd: it must stay ready for %s, until no pod has the status of the snapshot\n", hold)
				}
				return a.waitFor(ctx, k, &f, func(report func(cluster.Status)) error { return cluster.WaitHeld(ctx, k, f.key(), hold, report) })
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, "wait until every component is available")
	return c
}

func newClusterMoveDatabase(a *app) *cobra.Command {
	var f cloudFlags
	var d databaseFlags
	var yes bool
	c := &cobra.Command{
		Use:   "move-database --database-host HOST --database-password-file FILE",
		Short: "Move the databases to another server",
		Long: "Stops the services, copies all databases of the cloud to another server, compares every row, switches the cloud to that server, and\n" +
			"starts the services. This machine must reach both servers. Until the switch, the cloud belongs to the old server: if something fails or\n" +
			"you cancel the operation, its services start there again; if the command is killed, within two minutes. If it is killed after the\n" +
			"switch, run it again. The databases on the old server are kept. The move is an operation of the cloud (action MoveDatabase), and waits for\n" +
			"other operations.",
		Example: "  ocadm cluster move-database --database-host 10.0.0.9 --database-password-file /root/mysql --wait\n" +
			"  ocadm cluster move-database --database-host db.example.com --database-port 3307 --database-user ocadm --database-password-file /root/mysql --yes",
		RunE: func(c *cobra.Command, _ []string) error {
			server, err := d.server(true)
			if err != nil {
				return err
			}
			return f.within(c.Context(), f.timeout, func(ctx context.Context, k client.WithWatch) error {
				by, end := a.recorded()
				done, err := cluster.MoveDatabase{Key: f.key(), To: server, Confirm: a.confirm(c, yes, "Nothing was changed"), Recorded: by}.Apply(ctx, k)
				end()
				if err != nil {
					return err
				}
				if f.wait {
					if err := cluster.Wait(ctx, k, f.key(), func(cluster.Status) {}); err != nil {
						return err
					}
				}
				return a.print(f.output, done, func(p *page) {
					if done.Changed {
						p.line("%s with %s moved from %s to %s in %.0f s; the old databases were kept", lists.Counted(done.Tables, "table"), lists.Counted(done.Rows, "row"),
							done.From, done.To, done.Seconds)
					} else {
						p.line("the databases are already on %s", done.To)
					}
				})
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	d.add(c.Flags(), "to move to")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until every component is available")
	c.Flags().DurationVar(&f.timeout, "timeout", backupTimeout, "time limit")
	addYes(c.Flags(), &yes)
	return c
}

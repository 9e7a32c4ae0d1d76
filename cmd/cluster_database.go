// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
)

// newClusterDatabase groups the commands about the embedded database.
func newClusterDatabase(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "database", Short: "Show and change the copies of the embedded database",
		Long:    "Commands about the database that init installs without --mysql-host: its replica on another node, and which of the two is the primary.",
		Example: "  ocadm cluster database status\n  ocadm cluster database add-replica",
	}, newDatabaseStatus(a), newDatabaseAddReplica(a), newDatabasePromote(a), newDatabaseCopy(a), newDatabaseAgent(a))
}

func newDatabaseStatus(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: "status", Short: "Show the copies of the embedded database",
		Long: "Shows each server of the embedded database: its node, its role, what it is doing, and its last event. The last line shows\n" +
			"whether the database would survive the loss of a node.",
		Example: "  ocadm cluster database status\n  ocadm cluster database status -o json | jq .redundant",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) (cluster.DatabaseStatus, error) {
		return cluster.EmbeddedDatabase(ctx, k, f.namespace)
	}, printDatabase)
}

func printDatabase(p *page, s cluster.DatabaseStatus) {
	table(p, []string{"POD", "NODE", "ROLE", "READY", "LAST EVENT", "ACTIVITY"}, s.Servers, func(m cluster.DatabaseMember) []string {
		return []string{m.Pod, cmp.Or(m.Node, "-"), m.Role, yesNo(m.Ready), cmp.Or(m.State.Last, "-"), cmp.Or(m.State.Doing, "-")}
	})
	p.line("\n%s: %s", map[bool]string{true: "redundant", false: "not redundant"}[s.Redundant], s.Message)
}

func newDatabaseAddReplica(a *app) *cobra.Command {
	var f cloudFlags
	c := showsCloud(a, &f, &cobra.Command{
		Use: "add-replica", Short: "Keep a second copy of the embedded database on another node",
		Long: "Starts a second database server on another node with the role controller, which copies all databases and then follows every change. The\n" +
			"first server restarts once, so the cloud pauses for some seconds. While both servers are in sync, a change is acknowledged when both\n" +
			"have it, and the replica takes over by itself if the node of the primary is lost. You can repeat the command.",
		Example: "  ocadm cluster database add-replica\n  ocadm cluster database add-replica --wait=false",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) (cluster.DatabaseStatus, error) {
		return a.addReplica(ctx, k, &f)
	}, printDatabase)
	f.addWait(c.Flags(), true, "wait until the replica is in sync")
	return c
}

func (a *app) addReplica(ctx context.Context, k client.WithWatch, f *cloudFlags) (cluster.DatabaseStatus, error) {
	s, err := cluster.EmbeddedDatabase(ctx, k, f.namespace)
	if err != nil {
		return s, err
	}
	if err := cluster.ReplicaFits(ctx, k, s); err != nil {
		return s, err
	}
	cfg := config.Default()
	image, err := cluster.RunningOperatorImage(ctx, k)
	if err != nil {
		return s, err
	}
	if _, err := addons.AddReplica(ctx, k, f.namespace, cmp.Or(image, cfg.OperatorImage())); err != nil || !f.wait {
		return s, err
	}
	return cluster.WaitReplica(ctx, k, f.namespace, a.waiting())
}

func newDatabasePromote(a *app) *cobra.Command {
	f := cloudFlags{wait: true}
	var yes, force bool
	var server string
	var c *cobra.Command
	c = showsCloud(a, &f, &cobra.Command{
		Use: "promote", Short: "Make the replica of the embedded database the primary",
		Long: "Hands over from the primary to the replica: the primary stops, the replica applies everything that it has received, and takes its place.\n" +
			"No acknowledged change is lost. Connections break, and services reconnect. The command refuses a replica that is not in sync, or that\n" +
			"was restarted while the primary was unavailable. If the primary is lost for good, --force promotes the replica anyway, after a minute. Changes\n" +
			"that it has not received are lost; the confirmation prompt shows their minimum number. If you repeat the command, the former primary becomes\n" +
			"the primary again, unless --server names the one that you want.\n\n" +
			"After etcd was restored from a snapshot, the servers determine which of them was the primary last. If one is lost, or both were the\n" +
			"primary, --force chooses the one that answers, or the one that --server names.",
		Example: "  ocadm cluster database promote --server ocadm-mysql-2\n  ocadm cluster database promote --force\n\n" +
			"  # after etcd was restored, if both servers were the primary\n  ocadm cluster database promote --force --server ocadm-mysql-2",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) (cluster.DatabaseStatus, error) {
		if server != "" && !slices.Contains(dbpair.Servers(), server) {
			return cluster.DatabaseStatus{}, misused(fmt.Sprintf("--server is %q, but must be one of %s", server, strings.Join(dbpair.Servers(), ", ")), c.UseLine())
		}
		return cluster.PromoteDatabase(ctx, k, f.namespace,
			cluster.Promotion{Server: server, Force: force, Confirm: a.confirm(c, yes, "Nothing was changed"), Waiting: a.waiting()})
	}, printDatabase)
	c.Flags().BoolVar(&force, "force", false, "if the primary is lost, accept the loss of changes that the replica has not received")
	c.Flags().StringVar(&server, "server", "", "the server to promote (default: the replica)")
	c.Flags().DurationVar(&f.timeout, "timeout", promoteTimeout, "how long to wait")
	addYes(c.Flags(), &yes)
	return c
}

// promoteTimeout is long enough for a replica that lags far behind.
const promoteTimeout = 10 * time.Minute

func newDatabaseCopy(a *app) *cobra.Command {
	f := cloudFlags{wait: true}
	c := showsCloud(a, &f, &cobra.Command{
		Use: "copy", Short: "Copy the primary of the embedded database to the replica again",
		Long: "Repairs a replica that cannot continue, for example because a row to insert already exists. Its old data is kept beside the new copy, in\n" +
			"data.kept of its volume, until the next copy. The command refuses a replica that is in sync.",
		Example: "  ocadm cluster database copy\n  ocadm cluster database copy --timeout 2h",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) (cluster.DatabaseStatus, error) {
		return cluster.CopyDatabase(ctx, k, f.namespace, a.waiting())
	}, printDatabase)
	c.Flags().DurationVar(&f.timeout, "timeout", waitTimeout, "how long to wait")
	return c
}

// newDatabaseAgent returns the command that is the first process in a server's container.
func newDatabaseAgent(a *app) *cobra.Command {
	var server, install string
	c := &cobra.Command{
		Use: "agent", Short: "Run a server of the embedded database", Hidden: true,
		Long: "Starts and stops the database server of a pod: as the primary or as the replica, according to Lease ocadm-mysql. The pods of the\n" +
			"embedded database run it.",
		Example: "  ocadm cluster database agent --server ocadm-mysql\n  ocadm cluster database agent --install /agent/ocadm",
		RunE: func(c *cobra.Command, _ []string) error {
			if install != "" {
				return dbpair.Install(install)
			}
			return dbpair.RunInPod(c.Context(), server, a.Out, a.Err)
		},
	}
	c.Flags().StringVar(&server, "server", "", "name of the server")
	c.Flags().StringVar(&install, "install", "", "copy this program to a file, and exit")
	return c
}

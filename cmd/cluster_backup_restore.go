// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// backupRestoreFlags are the flags of "cluster backup restore".
type backupRestoreFlags struct {
	cloudFlags
	store    storeFlags
	keys     keyFlags
	database databaseFlags
	// address is that of a new cloud; before is where the present data is saved.
	address, before string
	yes, noBackup   bool
}

func newBackupRestore(a *app) *cobra.Command {
	var f backupRestoreFlags
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the cloud from a backup",
		Long: "Checks the whole file, then asks for confirmation. If the cloud of the backup exists in the namespace, the command saves its\n" +
			"present data, stops the services, replaces the databases and passwords, sets the version of the backup, and starts the services. This is\n" +
			"an operation of the cloud (action Restore), and waits for other operations. Otherwise the command recreates the cloud, with the same IDs,\n" +
			"passwords and projects, on the database server of the backup or of --database-host. If it is interrupted, run it again.\n\n" +
			"FILE is a path on this machine or s3://BUCKET/PATH/NAME. Without --namespace, the namespace is the one in the backup.",
		Example: "  ocadm cluster backup restore /var/backups/default-5f2c81d0-20261122T020000Z.ocadm-backup --identity key.txt\n" +
			"  ocadm cluster backup restore default.ocadm-backup --identity key.txt --database-host 10.0.0.9 --database-password-file /root/mysql \\\n" +
			"    --load-balancer-endpoint 10.0.0.20 --wait",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.restoreBackup(c, &f, args[0]) },
	}
	f.add(a, c, nil, "table", "json", "yaml")
	fs := c.Flags()
	f.store.add(fs)
	f.keys.addIdentities(fs)
	f.database.add(fs, "of a new cloud (default: the one in the backup)")
	fs.StringVar(&f.address, "load-balancer-endpoint", "", "address at which users and hosts reach a new cloud (default: the one in the backup)")
	fs.StringVar(&f.before, "save-to", "", "where to save the present data (default: beside FILE)")
	fs.BoolVar(&f.noBackup, "no-backup", false, "do not save the present data first")
	c.MarkFlagsMutuallyExclusive("save-to", "no-backup")
	fs.BoolVar(&f.wait, "wait", false, "wait until every component is available")
	fs.DurationVar(&f.timeout, "timeout", backupTimeout, "time limit")
	addYes(fs, &f.yes)
	return c
}

func (a *app) restoreBackup(c *cobra.Command, f *backupRestoreFlags, file string) error {
	if err := f.store.fit(file, f.before); err != nil {
		return err
	}
	ids, err := f.keys.identities()
	if err != nil {
		return err
	}
	server, err := f.database.server(false)
	if err != nil {
		return err
	}
	if f.before != "" { // before anything is stopped
		if _, _, err := f.store.later(f.before); err != nil {
			return err
		}
	}
	return f.within(c.Context(), f.timeout, func(ctx context.Context, k8s client.WithWatch) error {
		r := cluster.Restore{IDs: ids, MySQL: server, Address: f.address, Confirm: a.confirm(c, f.yes, "Nothing was changed")}
		if r.Store, r.Name, err = f.store.file(ctx, file); err != nil {
			return err
		}
		if err := a.readBackup(ctx, c, f, &r); err != nil {
			return err
		}
		if !f.noBackup {
			r.Before = f.saveFirst(k8s, r, strings.TrimSuffix(file, r.Name))
		}
		done, err := a.applyRestore(ctx, k8s, f, r)
		if err != nil {
			return err
		}
		return a.print(f.output, done, func(p *page) {
			p.line("cloud %s restored from %s in %.0f s", done.Cloud, done.Backup, done.Seconds)
			p.lines("  ", done.Changes...)
			if done.Before != "" {
				p.line("backup of the previous data: %s", done.Before)
			}
		})
	})
}

// readBackup reads and checks the whole file. Its cloud keeps its name, but may be restored in another namespace.
func (a *app) readBackup(ctx context.Context, c *cobra.Command, f *backupRestoreFlags, r *cluster.Restore) error {
	reading := a.story()
	r.Watch = reading
	_, err := r.Read(ctx)
	reading.Close() // the question and the operation follow
	if err != nil {
		return err
	}
	if c.Flags().Changed("name") && f.name != r.Key().Name {
		return misused("the backup is of cloud "+r.Key().Name+", which keeps its name", "leave out --name; to restore it beside that cloud: --namespace NAMESPACE")
	}
	if c.Flags().Changed("namespace") {
		r.Namespace = f.namespace
	}
	return nil
}

// saveFirst returns what saves the present data of the cloud with the recipients of the backup, by default in the directory beside.
func (f *backupRestoreFlags) saveFirst(k8s client.WithWatch, r cluster.Restore, beside string) func(context.Context, client.ObjectKey, workflow.Reporter) (backup.Info, error) {
	return func(ctx context.Context, key client.ObjectKey, report workflow.Reporter) (_ backup.Info, err error) {
		b := cluster.Backup{Key: key, SkipProof: true}
		if b.Place, b.Open, err = f.store.later(cmp.Or(f.before, beside, ".")); err != nil {
			return backup.Info{}, err
		}
		if b.Recipients, b.Identity, err = f.keys.same(r.IDs); err != nil {
			return backup.Info{}, err
		}
		return b.Within(ctx, k8s, report)
	}
}

// applyRestore restores the cloud, and waits for it if requested.
func (a *app) applyRestore(ctx context.Context, k8s client.WithWatch, f *backupRestoreFlags, r cluster.Restore) (cluster.Restored, error) {
	var end func()
	r.Recorded, end = a.recorded()
	defer end()
	done, err := r.Apply(ctx, k8s)
	if err != nil {
		return done, err
	}
	f.namespace, f.name, _ = strings.Cut(done.Cloud, "/")
	if err := a.serve(ctx, k8s, &f.cloudFlags); err != nil || !f.wait {
		return done, err
	}
	return done, cluster.Wait(ctx, k8s, f.key(), func(cluster.Status) {})
}

// newBackupRun returns the command that the pods of component backup run.
func newBackupRun(a *app) *cobra.Command {
	var f cloudFlags
	var at cluster.Mounted
	var taken string
	c := &cobra.Command{
		Use:     "run",
		Short:   "Create the backup that spec.backup describes",
		Long:    "Runs in the pods of component backup, with their service account. It reads the place, the recipients and the number to keep from spec.backup.",
		Example: "  ocadm cluster backup run --dir /backup\n  ocadm cluster backup run --dir /backup -o table",
		Hidden:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := operatorConfig(f.kubeconfig)
			if err != nil {
				return err
			}
			k, err := kube.New(cfg)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
			defer cancel()
			by, end := a.recorded()
			by.Wait, by.Operation = waitForOthers, taken
			info, warning, err := cluster.ScheduledBackup(ctx, k, f.key(), at, by)
			end()
			a.warnOf(warning)
			if err != nil {
				return err
			}
			return a.printBackups(&f, []backup.Info{info})
		},
	}
	f.add(a, c, nil, "json", "table", "yaml")
	c.Flags().StringVar(&at.Dir, "dir", "", "directory for the backups, if spec.backup.s3 names no bucket")
	c.Flags().StringVar(&at.Place, "place", "", "name of the directory outside the pod")
	c.Flags().StringVar(&at.Snapshots.Dir, "etcd-snapshots", "", "directory with snapshots of etcd; the newest good one is stored beside the backup")
	c.Flags().StringVar(&at.Snapshots.Node, "node", "", "node of the pod, to which the snapshots belong")
	c.Flags().StringVar(&taken, "operation", "", "operation that requested this backup; without it, one is created")
	c.Flags().DurationVar(&f.timeout, "timeout", operation.BackupTimeout, "time limit")
	return c
}

// waitForOthers is how long a scheduled backup waits for another operation of the cloud. Its Job retries twice.
const waitForOthers = time.Hour

// recorded shows on standard error an operation that this command runs itself: until end, which the caller calls, it does not end with the reader of the
// output. Otherwise "tee" that ends with Ctrl-C would leave a stopped cloud.
func (a *app) recorded() (by cluster.Recorded, end func()) {
	show, ended := a.operationView("table")
	undo := outliveReaders()
	return cluster.Recorded{By: requester(), Show: show}, func() { ended(); undo() }
}

// warnOf prints problems that did not stop a command.
func (a *app) warnOf(err error) {
	if l := finding.Of(err); len(l) > 0 {
		for _, f := range l {
			a.warn("%s %s; %s", f.Code, f.Error(), f.Remedy)
		}
	} else if err != nil {
		a.warn("%v", err)
	}
}

func (a *app) waiting() func(what, why string) {
	return func(what, why string) { fmt.Fprintf(a.Err, "%s: %s\n", what, why) }
}

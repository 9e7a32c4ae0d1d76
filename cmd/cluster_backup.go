// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

// newClusterBackup groups the commands on backups of the cloud.
func newClusterBackup(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "Save the cloud into one file, prove the file, and restore it",
		Long: "A backup is one file with all databases of the cloud at one moment, its resource, options that people set, passwords, certificates,\n" +
			"releases and the list of images. Volumes, such as the images of glance, are not in it, nor are virtual machines.",
		Example: "  ocadm cluster backup create --to /var/backups --recipient age1…\n  ocadm cluster backup list --in /var/backups",
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRunE,
	}
	c.AddCommand(newBackupCreate(a), newBackupList(a), newBackupVerify(a), newBackupRestore(a), newBackupSchedule(a), newBackupRun(a))
	return c
}

// backupTimeout bounds what copies whole databases.
const backupTimeout = 4 * time.Hour

const placesHelp = "A place is a directory of this machine, or s3://BUCKET/PATH with --s3-endpoint; the keys of the object store are read from\n" +
	"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."

func newBackupCreate(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var k keyFlags
	var to string
	var keep int
	var noProof bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a backup now, and prove it",
		Long: "Writes a backup and proves it: reads the stored file back, restores it into scratch databases on the cloud's server, compares every\n" +
			"table and drops them. The cloud keeps running. The databases are read from this machine, which must reach the database server.\n" +
			placesHelp + " \"-\" writes the file to standard output, where it cannot be proven.\n\n" +
			"The file is encrypted for --recipient, for --passphrase-file, or else for spec.backup.recipients. Keep the secret key outside the cloud.",
		Example: "  ocadm cluster backup create --to /var/backups --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kdlawjcs0ltxm2\n" +
			"  ocadm cluster backup create --to s3://backups/cloud --s3-endpoint s3.example.com --passphrase-file /root/passphrase\n" +
			"  ocadm cluster backup create --to - --recipient age1… | ssh vault 'cat >cloud.ocadm-backup'",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return withKube(c.Context(), f.kubeconfig, f.timeout, func(ctx context.Context, k8s client.WithWatch) error {
				b := cluster.Backup{Key: f.key(), Keep: keep, SkipProof: noProof, Report: a.steps()}
				var err error
				if b.Recipients, b.Identity, err = k.recipients(ctx, k8s, f.key()); err != nil {
					return err
				}
				if to == "-" {
					if f.output.String() != "table" {
						return misused("the backup itself goes to standard output", "leave --output out")
					}
					b.Out = a.Out
					_, err := b.Make(ctx, k8s)
					return err
				}
				if b.Store, err = s.open(ctx, to); err != nil {
					return err
				}
				info, err := b.Make(ctx, k8s)
				if err != nil {
					return err
				}
				return a.printBackups(&f, []backup.Info{info})
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	fs := c.Flags()
	fs.StringVar(&to, "to", "", "where to: a directory, s3://BUCKET/PATH, or - for standard output")
	_ = c.MarkFlagRequired("to")
	s.add(fs)
	k.addRecipients(fs)
	fs.IntVar(&keep, "keep", 0, "remove all but so many backups of this cloud there; 0 keeps all")
	fs.BoolVar(&noProof, "no-proof", false, "do not restore it into scratch databases")
	fs.DurationVar(&f.timeout, "timeout", backupTimeout, "how long it may take")
	return c
}

func newBackupList(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var in string
	c := &cobra.Command{
		Use:   "list",
		Short: "List backups",
		Long: "Lists the last attempts to back up the cloud, the latest first: where each file lies, and whether it was proven. With --in, lists the files\n" +
			"in a place instead, with what is known of them without their key.\n" + placesHelp,
		Example: "  ocadm cluster backup list\n  ocadm cluster backup list --in /var/backups\n" +
			"  ocadm cluster backup list --in s3://backups/cloud --s3-endpoint s3.example.com -o json",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if in == "" {
				return withKube(c.Context(), f.kubeconfig, requestTimeout, func(ctx context.Context, k8s client.WithWatch) error {
					history, err := cluster.BackupHistory(ctx, k8s, f.namespace)
					if err != nil {
						return err
					}
					return a.printHistory(&f, history)
				})
			}
			ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
			defer cancel()
			store, err := s.open(ctx, in)
			if err != nil {
				return err
			}
			list, err := backup.List(ctx, store)
			if err != nil {
				return err
			}
			return a.printBackups(&f, list)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	c.Flags().StringVar(&in, "in", "", "list the files in a place: a directory, or s3://BUCKET/PATH")
	s.add(c.Flags())
	return c
}

func (a *app) printBackups(f *cloudFlags, list []backup.Info) error {
	return ui.Print(a.Out, f.output.String(), list, func(w io.Writer) error {
		var rows [][]string
		for _, i := range list {
			if i.Unknown {
				rows = append(rows, []string{i.Name, "", "", "", "", "", "unknown: ocadm cluster backup verify"})
				continue
			}
			rows = append(rows, []string{i.Name, i.Cloud.Namespace + "/" + i.Cloud.Name, i.Version, ui.Bytes(i.Size), strconv.Itoa(i.Tables), strconv.FormatInt(i.Rows, 10), proof(i)})
		}
		return ui.Table(w, []string{"NAME", "CLOUD", "VERSION", "SIZE", "TABLES", "ROWS", "STATE"}, rows)
	})
}

func (a *app) printHistory(f *cloudFlags, history backup.History) error {
	return ui.Print(a.Out, f.output.String(), append(backup.History{}, history...), func(w io.Writer) error {
		var rows [][]string
		for _, r := range history {
			state := proven(r.Proven, r.Problem)
			if r.Error != "" {
				state = "failed: " + r.Error
			}
			rows = append(rows, []string{r.Time.Format(time.RFC3339), r.Name, r.Place, ui.Bytes(r.Size), fmt.Sprintf("%.0f s", r.Seconds), state})
		}
		return ui.Table(w, []string{"TIME", "NAME", "PLACE", "SIZE", "TOOK", "STATE"}, rows)
	})
}

func proven(at *time.Time, problem string) string {
	switch {
	case problem != "":
		return "not proven: " + problem
	case at != nil:
		return "proven " + at.Format(time.RFC3339)
	}
	return "not proven"
}

func proof(i backup.Info) string {
	state := proven(i.Proven, i.Problem)
	if !i.Encrypted {
		state += ", not encrypted"
	}
	return state
}

func newBackupVerify(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var k keyFlags
	var restore bool
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a backup, or prove it again",
		Long: "Reads a backup to its end and checks that nothing is missing or changed. With --restore it also restores it into scratch databases on\n" +
			"the server of the cloud, compares every table, and drops them. FILE is a path of this machine or s3://BUCKET/PATH/NAME.",
		Example: "  ocadm cluster backup verify /var/backups/default-20261122T020000Z.ocadm-backup --identity key.txt\n" +
			"  ocadm cluster backup verify s3://backups/cloud/default-20261122T020000Z.ocadm-backup --s3-endpoint s3.example.com --identity key.txt --restore",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			verify := func(ctx context.Context, k8s client.Client, key *client.ObjectKey) error {
				ids, err := k.identities()
				if err != nil {
					return err
				}
				store, name, err := s.file(ctx, args[0])
				if err != nil {
					return err
				}
				v, err := cluster.Verify(ctx, k8s, key, store, name, ids...)
				if err != nil {
					return err
				}
				return ui.Print(a.Out, f.output.String(), v, func(w io.Writer) error {
					how := "complete and unchanged"
					if restore {
						how = "restored into scratch databases, every table as it was saved"
					}
					_, err := fmt.Fprintf(w, "%s: %s\ncloud %s/%s at %s of %s, %d tables, %d rows, %d objects, %d images\n", v.Name, how, v.Cloud.Namespace, v.Cloud.Name, v.Version,
						v.Time.Format(time.RFC3339), v.Tables, v.Rows, len(v.Objects), len(v.Images))
					return err
				})
			}
			if restore {
				key := f.key()
				return withKube(c.Context(), f.kubeconfig, f.timeout, func(ctx context.Context, k8s client.WithWatch) error { return verify(ctx, k8s, &key) })
			}
			ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
			defer cancel()
			return verify(ctx, nil, nil)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	s.add(c.Flags())
	k.addIdentities(c.Flags())
	c.Flags().BoolVar(&restore, "restore", false, "restore it into scratch databases, too")
	c.Flags().DurationVar(&f.timeout, "timeout", backupTimeout, "how long it may take")
	return c
}

func newBackupRestore(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var k keyFlags
	var d databaseFlags
	var address, before string
	var yes, noBackup bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the cloud from a backup",
		Long: "Checks the whole file first. If the cloud of the backup exists in the namespace, it saves what is there now, stops the services, replaces\n" +
			"the databases and passwords, sets the version of the backup, and starts the services. Otherwise it makes the cloud anew, with the same IDs,\n" +
			"passwords and projects, on the database server of the backup or of --database-host. Interrupted, run it again.\n" +
			"FILE is a path of this machine or s3://BUCKET/PATH/NAME. Without --namespace the namespace is that of the backup.",
		Example: "  ocadm cluster backup restore /var/backups/default-20261122T020000Z.ocadm-backup --identity key.txt\n" +
			"  ocadm cluster backup restore default.ocadm-backup --identity key.txt --database-host 10.0.0.9 --database-password-file /root/mysql \\\n" +
			"    --load-balancer-endpoint 10.0.0.20 --wait",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := k.identities()
			if err != nil {
				return err
			}
			server, err := d.server(false)
			if err != nil {
				return err
			}
			return withKube(c.Context(), f.kubeconfig, f.timeout, func(ctx context.Context, k8s client.WithWatch) error {
				store, name, err := s.file(ctx, args[0])
				if err != nil {
					return err
				}
				r := cluster.Restore{Store: store, Name: name, IDs: ids, MySQL: server, Address: address, Confirm: a.confirm(c, yes, "Nothing was changed"), Report: a.waiting()}
				if c.Flags().Changed("namespace") {
					r.Namespace = f.namespace
				}
				if !noBackup {
					r.Before = func(ctx context.Context, key client.ObjectKey) (backup.Info, error) {
						b := cluster.Backup{Key: key, SkipProof: true, Report: a.steps()}
						if b.Store, err = s.open(ctx, before); before == "" {
							b.Store, err = store, nil
						}
						if err != nil {
							return backup.Info{}, err
						}
						if b.Recipients, b.Identity, err = k.same(ids); err != nil {
							return backup.Info{}, err
						}
						return b.Make(ctx, k8s)
					}
				}
				done, err := r.Apply(ctx, k8s)
				if err != nil {
					return err
				}
				f.namespace, f.name, _ = strings.Cut(done.Cloud, "/")
				if rights, err := operatorphase.Serve(ctx, k8s, f.namespace); err != nil {
					return err
				} else {
					for _, change := range rights.Changed() {
						fmt.Fprintln(a.Err, change)
					}
				}
				if f.wait {
					if err := cluster.Wait(ctx, k8s, f.key(), func(cluster.Status) {}); err != nil {
						return err
					}
				}
				return ui.Print(a.Out, f.output.String(), done, func(w io.Writer) error {
					fmt.Fprintf(w, "cloud %s restored from %s in %.0f s\n", done.Cloud, done.Backup, done.Seconds)
					for _, line := range done.Changes {
						fmt.Fprintln(w, "  "+line)
					}
					if done.Before != "" {
						fmt.Fprintln(w, "what was there before: "+done.Before)
					}
					return nil
				})
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	fs := c.Flags()
	s.add(fs)
	k.addIdentities(fs)
	d.add(fs, "of a new cloud; without it, that of the backup")
	fs.StringVar(&address, "load-balancer-endpoint", "", "address of a new cloud, where users and hosts reach it; without it, that of the backup")
	fs.StringVar(&before, "save-to", "", "where to save what is there now; without it, beside FILE")
	fs.BoolVar(&noBackup, "no-backup", false, "do not save what is there now")
	fs.BoolVar(&f.wait, "wait", false, "wait until every component is available")
	fs.DurationVar(&f.timeout, "timeout", backupTimeout, "how long it may take")
	addYes(fs, &yes)
	return c
}

// newBackupRun is what the pods of component backup run.
func newBackupRun(a *app) *cobra.Command {
	var f cloudFlags
	var dir string
	c := &cobra.Command{
		Use:     "run",
		Short:   "Make the backup that spec.backup describes",
		Long:    "Runs in the pods of component backup, in their service account. It reads spec.backup for the place, the recipients and how many to keep.",
		Example: "  ocadm cluster backup run --dir /backup\n  ocadm cluster backup run --dir /backup -o table",
		Hidden:  true,
		Args:    arguments(cobra.NoArgs),
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
			info, err := cluster.ScheduledBackup(ctx, k, f.key(), dir, a.steps())
			if err != nil {
				return err
			}
			return a.printBackups(&f, []backup.Info{info})
		},
	}
	f.add(a, c, nil, "json", "table", "yaml")
	c.Flags().StringVar(&dir, "dir", "", "directory for the backups, where spec.backup.s3 names no bucket")
	c.Flags().DurationVar(&f.timeout, "timeout", backupTimeout, "how long it may take")
	return c
}

// confirm asks before the first change.
func (a *app) confirm(c *cobra.Command, yes bool, kept string) func(question string) error {
	return func(question string) error {
		if yes {
			return nil
		}
		sure, err := ui.Confirm(c.Context(), a.In, a.Err, question+". Continue? [y/N]", "yes", "--yes")
		if err == nil && !sure {
			err = finding.New("OCA-0406", kept, "not confirmed", c.CommandPath()+" --yes")
		}
		return err
	}
}

// steps reports steps, and waiting what something waits for, a line each on standard error.
func (a *app) steps() func(string) { return func(step string) { fmt.Fprintln(a.Err, step) } }

func (a *app) waiting() func(what, why string) {
	return func(what, why string) { fmt.Fprintf(a.Err, "%s: %s\n", what, why) }
}

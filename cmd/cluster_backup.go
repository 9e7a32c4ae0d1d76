// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/operatorctl/catalog"
)

// newClusterBackup groups the commands on backups of the cloud.
func newClusterBackup(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "backup",
		Short: "Back up the cloud, prove backups, and restore the cloud",
		Long: "A backup is one file with all databases of the cloud at one moment, its resource, the options that users set, passwords, certificates,\n" +
			"releases and the list of images. It contains neither volumes, such as the images of glance, nor virtual machines.",
		Example: "  ocadm cluster backup create --to /var/backups --recipient age1…\n  ocadm cluster backup list --in /var/backups",
	}, newBackupCreate(a), newBackupList(a), newBackupVerify(a), newBackupRestore(a), newBackupSchedule(a), newBackupRun(a))
}

// backupTimeout bounds commands that copy whole databases.
const backupTimeout = 4 * time.Hour

const placesHelp = "A place is a directory on this machine, or s3://BUCKET/PATH with --s3-endpoint; the keys of the object store are read from\n" +
	"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."

func newBackupCreate(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var k keyFlags
	var to, snapshots string
	var keep int
	var noProof bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a backup now, and prove it",
		Long: "Writes a backup and proves it: reads the stored file back, restores it into scratch databases on the cloud's server, compares every\n" +
			"table and drops them. The cloud keeps running. The databases are read from this machine, which must reach the database server.\n" +
			"It is an operation of the cloud (action Backup): it waits while another one runs, and an update waits for it.\n" +
			placesHelp + " \"-\" writes the file to standard output, where it cannot be proven.\n\n" +
			"The file is encrypted for --recipient, with --passphrase-file, or otherwise for spec.backup.recipients. Keep the secret key outside the cloud.",
		Example: "  ocadm cluster backup create --to /var/backups --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kdlawjcs0ltxm2\n" +
			"  ocadm cluster backup create --to s3://backups/cloud --s3-endpoint s3.example.com --passphrase-file /root/passphrase\n" +
			"  ocadm cluster backup create --to - --recipient age1… | ssh vault 'cat >cloud.ocadm-backup'\n\n" +
			"  # on a control-plane node, with the newest snapshot of etcd beside the backup\n" +
			"  ocadm cluster backup create --to /mnt/backups --etcd-snapshots " + catalog.EtcdSnapshots,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.fit(to); err != nil {
				return err
			}
			if keep < 0 || keep > 0 && to == "-" {
				return misused(fmt.Sprintf("--keep %d is not valid here", keep), "give the number of backups to keep in a directory or a bucket, or leave out --keep")
			}
			etcd, err := snapshotsHere(snapshots, to)
			if err != nil {
				return err
			}
			return f.within(c.Context(), f.timeout, func(ctx context.Context, k8s client.WithWatch) error {
				b := cluster.Backup{Key: f.key(), Keep: keep, SkipProof: noProof, Place: to, Snapshots: etcd}
				var err error
				if b.Recipients, b.Identity, err = k.recipients(ctx, k8s, f.key()); err != nil {
					return err
				}
				if to == "-" {
					if f.output.String() != "table" {
						return misused("the backup itself goes to standard output", "leave out --output")
					}
					b.Out = a.Out
				} else if b.Place, b.Open, err = s.later(to); err != nil {
					return err
				}
				var end func()
				b.Recorded, end = a.recorded()
				info, warning, err := b.Make(ctx, k8s)
				end()
				a.warnOf(warning)
				if err != nil || b.Out != nil {
					return err
				}
				return a.printBackups(&f, []backup.Info{info})
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	fs := c.Flags()
	fs.StringVar(&to, "to", "", "destination: a directory, s3://BUCKET/PATH, or - for standard output")
	_ = c.MarkFlagRequired("to")
	s.add(fs)
	addRecipientFlag(fs, &k.to)
	fs.StringVar(&k.passphraseFile, "passphrase-file", "", "file with a passphrase for the encryption, instead of recipients")
	fs.BoolVar(&k.unencrypted, "unencrypted", false, "do not encrypt it: everyone who can read the file can read all passwords")
	fs.IntVar(&keep, "keep", 0, "number of backups of this cloud to keep there; older ones are removed, 0 keeps all")
	fs.BoolVar(&noProof, "no-proof", false, "do not prove it by restoring it into scratch databases")
	fs.StringVar(&snapshots, "etcd-snapshots", "", "directory with snapshots of etcd; the newest good one is stored beside the backup, encrypted")
	fs.DurationVar(&f.timeout, "timeout", backupTimeout, "time limit")
	return c
}

// snapshotsHere locates the etcd snapshots in a directory of this machine, none without one.
func snapshotsHere(dir, to string) (cluster.Snapshots, error) {
	if dir == "" {
		return cluster.Snapshots{}, nil
	}
	const remedy = "give a directory with snapshots, on a control-plane node " + catalog.EtcdSnapshots + ", or leave out --etcd-snapshots"
	if to == "-" {
		return cluster.Snapshots{}, misused("a snapshot of etcd cannot go to standard output", remedy)
	}
	list, err := snapshot.List(dir)
	if err != nil {
		return cluster.Snapshots{}, err
	}
	if len(list) == 0 {
		return cluster.Snapshots{}, misused("--etcd-snapshots "+dir+" has no snapshot of etcd", remedy)
	}
	node, err := os.Hostname()
	if err != nil {
		return cluster.Snapshots{}, fmt.Errorf("reading the name of this machine: %w", err)
	}
	return cluster.Snapshots{Dir: dir, Node: node}, nil
}

func newBackupList(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var in string
	c := &cobra.Command{
		Use:   "list",
		Short: "List backups",
		Long: "Lists the last attempts to back up the cloud, the latest first: where each file is, and whether it was proven. With --in, lists the files\n" +
			"in a place instead, with the details that can be read without their key. ETCD is the size of the snapshot of etcd stored beside the backup,\n" +
			"under the same name with the ending .ocadm-etcd; -o json also shows its time and revision.\n" + placesHelp,
		Example: "  ocadm cluster backup list\n  ocadm cluster backup list --in /var/backups\n" +
			"  ocadm cluster backup list --in s3://backups/cloud --s3-endpoint s3.example.com -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.fit(in); err != nil {
				return err
			}
			if in == "" {
				return f.withCloud(c, func(ctx context.Context, k8s client.WithWatch) error {
					history, err := cluster.Backups(ctx, k8s, f.key())
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
	return a.print(f.output, list, func(p *page) {
		table(p, []string{"NAME", "CLOUD", "VERSION", "SIZE", "TABLES", "ROWS", "ETCD", "STATE"}, list, func(i backup.Info) []string {
			if i.Unknown {
				return []string{i.Name, "", "", "", "", "", "", "unknown: ocadm cluster backup verify"}
			}
			return []string{i.Name, i.Cloud.Namespace + "/" + i.Cloud.Name, i.Version, ui.Bytes(i.Size), strconv.Itoa(i.Tables), strconv.FormatInt(i.Rows, 10),
				etcdSize(i.Etcd), proof(i)}
		})
	})
}

func (a *app) printHistory(f *cloudFlags, history backup.History) error {
	return a.print(f.output, append(backup.History{}, history...), func(p *page) {
		table(p, []string{"TIME", "NAME", "PLACE", "SIZE", "TOOK", "ETCD", "STATE"}, history, func(r backup.Record) []string {
			state := proven(r.Proven, r.Problem) + withoutEtcd(r.Etcd)
			if r.Error != "" {
				state = "failed: " + r.Error
			}
			return []string{r.Time.Format(time.RFC3339), r.Name, r.Place, ui.Bytes(r.Size), fmt.Sprintf("%.0f s", r.Seconds), etcdSize(r.Etcd), state}
		})
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
	return state + withoutEtcd(i.Etcd)
}

// etcdSize returns the size of the etcd snapshot stored with a backup, "" if there is none.
func etcdSize(e *backup.Etcd) string {
	if e == nil || e.Name == "" {
		return ""
	}
	return ui.Bytes(e.Size)
}

// withoutEtcd explains why there is none.
func withoutEtcd(e *backup.Etcd) string {
	if e == nil || e.Problem == "" {
		return ""
	}
	return "; without etcd: " + e.Problem
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
			"the server of the cloud, compares every table, and drops them. FILE is a path on this machine or s3://BUCKET/PATH/NAME.",
		Example: "  ocadm cluster backup verify /var/backups/default-5f2c81d0-20261122T020000Z.ocadm-backup --identity key.txt\n" +
			"  ocadm cluster backup verify s3://backups/cloud/default-5f2c81d0-20261122T020000Z.ocadm-backup --s3-endpoint s3.example.com --identity key.txt --restore",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.fit(args[0]); err != nil {
				return err
			}
			verify := func(ctx context.Context, k8s client.Client, key *client.ObjectKey) error {
				ids, err := k.identities()
				if err != nil {
					return err
				}
				store, name, err := s.file(ctx, args[0])
				if err != nil {
					return err
				}
				place := store.String()
				if !strings.HasPrefix(args[0], bucketScheme) {
					place = here(place)
				}
				w := a.story()
				v, err := cluster.Verify(ctx, k8s, key, w, store, place, name, ids...)
				w.Close()
				if err != nil {
					return err
				}
				return a.print(f.output, v, func(p *page) {
					how := "complete and unchanged"
					if restore {
						how = "restored into scratch databases; every table matches"
					}
					p.line("%s: %s\ncloud %s/%s at %s of %s, %s, %s, %s, %s", v.Name, how, v.Cloud.Namespace, v.Cloud.Name, v.Version,
						v.Time.Format(time.RFC3339), lists.Counted(v.Tables, "table"), lists.Counted(v.Rows, "row"), lists.Counted(len(v.Objects), "object"),
						lists.Counted(len(v.Images), "image"))
				})
			}
			if restore {
				key := f.key()
				return f.within(c.Context(), f.timeout, func(ctx context.Context, k8s client.WithWatch) error { return verify(ctx, k8s, &key) })
			}
			ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
			defer cancel()
			return verify(ctx, nil, nil)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	s.add(c.Flags())
	k.addIdentities(c.Flags())
	c.Flags().BoolVar(&restore, "restore", false, "also restore it into scratch databases")
	c.Flags().DurationVar(&f.timeout, "timeout", backupTimeout, "time limit")
	return c
}

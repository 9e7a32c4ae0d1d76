// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
)

func newBackupSchedule(a *app) *cobra.Command {
	var f cloudFlags
	var s storeFlags
	var keep int32
	var to string
	var recipients []string
	schedule := cluster.Schedule{}
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Schedule backups of the cloud",
		Long: "Sets spec.backup of the cloud: the operator then creates backups at the given times, in a pod that runs its own image, and proves each. Backups\n" +
			"go to a volume, to a bucket with --to s3://BUCKET/PATH, or to a directory on a node with --to /DIR --node NODE. Values whose flags you\n" +
			"omit do not change. --off ends the schedule and keeps the backups.\n\n" +
			"The controller manager of Kubernetes starts them. In a cluster that ocadm created, its time zone is UTC.",
		Example: "  ocadm cluster backup schedule --at @daily --keep 14 --recipient age1…\n" +
			"  ocadm cluster backup schedule --to s3://backups/cloud --s3-endpoint s3.example.com\n" +
			"  ocadm cluster backup schedule --to /srv/backups --node node1\n  ocadm cluster backup schedule --off",
		RunE: func(c *cobra.Command, _ []string) error {
			err := s.fit(to)
			if err != nil {
				return err
			}
			schedule.Key = f.key()
			if schedule.Recipients, err = publicKeys(recipients); err != nil {
				return err
			}
			if c.Flags().Changed("keep") {
				schedule.Keep = ptr.To(keep)
			}
			switch {
			case strings.HasPrefix(to, "/"):
				schedule.Dir = to
			case to != "" && !strings.HasPrefix(to, bucketScheme):
				return misused(fmt.Sprintf("%q is neither a bucket nor a directory on a node", to), "for example --to s3://backups/cloud, or --to /srv/backups --node node1")
			case to != "":
				cfg, err := s.s3(to)
				if err != nil {
					return err
				}
				schedule.S3 = &v1alpha1.BackupS3{Endpoint: cfg.Endpoint, Bucket: cfg.Bucket, Prefix: cfg.Prefix, Region: cfg.Region, Plain: cfg.Plain, CA: cfg.CA}
				schedule.AccessKey, schedule.SecretKey = cfg.AccessKey, cfg.SecretKey
			}
			return showCloud(a, &f, c, func(ctx context.Context, k client.WithWatch) (outcome, error) {
				lines, err := schedule.Apply(ctx, k)
				return f.changed("changed", lines), err
			}, printOutcome)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	fs := c.Flags()
	fs.StringVar(&schedule.At, "at", "", "minute, hour, day, month and weekday, in UTC, as in '0 2 * * *', or @daily")
	fs.Int32Var(&keep, "keep", 7, "number of backups to keep; 0 keeps all")
	addRecipientFlag(fs, &recipients)
	fs.BoolVar(&schedule.Unencrypted, "unencrypted", false, "do not encrypt them: everyone who can read a file can read all passwords")
	fs.StringVar(&to, "to", "", "bucket, as s3://BUCKET/PATH, or directory on a node, instead of a volume")
	fs.StringVar(&schedule.Node, "node", "", "node that creates the backups; without it, a directory is on the node where the pod runs")
	fs.BoolVar(&schedule.Off, "off", false, "end the schedule; existing backups stay")
	c.MarkFlagsMutuallyExclusive("off", "at")
	s.add(fs)
	return c
}

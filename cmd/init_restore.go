// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/host"
)

// restoreFlags select the backup that init restores as the cloud. They are not settings, so no file or variable restores by mistake.
type restoreFlags struct {
	file  string
	store storeFlags
	keys  keyFlags
	yes   bool
}

func (r *restoreFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&r.file, "restore-from", "", "create the cloud from this backup: a file, or s3://BUCKET/PATH/NAME")
	r.store.add(fs)
	r.keys.addIdentities(fs)
	fs.BoolVarP(&r.yes, "yes", "y", false, "replace databases of the cloud in the backup that are already on the database server")
	for _, name := range []string{"s3-endpoint", "s3-region", "s3-plain-http", "s3-ca-file", "yes"} {
		mark(fs, name, annotationAdvanced)
	}
}

// prepare reads the whole backup before anything changes, and computes the images of the cloud, so that preflight can check that the bundle has them.
func (r *restoreFlags) prepare(ctx context.Context, a *app, h *host.Host) error {
	if r.file == "" {
		return cloudImages(ctx, a, h)
	}
	ids, err := r.keys.identities()
	if err != nil {
		return err
	}
	reading := a.story()
	from := &cluster.Restore{IDs: ids, Confirm: r.confirm, Watch: reading, Recorded: cluster.Recorded{By: requester()}}
	if from.Store, from.Name, err = r.store.file(ctx, r.file); err != nil {
		return err
	}
	contents, err := from.Read(ctx)
	reading.Close()
	if err != nil {
		return err
	}
	if err := cloud.FromBackup(h.Config, from, contents); err != nil {
		return err
	}
	cr, err := from.Cloud()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(cr.Object)
	if err != nil {
		return fmt.Errorf("writing the cloud's resource: %w", err)
	}
	if h.Config.Cloud.Images, err = imagesOf(text); err != nil {
		return err
	}
	h.Restore = from
	return nil
}

// confirm answers the question whether to replace databases.
func (r *restoreFlags) confirm(question string) error {
	if r.yes {
		return nil
	}
	return finding.New("OCA-7149", "The database server contains databases of the cloud in the backup", question,
		"to replace them, run the same command with --yes; to keep them, name another server with --mysql-host")
}

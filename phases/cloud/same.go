// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// CodeOtherSettings is the finding for a repeated init with another database, region or zone.
const CodeOtherSettings = "OCA-7012"

// SameSettings returns a finding if the cluster's cloud was made with another database, region or zone than this run's. It returns an error if the cluster
// does not answer: unknown settings do not count as the same.
func SameSettings(ctx context.Context, h *host.Host) error {
	var was cluster.Options
	err := h.Look(ctx, func(ctx context.Context, c client.WithWatch) (err error) {
		was, err = cluster.LoadSettings(ctx, c, h.Config.Cloud.Namespace)
		return err
	})
	if err != nil {
		return fmt.Errorf("comparing the settings of the cloud: %w", err)
	}
	return OtherSettings(differences(was, Options(h.Config)))
}

// OtherSettings returns the finding for these differences, nil if there are none.
func OtherSettings(changed []string) error {
	if len(changed) == 0 {
		return nil
	}
	return finding.New(CodeOtherSettings, "The cluster has different settings for the cloud", strings.Join(changed, "; "),
		"use the earlier values; a cloud that exists gets another database server with ocadm cluster move-database; "+
			"to start over: ocadm reset, or on a cluster that another tool created: ocadm operator uninstall --delete-data")
}

// Guarded returns p with a check before Run that the cloud's settings match those in the cluster.
func Guarded(p host.Phase) host.Phase {
	run := p.Run
	p.Run = func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
		if err := SameSettings(ctx, h); err != nil {
			return err
		}
		return run(ctx, h, r)
	}
	return p
}

// differences lists settings that differ and that a cloud cannot change after it was made.
func differences(was, now cluster.Options) []string {
	var out []string
	if was.Database.Host == "" {
		return nil // nothing has been stored yet
	}
	for _, s := range []struct{ what, was, now string }{
		{"--mysql-host", was.Database.Host, now.Database.Host},
		{"--mysql-port", fmt.Sprint(was.Database.Port), fmt.Sprint(now.Database.Port)},
		{"--region", was.Region, now.Region},
		{"--zone", was.Zone, now.Zone},
		{"--storage-class", cmp.Or(was.StorageClass, config.DefaultStorageClass), cmp.Or(now.StorageClass, config.DefaultStorageClass)},
	} {
		if s.was != s.now {
			out = append(out, fmt.Sprintf("%s was %s and is now %s", s.what, s.was, s.now))
		}
	}
	return out
}

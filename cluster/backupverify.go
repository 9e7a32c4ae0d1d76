// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// Verified is the result of verifying a backup.
type Verified struct {
	backup.Info
	Objects []string `json:"objects"`
	Images  []string `json:"images"`
}

// Verify reads a whole backup. With a cloud, it also restores it into scratch databases on the cloud's server, compares them, and records that for the
// file in place, the name that Backup.Place had for the store.
func Verify(ctx context.Context, c client.Client, key *client.ObjectKey, w backup.Watcher, s backup.Store, place, name string, ids ...age.Identity) (Verified, error) {
	info, err := backup.ReadInfo(ctx, s, name)
	if err != nil {
		return Verified{}, backupFinding(err)
	}
	var contents backup.Contents
	if key == nil {
		contents, err = backup.Verify(ctx, w, s, info, ids...)
	} else {
		contents, err = proveOn(ctx, c, *key, w, s, info, ids)
	}
	if err != nil {
		return Verified{}, backupFinding(err)
	}
	out := Verified{Info: info, Images: contents.Manifest.Images}
	out.Header = contents.Header
	out.Tables, out.Rows = contents.Manifest.Data.Count()
	out.Objects = lists.Map(contents.Objects, func(o backup.Object) string { return o.Kind + "/" + o.Name })
	if key != nil {
		now := time.Now().UTC().Truncate(time.Second)
		out.Proven, out.Problem = &now, ""
		return out, provenNow(ctx, c, *key, s, place, out.Info)
	}
	return out, nil
}

// provenNow records the proof of a backup, if it belongs to this cloud: in the cluster and, if the store can be written, beside the file, because the newest
// proven backup is never removed.
func provenNow(ctx context.Context, c client.Client, key client.ObjectKey, s backup.Store, place string, info backup.Info) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	id, err := archive.CredentialsID(ctx, c, key)
	if err != nil || id != info.Cloud.ID {
		return err
	}
	if !info.Unknown {
		err = backup.WriteInfo(ctx, s, info)
	}
	if p := backup.ProblemOf(err); err != nil && p != backup.ReadOnly && p != backup.Refused {
		return err
	}
	return archive.AddRecord(ctx, c, kube.FieldManager, u, backup.Record{Name: info.Name, Place: place, Time: info.Time, Seconds: info.Seconds, Size: info.Size,
		Tables: info.Tables, Rows: info.Rows, Proven: info.Proven, Etcd: info.Etcd})
}

func proveOn(ctx context.Context, c client.Client, key client.ObjectKey, w backup.Watcher, s backup.Store, info backup.Info, ids []age.Identity) (backup.Contents, error) {
	_, cr, err := load(ctx, c, key)
	if err != nil {
		return backup.Contents{}, err
	}
	id, err := archive.CredentialsID(ctx, c, key)
	if err != nil {
		return backup.Contents{}, err
	}
	a, err := openDatabases(ctx, c, cr, cr.Spec.MySQL, id)
	if err != nil {
		return backup.Contents{}, err
	}
	defer a.Close()
	return backup.Prove(ctx, w, s, info, a, ids...)
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"io"
	"os"
	"strings"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// etcdSource is the source of a restore of etcd, from the flags.
type etcdSource struct {
	// file is a snapshot, "" for the last good one of this machine; own selects the member's own data instead.
	file       string
	own, alone bool
	// store and keys are for a snapshot that was stored with backups.
	store storeFlags
	keys  keyFlags
}

// plan plans the restore, and returns a function to call when it has ended.
func (e etcdSource) plan(ctx context.Context, h *host.Host, w backup.Watcher) (r *etcdphase.Restore, remove func(), err error) {
	if !e.withBackups() {
		r, err = etcdphase.PlanRestore(ctx, h, e.file, e.own, e.alone)
		return r, func() {}, err
	}
	if _, err := kubernetes.OwnEtcd(h); err != nil { // on another machine, nothing is decrypted
		return nil, nil, err
	}
	ids, err := e.keys.identities()
	if err != nil {
		return nil, nil, err
	}
	store, name, err := e.store.file(ctx, e.file)
	if err != nil {
		return nil, nil, err
	}
	plain, remove, err := cluster.UnpackEtcd(ctx, w, store, name, h.Files.Path(etcdphase.Dir), ids...)
	if err != nil {
		return nil, nil, err
	}
	if r, err = etcdphase.PlanRestore(ctx, h, plain, e.own, e.alone); err != nil {
		remove()
		return nil, nil, err
	}
	r.From = e.file
	return r, remove, nil
}

// withBackups reports whether the file is in a bucket, or looks like one stored by the nightly backup. It ignores read errors, which others report.
func (e etcdSource) withBackups() bool {
	if strings.HasPrefix(e.file, bucketScheme) {
		return true
	}
	f, err := os.Open(e.file)
	if err != nil {
		return false
	}
	defer f.Close()
	beginning := make([]byte, 64)
	n, _ := io.ReadFull(f, beginning)
	return backup.IsPacked(beginning[:n])
}

// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/rotation"
)

// ForgetRotation is the restore flag that discards the record of a CA rotation.
const ForgetRotation = "--forget-rotation"

// KeepsRotation returns a finding if this machine is in the middle of a CA rotation of which the restored data has no record. The machine's files are
// not restored: it would trust two CAs, which blocks upgrades and joins, and no command could complete or revert the rotation.
func (r *Restore) KeepsRotation(ctx context.Context) error {
	if r.ForgetRotation || !kubernetes.Rotating(r.Host) {
		return nil
	}
	if r.File != "" {
		values, err := snapshot.Values(r.File, looked()...)
		if err != nil {
			return err
		}
		return r.keepsRotation(values)
	}
	if values, err := r.readOwn(ctx); err == nil { // otherwise this is checked once etcd has stopped
		return r.keepsRotation(values)
	}
	return nil
}

func (r *Restore) keepsRotation(values map[string][]byte) error {
	if r.ForgetRotation || !kubernetes.Rotating(r.Host) {
		return nil
	}
	lacks := "it has no Secret " + rotation.Secret
	if raw, there := values[rotation.StoredAt]; there {
		o, _ := decode(raw) // an encrypted record cannot be decoded, but at least it exists
		if s, is := o.(*corev1.Secret); !is || rotation.IsOf(r.Host, s.Data) {
			return nil
		}
		lacks = "its Secret " + rotation.Secret + " is of another rotation"
	}
	return finding.New("OCA-4158", "The data to restore has no record of the rotation of the certificate authorities",
		"this machine trusts two authorities, and "+lacks+": the keys in it would be lost, and the rotation could neither be completed nor reverted",
		"if the API server answers: ocadm certs rotate-ca --revert, then run the same command again; otherwise ocadm etcd restore FILE with a snapshot saved during the rotation; "+
			"if none exists, add "+ForgetRotation+", and afterwards start a new rotation, which ends this one: ocadm certs rotate-ca")
}

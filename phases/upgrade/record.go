// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"os"
	"slices"
	"time"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Record is the stored state of an unfinished upgrade of this machine, as far as neither the machine nor the cluster shows it.
type Record struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Begun time.Time `json:"begun"`
	// Earlier is the version that an unfinished upgrade gave to this node's control plane. A failed upgrade returns to it.
	Earlier string `json:"earlier,omitempty"`
	// First is set on the control-plane node that also changes the cluster's configuration.
	First bool `json:"first,omitempty"`
	// Reconfigure is set if the node gets its settings again even if it has the version.
	Reconfigure bool `json:"reconfigure,omitempty"`
	// Snapshot is the file with the etcd snapshot from before.
	Snapshot string `json:"snapshot,omitempty"`
	// Committed is set when this node's whole control plane is new and healthy, and on a worker before its software is replaced. From then on there is no rollback.
	Committed bool `json:"committed,omitempty"`
	// Cordoned is set if this command cordoned the node, and so must uncordon it.
	Cordoned bool `json:"cordoned,omitempty"`
}

const recordFile = kubernetes.UpgradeDir + "/record.json"

// Unfinished returns the unfinished upgrade of this machine, nil if there is none.
func Unfinished(h *host.Host) (*Record, error) {
	var r Record
	there, err := h.Files.ReadJSON(recordFile, &r)
	if err != nil {
		return nil, fmt.Errorf("reading the record of an unfinished upgrade: %w", err)
	}
	if !there {
		return nil, nil
	}
	return &r, nil
}

// save writes the record atomically: a power failure leaves either the old or the new one.
func (r Record) save(h *host.Host) error {
	if err := os.MkdirAll(h.Files.Path(kubernetes.UpgradeDir), 0o700); err != nil {
		return fmt.Errorf("writing the record of an upgrade: %w", err)
	}
	return h.Files.ReplaceJSON(recordFile, r)
}

// nothingDone reports whether the upgrade was interrupted before it replaced anything.
func (r Record) nothingDone(h *host.Host) bool {
	return !r.Committed && r.Earlier == "" && !exchanged(h)
}

// exchanged reports whether a static pod's manifest on this machine differs from that before the upgrade.
func exchanged(h *host.Host) bool {
	return slices.ContainsFunc(kubernetes.StaticPods(), func(name string) bool { return !kubernetes.IsBack(h, name) })
}

// cutOff reports whether an exchange of this machine's static pods was interrupted. The run then continues or rolls back what is unhealthy, so
// neither this node nor its etcd member counts as an obstacle.
func cutOff(h *host.Host) bool {
	r, err := Unfinished(h)
	return err == nil && r != nil && !r.Committed && exchanged(h)
}

// supersede changes the record of an unfinished upgrade to a newer version. The kept kubelet and the cordon mark stay. If the control plane has the
// earlier version, a failed upgrade returns to it, and a snapshot from before it is useless.
func (r Record) supersede(to string) Record {
	if r.Committed {
		r.Earlier, r.Snapshot = r.To, ""
	}
	r.To, r.Committed, r.First = to, false, false
	return r
}

// clear removes the manifests of this upgrade before one to another version. Those from before an unfinished exchange stay, because they work.
func (r Record) clear(h *host.Host) error {
	if r.Committed {
		return kubernetes.ForgetManifests(h)
	}
	return kubernetes.ForgetStaged(h)
}

// markUndone records that this upgrade was undone. The record of an earlier unfinished one remains.
func (r Record) markUndone(h *host.Host) error {
	if r.Earlier == "" {
		return forget(h)
	}
	if err := kubernetes.ForgetManifests(h); err != nil {
		return err
	}
	r.To, r.Earlier, r.Committed = r.Earlier, "", true
	return r.save(h)
}

// forget removes the files that an upgrade kept.
func forget(h *host.Host) error {
	if err := os.RemoveAll(h.Files.Path(kubernetes.UpgradeDir)); err != nil {
		return fmt.Errorf("removing the copies that the upgrade saved: %w", err)
	}
	return nil
}

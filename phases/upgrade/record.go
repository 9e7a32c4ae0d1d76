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

// Record is an unfinished upgrade of this machine: what cannot be read from the machine or the cluster.
type Record struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Begun time.Time `json:"begun"`
	// Earlier is the version to which this node's control plane had been brought by an upgrade that never ended. One that fails goes back to there.
	Earlier string `json:"earlier,omitempty"`
	// First is set on the control-plane node that changes the cluster's configuration, too.
	First bool `json:"first,omitempty"`
	// Snapshot is the file with etcd as it was before.
	Snapshot string `json:"snapshot,omitempty"`
	// Committed is set when the whole control plane of this node is new and well, and on a worker before its software is replaced: from then on nothing is put
	// back.
	Committed bool `json:"committed,omitempty"`
	// Cordoned is set when new pods were kept from the node by this command, which lets them in again.
	Cordoned bool `json:"cordoned,omitempty"`
}

const recordFile = kubernetes.UpgradeDir + "/record.json"

// Unfinished is the upgrade that was begun on this machine and has not ended, nil if there is none.
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

// save writes the record so that a loss of power leaves the old one or the new one.
func (r Record) save(h *host.Host) error {
	if err := os.MkdirAll(h.Files.Path(kubernetes.UpgradeDir), 0o700); err != nil {
		return fmt.Errorf("writing the record of an upgrade: %w", err)
	}
	return h.Files.ReplaceJSON(recordFile, r)
}

// nothingDone reports whether the upgrade was cut off before it replaced anything.
func (r Record) nothingDone(h *host.Host) bool {
	return !r.Committed && r.Earlier == "" && !exchanged(h)
}

// exchanged reports whether a static pod of this machine has another manifest than before the upgrade.
func exchanged(h *host.Host) bool {
	return slices.ContainsFunc(kubernetes.StaticPods(), func(name string) bool { return !kubernetes.IsBack(h, name) })
}

// cutOff reports whether an exchange of this machine's static pods was cut off. What is not well then is for the run to go on with, or to put back: neither this
// node nor its member of etcd stands against that.
func cutOff(h *host.Host) bool {
	r, err := Unfinished(h)
	return err == nil && r != nil && !r.Committed && exchanged(h)
}

// supersede makes the record of an unfinished upgrade one to a newer version. The kubelet that was kept, and who has cordoned the node, stay as they are. If
// the control plane has the earlier version, that is what an upgrade that fails goes back to, and a snapshot from before it is of no use.
func (r Record) supersede(to string) Record {
	if r.Committed {
		r.Earlier, r.Snapshot = r.To, ""
	}
	r.To, r.Committed, r.First = to, false, false
	return r
}

// clear removes the manifests of this upgrade before one to another version. Those of before an exchange that has not ended stay: they are what works.
func (r Record) clear(h *host.Host) error {
	if r.Committed {
		return kubernetes.ForgetManifests(h)
	}
	return kubernetes.ForgetStaged(h)
}

// takeBack notes that this upgrade was taken back: of an earlier one that has not ended, its record is left.
func (r Record) takeBack(h *host.Host) error {
	if r.Earlier == "" {
		return forget(h)
	}
	if err := kubernetes.ForgetManifests(h); err != nil {
		return err
	}
	r.To, r.Earlier, r.Committed = r.Earlier, "", true
	return r.save(h)
}

// forget removes what an upgrade kept.
func forget(h *host.Host) error {
	if err := os.RemoveAll(h.Files.Path(kubernetes.UpgradeDir)); err != nil {
		return fmt.Errorf("removing what the upgrade kept: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"yunion.io/x/ocadm/internal/disk"
)

// Known is the part of a record about who may serve.
type Known struct {
	Primary string `json:"primary,omitempty"`
	InSync  string `json:"inSync,omitempty"`
	Term    int    `json:"term,omitempty"`
}

func (r Record) known() Known { return Known{Primary: r.Primary, InSync: r.InSync, Term: r.Term} }

// later reports whether the known record is later than one that was read, so that etcd went back. If two records of one term name different
// primaries, both may have served.
func (k Known) later(than Known) bool {
	return k.Term > than.Term || k.forks(than)
}

func (k Known) forks(from Known) bool {
	return k.Term > 0 && k.Term == from.Term && k.Primary != from.Primary
}

// memory is the latest record that a server has seen, kept on its volume: etcd may be restored from a snapshot, and the databases are not restored
// with it. It belongs to one Lease: a new pair has a new Lease, while a restored Lease is the same one.
//
// It is written after the Lease, and before the agent acts on the record. So if it is later than the record, etcd went back, and no write was lost.
type memory struct {
	Lease types.UID `json:"lease"`
	Known Known     `json:"known"`
}

// of returns what is known about the record in a Lease.
func (m memory) of(lease types.UID) Known {
	if m.Lease != lease {
		return Known{}
	}
	return m.Known
}

// after returns the memory after a record was read. One that names no server, because a user edited the Lease, is not kept: it could not be recalled.
func (m memory) after(lease types.UID, r Record) memory {
	if r.Term == 0 || !slices.Contains(Servers(), r.Primary) || r.Unsettled != "" || m.of(lease).later(r.known()) {
		return m
	}
	return memory{Lease: lease, Known: r.known()}
}

// recall reads the memory of a volume. It is empty on a new volume.
func recall(file string) (memory, error) {
	var m memory
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err == nil && !slices.Contains(Servers(), m.Known.Primary) {
		err = fmt.Errorf("it names a primary %q", m.Known.Primary)
	}
	if err != nil {
		return memory{}, fmt.Errorf("reading the last known primary from %s: %w", file, err)
	}
	return m, nil
}

func (m memory) save(file string) error {
	raw, err := json.Marshal(m)
	if err == nil {
		err = disk.Replace(file, raw)
	}
	if err != nil {
		return fmt.Errorf("storing the current primary in %s: %w", file, err)
	}
	return nil
}

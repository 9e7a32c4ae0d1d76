// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// record is the progress of an unfinished restore or rejoin: the files alone do not show which of two directories is newer.
type record struct {
	// Source is the digest of the snapshot, or names the source of the data.
	Source   string `json:"source"`
	Before   string `json:"before,omitempty"` // the directory of the former data
	Prepared bool   `json:"prepared,omitempty"`
	Swapped  bool   `json:"swapped,omitempty"`
	Held     bool   `json:"held,omitempty"`  // the restored clouds and operations are paused
	Fresh    bool   `json:"fresh,omitempty"` // the member's own data counts as current
	Added    bool   `json:"added,omitempty"`
}

func recordFile(name string) string { return Dir + "/" + name + ".json" }

func load(h *host.Host, name, source string) (record, error) {
	var r record
	there, err := h.Files.ReadJSON(recordFile(name), &r)
	if err != nil {
		return r, fmt.Errorf("reading the record of an unfinished %s: %w", name, err)
	}
	if !there || r.Source != source { // another one was started and abandoned
		return record{Source: source}, nil
	}
	return r, nil
}

func (r record) save(h *host.Host, name string) error {
	if err := os.MkdirAll(h.Files.Path(Dir), 0o700); err != nil {
		return fmt.Errorf("writing the record of a %s: %w", name, err)
	}
	return h.Files.ReplaceJSON(recordFile(name), r)
}

// did returns a check that reads the record.
func did[R interface{ record() (record, error) }](of func(record) bool) func(context.Context, R) (bool, error) {
	return func(_ context.Context, r R) (bool, error) {
		rec, err := r.record()
		return of(rec), err
	}
}

func forget(h *host.Host, name string) error {
	if err := disk.Remove(h.Files.Path(recordFile(name))); err != nil {
		return fmt.Errorf("removing the record of a %s: %w", name, err)
	}
	return nil
}

// earlier holds what a restore or rejoin knows of its own interrupted run.
type earlier struct {
	// over reports that the control plane was started since: the earlier run was interrupted after its end, or abandoned. The present run starts from
	// the beginning. With the old record it would count as done, or replace the present data with outdated data.
	over bool
}

func (e *earlier) look(h *host.Host, name, source string) error {
	rec, err := load(h, name, source)
	e.over = rec != (record{Source: source}) && len(kubernetes.StoppedPods(h)) == 0
	return err
}

// load reads the record, unless the earlier run is over.
func (e *earlier) load(h *host.Host, name, source string) (record, error) {
	if e.over {
		return record{Source: source}, nil
	}
	return load(h, name, source)
}

// stop removes the record of an earlier run that is over, and stops the control plane on this machine.
func (e *earlier) stop(ctx context.Context, h *host.Host, name string, rep workflow.Reporter) error {
	if e.over {
		if err := forget(h, name); err != nil {
			return err
		}
		e.over = false
	}
	return kubernetes.StopStaticPods(ctx, h, rep, kubernetes.StaticPods()...)
}

// moveMember moves a member's data aside. If the target exists, an earlier run has moved it.
func moveMember(member, aside string) error {
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return fmt.Errorf("preserving the former data of etcd: %w", err)
	}
	if exists(filepath.Join(aside, "member")) {
		return nil
	}
	if err := os.Rename(member, filepath.Join(aside, "member")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("preserving the former data of etcd: %w", err)
	}
	return nil
}

// lasting makes the moves of directories last before a record says that they were made: the record may be on another disk, and a power cut would keep it
// and lose them.
func lasting(dirs ...string) error {
	for _, dir := range dirs {
		if err := disk.Sync(dir); err != nil {
			return fmt.Errorf("writing the directories of etcd to the disk: %w", err)
		}
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

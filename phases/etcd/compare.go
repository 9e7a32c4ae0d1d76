// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Preview compares the clouds in a snapshot with the present ones.
type Preview struct {
	Clouds []CloudChange `json:"clouds,omitempty"`
	// Operations lists the unfinished operations. A restore pauses them.
	Operations []string `json:"operations,omitempty"`
	// Misfits lists why the databases, which are not restored, do not fit the snapshot.
	Misfits []string `json:"misfits,omitempty"`
	// Unknown is the reason why the present state is unknown.
	Unknown string `json:"unknown,omitempty"`
	// Own is the age of the member's own data, if that is restored. There is then nothing to compare with.
	Own *OwnData `json:"ownData,omitempty"`
	// Unreadable lists keys of the snapshot that cannot be read, and therefore not paused.
	Unreadable []string `json:"unreadable,omitempty"`
}

// CloudChange is a cloud in the snapshot and now. A nil field means that the cloud does not exist there.
type CloudChange struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Snapshot  *Cloud `json:"snapshot,omitempty"`
	Now       *Cloud `json:"now,omitempty"`
}

// Preview reads the clouds in the snapshot and compares them with the present ones.
func (r *Restore) Preview(ctx context.Context) (Preview, error) {
	if r.File == "" {
		return r.previewOwn(ctx)
	}
	then, err := snapshot.Values(r.File, looked()...)
	if err != nil {
		return Preview{}, err
	}
	now, err := r.readOwn(ctx)
	if err != nil {
		p := compare(contentsOf(then), contents{}, false)
		p.Unknown = err.Error()
		return p, nil //nolint:nilerr // the preview reports that it is unknown
	}
	return compare(contentsOf(then), contentsOf(now), true), nil
}

// compare has no side effects. known reports whether the present state is known.
func compare(then, now contents, known bool) Preview {
	p := Preview{Unreadable: then.unreadable}
	keys := lists.Unique(append(slices.Sorted(maps.Keys(then.clouds)), slices.Sorted(maps.Keys(now.clouds))...))
	for _, key := range keys {
		var c CloudChange
		if is, there := then.clouds[key]; there {
			c = CloudChange{Namespace: is.Namespace, Name: is.Name, Snapshot: &is}
		}
		if is, there := now.clouds[key]; there {
			c.Namespace, c.Name, c.Now = is.Namespace, is.Name, &is
		}
		p.Clouds = append(p.Clouds, c)
		if c.Snapshot != nil && c.Now != nil && c.Now.Database != "" && c.Snapshot.Database != c.Now.Database {
			p.Misfits = append(p.Misfits, fmt.Sprintf("cloud %s uses database server %s, and the snapshot was taken when it used %s: it would use the old rows there",
				key, c.Now.Database, c.Snapshot.Database))
		}
		if c.Snapshot != nil && c.Now != nil && c.Snapshot.Version != c.Now.Version {
			p.Misfits = append(p.Misfits, fmt.Sprintf("the databases of cloud %s are of version %s, and the snapshot restores version %s", key, c.Now.Version, c.Snapshot.Version))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(then.operations)) {
		o := then.operations[key]
		p.Operations = append(p.Operations, fmt.Sprintf("%s/%s (%s)", o.Namespace, o.Name, o.Spec.Action))
	}
	for _, namespace := range slices.Sorted(maps.Keys(now.records)) {
		if _, there := then.records[namespace]; known && !there && now.records[namespace].Primary != dbpair.First {
			p.Misfits = append(p.Misfits, fmt.Sprintf("the embedded database of namespace %s is on %s, and the snapshot was taken before it had a replica: %s would serve its old rows",
				namespace, dbpair.PodName(now.records[namespace].Primary), dbpair.PodName(dbpair.First)))
		}
	}
	return p
}

// Holds reports whether the restore pauses anything.
func (p Preview) Holds() bool {
	there := len(p.Operations) > 0 || slices.ContainsFunc(p.Clouds, func(c CloudChange) bool { return c.Snapshot != nil })
	return there && (p.Own == nil || p.Own.Pauses)
}

// String describes what happens to the cloud.
func (c CloudChange) String() string {
	out := fmt.Sprintf("cloud %s/%s: ", c.Namespace, c.Name)
	switch {
	case c.Snapshot == nil:
		return out + "is not in the snapshot, and will be lost; now " + c.Now.String()
	case c.Now == nil:
		return out + c.Snapshot.String()
	}
	return out + c.Snapshot.String() + "; now " + c.Now.String()
}

// Flags that must be repeated when a restore is resumed: its databases are not those of the snapshot; no other control-plane node runs.
const (
	NewerDatabases = "--newer-databases"
	Alone          = "--alone"
)

// Fits returns a finding if the databases do not fit the restored clouds. Nothing migrates them back.
func (p Preview) Fits() error {
	if len(p.Misfits) == 0 {
		return nil
	}
	return finding.New("OCA-4157", "The databases do not match the snapshot",
		"a restore of etcd does not change the databases: services of another version would use them, or a server with old rows would start",
		"ocadm etcd restore FILE with a later snapshot; or back up the databases (ocadm cluster backup), then add "+NewerDatabases).With(p.Misfits...)
}

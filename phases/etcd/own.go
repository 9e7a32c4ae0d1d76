// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// freshFor is the greatest age of a member's newest entry at which its own data counts as current. Leases are renewed every 2 to 10 seconds while
	// a cluster works, so the age counts from the moment when this member stopped receiving what the others accepted, or the cluster stopped. The
	// data does not show which of the two happened. In these few minutes nobody updates a cloud and loses two machines, but an administrator who is
	// there can start the restore.
	freshFor = 5 * time.Minute
	// askOwn bounds the query of a member without a majority: the preview can do without an answer.
	askOwn = 15 * time.Second
)

// OwnData describes the age of this member's data. An acknowledged write needs a majority, which may have been the others alone.
type OwnData struct {
	// Newest is the time of its newest entry, and Age the time since.
	Newest *time.Time `json:"newest,omitempty"`
	Age    string     `json:"age,omitempty"`
	// Unread is the reason why the data cannot be read yet.
	Unread string `json:"unread,omitempty"`
	// Pauses reports whether the clouds are paused, as after a snapshot is restored.
	Pauses bool `json:"pauses,omitempty"`
}

func (o OwnData) String() string {
	switch {
	case o.Unread != "" && o.Pauses:
		return "The data of this member was read after etcd had stopped: it may be older than a few minutes, so the clouds are paused"
	case o.Unread != "":
		return fmt.Sprintf("The age of this member's data can be determined only after etcd has stopped. If its newest entry is older than %d minutes, the clouds are paused. Now: %s",
			int(freshFor.Minutes()), o.Unread)
	case o.Newest == nil:
		return "The age of this member's data cannot be determined, because it has no readable Lease. Therefore the clouds are paused"
	}
	out := fmt.Sprintf("The newest entry of this member is from %s, %s ago", o.Newest.Format(time.RFC3339), o.Age)
	if o.Pauses {
		out += ". Either the cluster stopped then, or the other members continued without this one, and everything that they have accepted since is lost. Therefore the clouds are paused"
	}
	return out
}

// newestLease returns when the newest Lease was renewed, zero if there is no Lease. Nodes and the control plane renew theirs every few seconds.
// etcd's file times are less useful, because an etcd that starts without a majority still writes its log. Times in the future come from a node with a
// wrong clock and are ignored.
func newestLease(values map[string][]byte, now time.Time) (newest time.Time) {
	for key, raw := range values {
		if !strings.HasPrefix(key, leases) {
			continue
		}
		l, err := leaseOf(raw)
		if err != nil || l.Spec.RenewTime == nil { // encrypted, or never held
			continue
		}
		if at := l.Spec.RenewTime.Time; at.After(newest) && !snapshot.Future(at, now) {
			newest = at
		}
	}
	return newest
}

// age describes the age of the member's own data, and reports whether it counts as current.
func (r *Restore) age(values map[string][]byte) (OwnData, bool) {
	newest := newestLease(values, r.began)
	if newest.IsZero() {
		return OwnData{Pauses: true}, false
	}
	at, age := newest.UTC().Truncate(time.Second), max(0, r.began.Sub(newest))
	fresh := age <= freshFor
	return OwnData{Newest: &at, Age: age.Round(time.Second).String(), Pauses: !fresh}, fresh
}

// readOwn returns the values in this member's data. A running etcd locks its file, so it is asked instead; it answers without a majority.
func (r *Restore) readOwn(ctx context.Context) (map[string][]byte, error) {
	rec, err := r.record()
	if err != nil {
		return nil, err
	}
	if before := snapshot.Database(r.path(rec.Before)); rec.Before != "" && exists(before) {
		return snapshot.Values(before, looked()...)
	}
	values, err := snapshot.Values(r.Host.Files.Path(snapshot.Database(r.Member.DataDir)), looked()...)
	if err == nil {
		return values, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askOwn)
	defer cancel()
	c, cerr := kubernetes.OpenOwnEtcd(ctx, r.Host, false)
	if cerr != nil {
		return nil, err // etcd does not run, so the file itself is at fault
	}
	defer c.Close()
	return entriesOf(ctx, c)
}

// previewOwn describes the age of this member's data and its clouds. What the others had is unknown: they are lost.
func (r *Restore) previewOwn(ctx context.Context) (Preview, error) {
	rec, err := r.record()
	if err != nil {
		return Preview{}, err
	}
	values, err := r.readOwn(ctx)
	if err != nil {
		return Preview{Own: &OwnData{Unread: err.Error(), Pauses: rec.Prepared && !rec.Fresh}}, nil
	}
	p := compare(contentsOf(values), contents{}, false)
	own, fresh := r.age(values)
	if rec.Prepared { // decided when etcd had stopped
		fresh, own.Pauses = rec.Fresh, !rec.Fresh
	}
	p.Own, r.fresh = &own, fresh
	return p, nil
}

// settle decides whether the member's own data counts as current. etcd has stopped, so the file can be read.
func (r *Restore) settle(file string, rep workflow.Reporter) (fresh bool, err error) {
	values, err := snapshot.Values(file, looked()...)
	if err != nil {
		return false, unrestorable(err)
	}
	if err := r.keepsRotation(values); err != nil {
		return false, err
	}
	own, fresh := r.age(values)
	rep.Info("%s", own)
	return fresh, nil
}

// isFresh reports whether the restored data counts as current.
func (r *Restore) isFresh() bool {
	if r.File != "" {
		return false
	}
	if rec, err := r.record(); err == nil && rec.Prepared {
		return rec.Fresh
	}
	return r.fresh
}

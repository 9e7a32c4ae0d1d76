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
	// freshFor is how old the newest entry of a member may be, so that its own data passes for the present. Leases are renewed every 2 to 10 seconds while a
	// cluster works, so it counts from the moment at which this member stopped to get what the others accepted, or the cluster stopped. From the data these two
	// cannot be told apart. In so few minutes an administrator does not update a cloud and lose two machines, and one who is there needs no more to begin.
	freshFor = 5 * time.Minute
	// askOwn bounds the question to a member without a majority: the preview can do without an answer.
	askOwn = 15 * time.Second
)

// OwnData is what is known of how old the data of this member is. An acknowledged write needs a majority, which may have been the others alone.
type OwnData struct {
	// Newest is the time of its newest entry, and Age how long ago that was.
	Newest *time.Time `json:"newest,omitempty"`
	Age    string     `json:"age,omitempty"`
	// Unread is why the data cannot be read yet.
	Unread string `json:"unread,omitempty"`
	// Pauses reports whether the clouds are paused, as after the restore of a snapshot.
	Pauses bool `json:"pauses,omitempty"`
}

func (o OwnData) String() string {
	switch {
	case o.Unread != "" && o.Pauses:
		return "The data of this member was read when etcd had stopped: it is not known to be of the last minutes, so the clouds are paused"
	case o.Unread != "":
		return fmt.Sprintf("How old the data of this member is becomes known when etcd has stopped. If its newest entry is older than %d minutes, the clouds are paused. Now: %s",
			int(freshFor.Minutes()), o.Unread)
	case o.Newest == nil:
		return "How old the data of this member is cannot be determined, because it has no Lease that can be read. So the clouds are paused"
	}
	out := fmt.Sprintf("The newest entry of this member is from %s, %s ago", o.Newest.Format(time.RFC3339), o.Age)
	if o.Pauses {
		out += ". Either the cluster stopped then, or the other members went on without this one, and all that they have accepted since is lost. So the clouds are paused"
	}
	return out
}

// newestLease is when the newest Lease was renewed: nodes and the control plane do that every few seconds. The time of a file of etcd says less, because an etcd that
// only starts, without a majority, writes its log. Times in the future are those of a node with a wrong clock. It is zero if there is none.
func newestLease(values map[string][]byte, now time.Time) (newest time.Time) {
	for key, raw := range values {
		if !strings.HasPrefix(key, leases) {
			continue
		}
		l, err := leaseOf(raw)
		if err != nil || l.Spec.RenewTime == nil { // it is encrypted, or never held
			continue
		}
		if at := l.Spec.RenewTime.Time; at.After(newest) && !snapshot.Future(at, now) {
			newest = at
		}
	}
	return newest
}

// age judges the member's own data.
func (r *Restore) age(values map[string][]byte) (OwnData, bool) {
	newest := newestLease(values, r.began)
	if newest.IsZero() {
		return OwnData{Pauses: true}, false
	}
	at, age := newest.UTC().Truncate(time.Second), max(0, r.began.Sub(newest))
	fresh := age <= freshFor
	return OwnData{Newest: &at, Age: age.Round(time.Second).String(), Pauses: !fresh}, fresh
}

// readOwn are the values of the data of this member. While etcd runs, it holds its file, and is asked instead; it answers without a majority.
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

// previewOwn says how old the data of this member is, and what it has of clouds. What others had is not known: they are lost.
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
	if rec.Prepared { // it was decided when etcd had stopped
		fresh, own.Pauses = rec.Fresh, !rec.Fresh
	}
	p.Own, r.fresh = &own, fresh
	return p, nil
}

// settle decides whether the member's own data passes for the present. etcd has stopped, so the file can be read.
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

// isFresh reports whether the restore is of data that passes for the present.
func (r *Restore) isFresh() bool {
	if r.File != "" {
		return false
	}
	if rec, err := r.record(); err == nil && rec.Prepared {
		return rec.Fresh
	}
	return r.fresh
}

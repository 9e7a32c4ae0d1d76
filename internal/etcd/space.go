// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// worthwhile is the minimum that a defragmentation must free, since a member serves no requests meanwhile.
const worthwhile = 8 << 20

// Defragment frees the space of deleted keys in the databases, one member after the other, the leader last. It does nothing while a member is
// unhealthy, and skips members that would free less than a third. It returns how many bytes it freed, and why it stopped early, "" if it did not.
func (c *Client) Defragment(ctx context.Context) (freed int64, stopped string, err error) {
	all, err := c.look(ctx)
	if err != nil {
		return 0, "", err
	}
	if why := c.unwell(all); why != "" {
		return 0, why, nil
	}
	for i, m := range all {
		if free := m.status.DbSize - m.status.DbSizeInUse; free < worthwhile || free < m.status.DbSize/3 {
			continue
		}
		after, err := c.defragment(ctx, m)
		if err != nil {
			return freed, "", err
		}
		freed += m.status.DbSize - after
		if i == len(all)-1 {
			break
		}
		again, err := c.look(ctx)
		if err != nil {
			return freed, "", err
		}
		if why := c.unwell(again); why != "" {
			return freed, why, nil
		}
	}
	return freed, "", nil
}

// unwell returns what is wrong with a member, "" if all members are present and healthy.
func (c *Client) unwell(all []member) string {
	for _, m := range all {
		switch {
		case m.err != nil:
			return m.err.Error()
		case m.status.IsLearner:
			return fmt.Sprintf("member %s of etcd is a learner: its join is not complete", m.name)
		case len(m.status.Errors) > 0:
			return fmt.Sprintf("member %s of etcd reports %s", m.name, strings.Join(m.status.Errors, ", "))
		}
	}
	if len(all) != len(c.members) {
		return fmt.Sprintf("etcd has %s, and should have %d", lists.Counted(len(all), "member"), len(c.members))
	}
	return ""
}

// defragment defragments a member and returns the size of its database afterwards.
func (c *Client) defragment(ctx context.Context, m member) (int64, error) {
	limited, cancel := context.WithTimeout(ctx, defragTimeout)
	defer cancel()
	if _, err := c.v3.Defragment(limited, m.client); err != nil {
		return 0, fmt.Errorf("defragmenting member %s of etcd: %w", m.name, err)
	}
	s, err := c.status(ctx, m)
	if err != nil {
		return 0, err
	}
	return s.DbSize, nil
}

// Lifted is the result of LiftNoSpace: the members with full databases, and the largest size before and after.
type Lifted struct {
	Members       []string
	Before, After int64
}

// LiftNoSpace makes room in databases that have reached their quota, so that etcd accepts writes again: it drops all old revisions, defragments each
// member, and disarms the alarm. It does nothing without such an alarm, and returns an error for any other alarm. Members that do not answer keep
// their alarm. etcd also keeps that of a member that was removed, and accepts no writes because of it.
func (c *Client) LiftNoSpace(ctx context.Context) (Lifted, error) {
	var out Lifted
	full, err := c.alarms(ctx)
	if err != nil || len(full) == 0 {
		return out, err
	}
	all, err := c.look(ctx)
	if err != nil {
		return out, err
	}
	if err := c.compact(ctx); err != nil {
		return out, err
	}
	var errs []error
	squeezed, keep := map[uint64]string{}, map[uint64]bool{}
	for _, m := range all {
		after, err := int64(0), m.err
		if err == nil {
			after, err = c.squeeze(ctx, m)
		}
		if err != nil {
			errs, keep[m.ID] = append(errs, err), true
			continue
		}
		out.Before, out.After = max(out.Before, m.status.DbSize), max(out.After, after)
		squeezed[m.ID] = m.name
	}
	// The same write fills each member, but each raises its own alarm, some of them only now.
	if full, err = c.alarms(ctx); err != nil {
		return out, errors.Join(append(errs, err)...)
	}
	for id := range full {
		if keep[id] {
			continue
		}
		if err := c.disarm(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		out.Members = append(out.Members, cmp.Or(squeezed[id], fmt.Sprintf("the removed member %x", id)))
	}
	slices.Sort(out.Members)
	return out, errors.Join(errs...)
}

// squeeze defragments a member until that has freed something and frees no more: after a compaction each member drops old revisions at its own pace,
// and does not report the end.
func (c *Client) squeeze(ctx context.Context, m member) (after int64, err error) {
	last := m.status.DbSize
	for range 5 {
		after, err = c.defragment(ctx, m)
		if err != nil || after < m.status.DbSize*3/4 && after > last*3/4 {
			return after, err
		}
		last = after
		if wait.Sleep(ctx, time.Second) != nil {
			return after, ctx.Err()
		}
	}
	return after, nil
}

// alarms returns the members with a NOSPACE alarm.
func (c *Client) alarms(ctx context.Context) (map[uint64]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.v3.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the alarms of etcd: %w", err)
	}
	full := map[uint64]bool{}
	for _, a := range answer.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			return nil, fmt.Errorf("etcd reports %s of member %x", a.Alarm, a.MemberID)
		}
		full[a.MemberID] = true
	}
	return full, nil
}

func (c *Client) compact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defragTimeout)
	defer cancel()
	now, err := c.v3.Get(ctx, "0", clientv3.WithCountOnly()) // any key, as only the revision is wanted
	if err != nil {
		return fmt.Errorf("reading the revision of etcd: %w", err)
	}
	_, err = c.v3.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

func (c *Client) disarm(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.v3.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: id, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("disarming the alarm of etcd: %w", err)
	}
	return nil
}

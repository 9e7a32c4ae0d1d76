// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// ErrOtherLearner means that another member is joining already: etcd allows one at a time.
var ErrOtherLearner error = rpctypes.ErrTooManyLearners

// LostDisk reports whether, according to its log, an etcd ended because it was a member before but found no data.
func LostDisk(log string) bool { return strings.Contains(log, "has already been bootstrapped") }

// FoundNone reports whether, according to its log, an etcd without data ended because no member of the cluster that it is to join answered.
func FoundNone(log string) bool {
	return strings.Contains(log, "could not retrieve cluster information from the given URLs")
}

// Replace makes room for the successor of a member that has lost its data: it removes the member, and adds one at the same address. Data under the
// old identity must not come back, because the others rely on what that member had acknowledged. The successor must start with
// --initial-cluster-state=existing; allow is called to arrange that as soon as the old member is removed, and when Replace is repeated. Replace does
// nothing if the member answers.
func (c *Client) Replace(ctx context.Context, name string, allow func(context.Context) error) (replaced bool, err error) {
	at := slices.IndexFunc(c.members, func(m Member) bool { return m.Name == name })
	if at < 0 {
		return false, fmt.Errorf("etcd should have no member %s", name)
	}
	all, err := c.list(ctx)
	if err != nil {
		return false, err
	}
	is := slices.IndexFunc(all, func(m member) bool { return m.name == name })
	if is >= 0 && all[is].Started() {
		if _, err := c.status(ctx, all[is]); err == nil {
			return false, nil
		}
		if err := c.Remove(ctx, all[is].Listed); err != nil {
			return false, err
		}
		is = -1
	}
	if err := allow(ctx); err != nil {
		return false, err
	}
	if is >= 0 {
		return false, nil
	}
	return true, add(ctx, name, c.members[at].PeerURL, c.v3.MemberAdd)
}

// whenWell changes the members. It retries while etcd considers itself unhealthy (it wants its other members connected for a few seconds) or does not
// answer in time: of two concurrent changes it drops one, and never answers it. If a retry finds the change already made, an unanswered attempt made
// it. Source: etcd, EtcdServer.configure; raft, "ignoring conf change".
func whenWell(ctx context.Context, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 6*askTimeout)
	defer cancel()
	unanswered := false
	for {
		try, end := context.WithTimeout(ctx, askTimeout)
		err := change(try)
		end()
		switch {
		case unanswered && (errors.Is(err, rpctypes.ErrPeerURLExist) || errors.Is(err, rpctypes.ErrMemberNotFound)):
			return nil
		case !IsUnavailable(err):
			return err
		}
		unanswered = unanswered || !errors.Is(err, rpctypes.ErrUnhealthy)
		if wait.Sleep(ctx, time.Second) != nil {
			return err
		}
	}
}

// Joining returns the members that were added and have not started yet.
func (c *Client) Joining(ctx context.Context) ([]string, error) {
	all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	return lists.Pick(c.members, func(m Member) (string, bool) {
		return m.Name, !slices.ContainsFunc(all, func(o member) bool { return o.name == m.Name && o.Started() })
	}), nil
}

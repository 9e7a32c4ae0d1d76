// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// Listed is a member as etcd lists it.
type Listed struct {
	ID   uint64
	Name string // empty until it has started for the first time
	// PeerURLs are its addresses for the other members.
	PeerURLs []string
	// Learner is true while the member does not vote yet. There can be only one learner at a time.
	Learner bool
}

func (l Listed) Started() bool { return l.Name != "" }

// Node returns the name of the member for "ocadm node remove".
func (l Listed) Node() string { return nodeOf(l.Name, l.PeerURLs...) }

// nodeOf returns the name of a member, which is that of its node, or its address before its first start, when it has no name.
func nodeOf(name string, peers ...string) string {
	for _, p := range peers {
		if u, err := url.Parse(p); name == "" && err == nil {
			return u.Hostname()
		}
	}
	return name
}

// At reports whether the member has that peer URL.
func (l Listed) At(peer string) bool { return slices.Contains(l.PeerURLs, peer) }

// List returns the members, in the order of their IDs. It needs a majority.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.v3.MemberList(ctx)
	if err != nil {
		return nil, listing(err)
	}
	return lists.Map(answer.Members, listed), nil
}

func listed(m *etcdserverpb.Member) Listed {
	return Listed{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner}
}

// Remove removes a member from etcd permanently: its data must not come back. It needs a majority.
func (c *Client) Remove(ctx context.Context, m Listed) error {
	err := whenWell(ctx, func(ctx context.Context) error {
		_, err := c.v3.MemberRemove(ctx, m.ID)
		return err
	})
	if err != nil {
		return fmt.Errorf("removing member %s of etcd: %w", m.Name, err)
	}
	return nil
}

// AddLearner adds a member that does not vote yet, and retries while etcd considers itself unhealthy. It needs a majority.
func (c *Client) AddLearner(ctx context.Context, name, peer string) error {
	return add(ctx, name, peer, c.v3.MemberAddAsLearner)
}

func add(ctx context.Context, name, peer string, how func(context.Context, []string) (*clientv3.MemberAddResponse, error)) error {
	err := whenWell(ctx, func(ctx context.Context) error {
		_, err := how(ctx, []string{peer})
		return err
	})
	if err != nil {
		return fmt.Errorf("adding member %s to etcd: %w", name, err)
	}
	return nil
}

// Promote makes a learner a voting member, as soon as it has caught up with the leader.
func (c *Client) Promote(ctx context.Context, m Listed) error {
	ctx, cancel := context.WithTimeout(ctx, promoteTimeout)
	defer cancel()
	for {
		_, err := c.v3.MemberPromote(ctx, m.ID)
		if err == nil || errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		if !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) && !IsUnavailable(err) {
			return fmt.Errorf("promoting member %s of etcd: %w", m.Name, err)
		}
		if wait.Sleep(ctx, time.Second) != nil {
			return fmt.Errorf("promoting member %s of etcd: %w", m.Name, err)
		}
	}
}

// promoteTimeout limits how long a learner may take to catch up: the same as in kubeadm.
const promoteTimeout = 2 * time.Minute

// SetPeerURL changes the peer URL of a member, and reports whether it was different before. It needs a majority.
func (c *Client) SetPeerURL(ctx context.Context, name, peer string) (changed bool, err error) {
	list, err := c.List(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(list, func(l Listed) bool { return l.Name == name })
	if i < 0 {
		return false, fmt.Errorf("changing the address of member %s of etcd: it is not listed", name)
	}
	if slices.Equal(list[i].PeerURLs, []string{peer}) {
		return false, nil
	}
	err = whenWell(ctx, func(ctx context.Context) error {
		_, err := c.v3.MemberUpdate(ctx, list[i].ID, []string{peer})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("changing the address of member %s of etcd: %w", name, err)
	}
	return true, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package etcd maintains an etcd cluster: it frees space, clears the alarm of a full database, and replaces a member that has lost its disk.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"yunion.io/x/ocadm/internal/lists"
)

// Member is a member and its addresses.
type Member struct{ Name, ClientURL, PeerURL string }

// Config describes how to reach an etcd.
type Config struct {
	// Members lists all members that the etcd should have.
	Members []Member
	// TLS is nil for an etcd without certificates.
	TLS *tls.Config
	// Dial replaces the default dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is a client of one etcd. The caller must close it.
type Client struct {
	members []Member
	v3      *clientv3.Client
}

const (
	connectTimeout = 2 * time.Second
	askTimeout     = 5 * time.Second
	// defragTimeout limits the defragmentation of one member, which serves no requests meanwhile.
	defragTimeout = time.Minute
)

// ObserveTimeout is the longest time that Open and Observe take together. They need it if there is no majority.
const ObserveTimeout = 2*connectTimeout + 2*askTimeout

// ErrUnreachable means that no member accepts connections.
var ErrUnreachable = errors.New("no member of etcd can be reached")

// IsUnavailable reports whether an etcd did not answer: no member accepts connections, or it is too busy to serve in time. Trying later may help.
func IsUnavailable(err error) bool {
	var answer rpctypes.EtcdError
	return errors.Is(err, ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &answer) && answer.Code() == codes.Unavailable
}

// IsLearner reports whether an error is the answer of a learner, which lists no members.
func IsLearner(err error) bool {
	return errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
}

// Open connects to the members that accept connections. It returns ErrUnreachable soon if none does, because an RPC would retry until its deadline.
func Open(ctx context.Context, c Config) (*Client, error) {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	endpoints := lists.Map(c.Members, func(m Member) string { return m.ClientURL })
	if !anyOpen(ctx, c) {
		return nil, ErrUnreachable
	}
	v3, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: c.TLS, Logger: zap.NewNop(), DialTimeout: connectTimeout,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.Dial(ctx, "tcp", address)
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("creating a client for etcd: %w", err)
	}
	return &Client{members: c.Members, v3: v3}, nil
}

func anyOpen(ctx context.Context, c Config) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	answers := make(chan bool, len(c.Members))
	for _, m := range c.Members {
		go func() {
			u, err := url.Parse(m.ClientURL)
			if err != nil {
				answers <- false
				return
			}
			conn, err := c.Dial(ctx, "tcp", u.Host)
			if err == nil {
				_ = conn.Close() // nothing was sent
			}
			answers <- err == nil
		}()
	}
	for range c.Members {
		if <-answers {
			return true
		}
	}
	return false
}

func (c *Client) Close() { _ = c.v3.Close() } // nothing depends on it any longer

// member is a member that etcd lists, with its status, which is nil if it does not answer.
type member struct {
	Listed
	// name and client are its wanted name and client URL.
	name, client string
	status       *clientv3.StatusResponse
	err          error
}

// list is List with the wanted names and client URLs of the members.
func (c *Client) list(ctx context.Context) ([]member, error) {
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	return lists.Map(all, func(l Listed) member {
		one := member{Listed: l, name: l.Node()}
		if at := slices.IndexFunc(c.members, func(o Member) bool { return l.At(o.PeerURL) }); at >= 0 {
			one.name, one.client = cmp.Or(c.members[at].Name, one.name), c.members[at].ClientURL
		}
		return one
	}), nil
}

// look reads the status of each member. The leader comes last.
func (c *Client) look(ctx context.Context) ([]member, error) {
	all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].status, all[i].err = c.status(ctx, all[i])
	}
	leads := func(m member) bool { return m.status != nil && m.status.Leader == m.ID }
	slices.SortStableFunc(all, func(a, b member) int { return lists.TrueFirst(leads(b), leads(a)) })
	return all, nil
}

func (c *Client) status(ctx context.Context, m member) (*clientv3.StatusResponse, error) {
	switch {
	case m.client == "":
		return nil, fmt.Errorf("etcd has a member %q at %q, which does not belong to the cloud", m.name, m.PeerURLs)
	case !m.Started():
		return nil, fmt.Errorf("member %s of etcd has not started yet", m.name)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := c.v3.Status(ctx, m.client)
	if err != nil {
		return nil, fmt.Errorf("querying member %s of etcd: %w", m.name, err)
	}
	if s.Leader == 0 {
		return nil, fmt.Errorf("member %s of etcd has no leader", m.name)
	}
	return s, nil
}

func listing(err error) error { return fmt.Errorf("listing the members of etcd: %w", err) }

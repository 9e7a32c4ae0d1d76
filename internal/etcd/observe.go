// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"yunion.io/x/ocadm/internal/lists"
)

// Observed is a member as etcd lists it, with its own status.
type Observed struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Peer    string `json:"peerURL"`
	Client  string `json:"clientURL,omitempty"`
	Learner bool   `json:"learner"`
	Leader  bool   `json:"leader"`
	// Answers reports whether the member knows a leader; Problem is the reason if not.
	Answers bool   `json:"answers"`
	Problem string `json:"problem,omitempty"`
	Version string `json:"version,omitempty"`
	// Size is the size of the database on the disk, InUse its size after a defragmentation, Quota the size at which it refuses writes.
	Size     int64  `json:"sizeBytes"`
	InUse    int64  `json:"inUseBytes"`
	Quota    int64  `json:"quotaBytes,omitempty"`
	Revision int64  `json:"revision"`
	Term     uint64 `json:"raftTerm"`
	Index    uint64 `json:"raftIndex"`
	// Alarms lists its alarms, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`

	listed Listed
}

func (o Observed) Listed() Listed { return o.listed }

// Node returns the name of the member for "ocadm node remove".
func (o Observed) Node() string { return nodeOf(o.Name, o.Peer) }

// Observe lists the members and reads the status of each. The list needs a majority; without one, it comes from any member that answers, and may be outdated.
func (c *Client) Observe(ctx context.Context) ([]Observed, error) {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.v3.MemberList(limited)
	if err != nil {
		again, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		old, oerr := c.v3.MemberList(again, clientv3.WithSerializable())
		if oerr != nil {
			return nil, listing(err)
		}
		answer = old
	}
	return lists.Parallel(answer.Members, len(answer.Members), func(_ int, m *etcdserverpb.Member) Observed { return c.observe(ctx, m) }), nil
}

func (c *Client) observe(ctx context.Context, m *etcdserverpb.Member) Observed {
	o := Observed{ID: strconv.FormatUint(m.ID, 16), Name: m.Name, Learner: m.IsLearner,
		listed: listed(m)}
	if len(m.PeerURLs) > 0 {
		o.Peer = m.PeerURLs[0]
	}
	if len(m.ClientURLs) == 0 {
		o.Problem = "it has not started yet"
		return o
	}
	o.Client = m.ClientURLs[0]
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s, err := c.v3.Status(ctx, o.Client)
	if err != nil {
		o.Problem = err.Error()
		return o
	}
	o.Version, o.Size, o.InUse, o.Quota = s.Version, s.DbSize, s.DbSizeInUse, s.DbSizeQuota
	o.Revision, o.Term, o.Index = s.Header.Revision, s.RaftTerm, s.RaftIndex
	o.Leader, o.Answers, o.Alarms = s.Leader == m.ID, s.Leader != 0, slices.Clone(s.Errors)
	if !o.Answers {
		o.Problem = "it has no leader: a majority of the members is needed"
	}
	return o
}

// MustStay returns the reason why a member cannot be removed, "" if it can: a majority of the remaining voters must answer.
func MustStay(all []Observed, id string) string {
	voters, answer, rest, restAnswer := 0, 0, 0, 0
	for _, m := range all {
		if m.Learner {
			continue
		}
		voters++
		if m.Answers {
			answer++
		}
		if m.ID == id {
			continue
		}
		rest++
		if m.Answers {
			restAnswer++
		}
	}
	switch {
	case rest == 0:
		return "it is the only voting member: etcd cannot work without it"
	case answer < voters/2+1:
		return fmt.Sprintf("%d of %d voting members answer, and a change needs %d", answer, voters, voters/2+1)
	case restAnswer < rest/2+1:
		return fmt.Sprintf("of the %d voting members that would remain, %d answer, and %d must answer", rest, restAnswer, rest/2+1)
	}
	return ""
}

func (c *Client) Size(ctx context.Context, endpoint string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := c.v3.Status(ctx, endpoint)
	if err != nil {
		return 0, fmt.Errorf("querying etcd at %s: %w", endpoint, err)
	}
	return s.DbSize, nil
}

// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// askCluster bounds the query of the cluster, which may be gone.
	askCluster = 8 * time.Second
	// askMember bounds the query of this machine's member. Without a majority, it is asked for the members, and then all of them, each for the longest time.
	askMember = 3 * etcd.ObserveTimeout
)

// MayLeave returns a finding if etcd would lose its majority without this machine's member. It asks the cluster or, if that does not answer, the
// member itself. A machine without etcd, or whose etcd does not run, may leave.
func MayLeave(ctx context.Context, h *host.Host) error {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return nil //nolint:nilerr // not a control-plane node
	}
	of := leaving{
		peer:    m.PeerURL,
		cluster: func(ctx context.Context) ([]etcd.Observed, error) { return cluster(ctx, h) },
		member:  func(ctx context.Context) ([]etcd.Observed, error) { return kubernetes.ObserveOwnEtcd(ctx, h) },
		runs:    m.Accepts,
	}
	return of.may(ctx)
}

// leaving is a member that is to leave, and the sources about it.
type leaving struct {
	peer            string
	cluster, member func(context.Context) ([]etcd.Observed, error)
	runs            func(context.Context) bool
}

// may also returns a finding if the member runs and nothing is known: it may be the last one that has the data.
func (l leaving) may(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, askCluster)
	all, err := l.cluster(asking)
	cancel()
	if err == nil {
		return mayLeave(all, l.peer)
	}
	asking, cancel = context.WithTimeout(ctx, askMember)
	all, err = l.member(asking)
	cancel()
	switch {
	case err == nil:
		return mayLeave(all, l.peer)
	case ctx.Err() != nil:
		return fmt.Errorf("querying etcd: %w", ctx.Err())
	case etcd.IsLearner(err) || !l.runs(ctx):
		return nil
	}
	return finding.New("OCA-4155", "Without this machine, etcd may have no majority, and the data may be lost",
		"its member of etcd runs, but its state cannot be determined", "ocadm etcd status, then run the command again; "+remedy).With(err.Error())
}

// mayLeave has no side effects. The last member may leave: etcd ends with it, and reset asks about that.
func mayLeave(all []etcd.Observed, peer string) error {
	at := slices.IndexFunc(all, func(o etcd.Observed) bool { return o.Peer == peer })
	others := slices.ContainsFunc(all, func(o etcd.Observed) bool { return o.Peer != peer && !o.Learner })
	if at < 0 || all[at].Learner || !others {
		return nil
	}
	why := etcd.MustStay(all, all[at].ID)
	if why == "" {
		return nil
	}
	return finding.New("OCA-4155", "Without this machine, etcd has no majority, and the cluster stops", why, remedy).With(seen(all)...)
}

const remedy = "repair the other control-plane nodes, or remove those that are lost: ocadm node remove NAME; if those nodes are lost for good and this one remains: " +
	"ocadm etcd restore --from-data; to reset this one anyway: ocadm reset --abandon-etcd"

// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// leaveTimeout bounds the query of each of two sources, either of which may be gone.
const leaveTimeout = 8 * time.Second

// MayLeave returns a finding if etcd would lose its majority without this machine's member. It asks the cluster or, if that does not answer, the
// member itself. A machine without etcd, or whose etcd does not answer, may leave.
func MayLeave(ctx context.Context, h *host.Host) error {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return nil //nolint:nilerr // not a control-plane node
	}
	for _, ask := range []func(context.Context, *host.Host) ([]etcd.Observed, error){cluster, kubernetes.ObserveOwnEtcd} {
		asking, cancel := context.WithTimeout(ctx, leaveTimeout)
		all, err := ask(asking, h)
		cancel()
		if err == nil {
			return mayLeave(all, m.PeerURL)
		}
	}
	return nil
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
	return finding.New("OCA-4155", "Without this machine, etcd has no majority, and the cluster stops", why,
		"repair the other control-plane nodes, or remove those that are lost: ocadm node remove NAME; if those nodes are lost for good and this one remains: "+
			"ocadm etcd restore --from-data; to reset this one anyway: ocadm reset --abandon-etcd").With(seen(all)...)
}

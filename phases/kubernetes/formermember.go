// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const formerMemberName = "former-member"

// formerMemberPhase removes the etcd member that this machine, or another one of its name, used to be. kubeadm would start etcd under that member's identity,
// because it has the same address, but without its data: such an etcd panics, and a new one could vote twice in the same election.
func formerMemberPhase(after string) host.Phase {
	return host.Phase{
		Name: formerMemberName, Short: "Remove this machine's former member of etcd", After: []string{after}, Skip: NotControlPlane, Timeout: learnerPatience,
		Long: "A machine that was lost, or reset while its cluster did not answer, is still a member of etcd. It is removed if it does not answer and a majority\n" +
			"of the others does. A member whose data is on this machine continues.",
		Check: func(_ context.Context, h *host.Host) (bool, error) { return hasEtcd(h), nil },
		Plan:  workflow.Says[*host.Host]("if etcd has a former member of this machine, whose data is gone: remove it"),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			k, err := h.Kube(ctx)
			if err != nil {
				return err
			}
			c, all, err := ObserveEtcd(ctx, func(ctx context.Context) (*etcd.Client, error) { return OpenEtcd(ctx, h, k) })
			if err != nil {
				return err
			}
			defer c.Close()
			former, err := formerMembers(all, h.Config.Node.Name, ownPeerURL(h.Config))
			if err != nil {
				return err
			}
			for _, m := range former {
				if err := c.Remove(ctx, m.Listed()); err != nil {
					return err
				}
				r.Changed("removed the former member %s of etcd at %s", m.Name, m.Peer)
			}
			return nil
		},
	}
}

// hasEtcd reports whether this machine has a member: the join got far enough to continue with it.
func hasEtcd(h *host.Host) bool {
	return h.Files.Exists(manifest(constants.Etcd)) || h.Files.Exists(etcdDir+"/member")
}

// formerMembers returns the members with the name or address of a machine that has no etcd. It omits one that never started: kubeadm continues that interrupted
// join. It returns a finding for one that answers, and for one without which the others have no majority.
func formerMembers(all []etcd.Observed, name, peer string) ([]etcd.Observed, error) {
	var out []etcd.Observed
	for _, m := range all {
		switch {
		case m.Name == "" || m.Name != name && m.Peer != peer:
			continue
		case m.Version != "":
			return nil, finding.New("OCA-4144", "A member of etcd with the name or the address of this machine runs", fmt.Sprintf("member %s at %s answers", m.Name, m.Peer),
				"give this machine another name (--node-name) and another address; or remove that machine from the cluster, there: ocadm reset")
		}
		if why := etcd.MustStay(without(all, out), m.ID); why != "" {
			return nil, finding.New("OCA-4144", "The former member "+m.Name+" of etcd cannot be removed", why,
				"repair the other control-plane nodes first, on one of them: ocadm ha status; then run the same command again")
		}
		out = append(out, m)
	}
	return out, nil
}

// without returns the members that remain after removing some.
func without(all, removed []etcd.Observed) []etcd.Observed {
	return slices.DeleteFunc(slices.Clone(all), func(m etcd.Observed) bool {
		return slices.ContainsFunc(removed, func(r etcd.Observed) bool { return m.ID == r.ID })
	})
}

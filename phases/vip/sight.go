// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
)

// holders asks the network. It is a variable for tests, which have no network.
var holders = vip.Holders

// Own returns what this control-plane node knows about the virtual address without the cluster; found is false if it has no keepalived.
func Own(h *host.Host) (s vip.Settings, self string, found bool) {
	s, err := kept(h)
	self, _, ok := kubernetes.OwnEndpoint(h)
	if !ok {
		self = cmp.Or(nodepod.Argument(h.Files.Text(ManifestFile), addressFlag), h.Config.Node.AdvertiseAddress)
	}
	return s, self, err == nil && s.Address != ""
}

// See finds the holder of the virtual address. self is the address of this control-plane node. The MAC addresses of the others show which of them answers.
func See(ctx context.Context, h *host.Host, s vip.Settings, self string) why.VirtualAddress {
	out := why.VirtualAddress{Address: s.Address}
	iface := ""
	for _, i := range h.Facts.Interfaces {
		for _, p := range i.Prefixes {
			out.Here = out.Here || p.Addr().String() == s.Address
			if p.Addr().String() == self {
				iface = i.Name
			}
		}
	}
	if iface == "" {
		out.Unseen = fmt.Sprintf("no interface has the address %s of this node", self)
		return out
	}
	peers := s.Without(self).Peers
	answers, err := holders(ctx, iface, append([]string{s.Address}, peers...)...)
	if err != nil {
		out.Unseen = err.Error()
		return out
	}
	for _, mac := range answers[s.Address] {
		c := why.Claimant{MAC: mac}
		for _, p := range peers {
			if slices.Contains(answers[p], mac) {
				c.Peer = p
			}
		}
		out.Others = append(out.Others, c)
	}
	return out
}

// SeeHolders adds the holders of the virtual address, which an API server's answer does not show, and related problems.
func (s *Status) SeeHolders(ctx context.Context, h *host.Host) {
	if own, self, found := Own(h); found && s.Address != "" {
		own.Address = s.Address
		s.sees(See(ctx, h, own, self), self)
	}
}

func (s *Status) sees(see why.VirtualAddress, self string) {
	var on []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		has := see.Here && n.Address == self || slices.ContainsFunc(see.Others, func(c why.Claimant) bool { return c.Peer != "" && c.Peer == n.Address })
		if n.Holds = n.Holds || has; n.Holds {
			on = append(on, n.Name)
		}
	}
	foreign := lists.Pick(see.Others, func(c why.Claimant) (string, bool) {
		return c.MAC, !slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return c.Peer != "" && c.Peer == n.Address })
	})
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	switch {
	case s.Holder == "" && see.Unseen != "":
		problem("the holder of the virtual address cannot be determined: %s", see.Unseen)
	case s.Holder == "" && len(on)+len(foreign) == 0:
		problem("no machine has the virtual address %s: ocadm why", s.Address)
	case s.Holder == "" && len(on) > 0:
		problem("%s has the virtual address %s, and its API server does not answer there", strings.Join(on, ", "), s.Address)
	}
	if len(on) > 1 {
		problem("%s have the virtual address %s at the same time, because they do not hear each other by VRRP (IP protocol 112): ocadm why", strings.Join(on, " and "), s.Address)
	}
	if len(foreign) > 0 {
		problem("a machine that is not a control-plane node answers for the virtual address %s: MAC address %s", s.Address, strings.Join(foreign, ", "))
	}
}

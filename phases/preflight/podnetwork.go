// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/owned"
)

func podNetworkChecks() []Check {
	return []Check{
		{Name: "CNI", Short: "no other program's network configuration takes precedence over the pod network's", Codes: []string{"OCA-2009"},
			Applies: func(_ Kind, c *config.Config) bool { return c.Addons.CNI != config.None }, run: checkCNI},
		{Name: "Families", Short: "the node has an address of each family of the pod network", Codes: []string{"OCA-2010"},
			run: checkFamilies},
	}
}

// checkCNI looks for other CNI configurations that containerd would use: it takes the first file of the directory by name. Until the pod network has written
// its own, that can be any file.
func checkCNI(_ context.Context, m *machine) []finding.Finding {
	present := m.h.Files.Exists(owned.Conflist)
	others := lists.Filter(owned.CNIConfigs(m.h.Files), func(f string) bool { return f < owned.Conflist || f > owned.Conflist && !present })
	if len(others) == 0 {
		return nil
	}
	f := finding.New("OCA-2009", "Pods would be connected to another program's network",
		fmt.Sprintf("containerd uses the first file of %s, which contains %s", path.Dir(owned.Conflist), strings.Join(others, ", ")),
		"if no program needs it, move it away: mv "+strings.Join(others, " ")+" /root/; to use your own pod network: ocadm init --cni none")
	if m.kind == Join { // the cluster's network is unknown here
		f.Severity = finding.Warning
	}
	return []finding.Finding{f}
}

// checkFamilies checks the interface of the node's address, because flannel sends the pods' traffic of both families through it.
func checkFamilies(_ context.Context, m *machine) []finding.Finding {
	i, found := m.link()
	pods, err := config.CIDRs(m.h.Config.Cluster.PodNetworkCIDR)
	if !found || err != nil || m.kind == Join && m.joined() {
		return nil // NodeIP and Networks report it, the networks are unknown, or the node works
	}
	for _, pod := range pods {
		is4 := pod.Addr().Is4()
		if slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 && !p.Addr().IsLinkLocalUnicast() }) {
			continue
		}
		family := map[bool]string{true: "IPv4", false: "IPv6"}[is4]
		remedy := "give the interface such an address"
		if m.kind == Init {
			remedy += ", or remove the network from --pod-network-cidr and --service-cidr"
		}
		return []finding.Finding{finding.New("OCA-2010", fmt.Sprintf("The interface %s has no %s address", i.Name, family),
			fmt.Sprintf("the pod network %s needs one on the interface of the node's address %s, on every node", pod, m.h.Config.Node.IP), remedy)}
	}
	return nil
}

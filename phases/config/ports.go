// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"strconv"
)

// PortUse is a port, or a range of ports, that a node uses.
type PortUse struct {
	First, Last int    // equal for a single port
	Protocol    string // tcp or udp
	Of          string // the program
	// Reached says that other machines connect to it: a firewall must let it through.
	Reached bool
	// Listens says that a program of ours listens on it from the start: it must be free before.
	Listens bool
}

// String is the port as firewall-cmd takes it: 6443/tcp, 30000-32767/tcp.
func (p PortUse) String() string {
	if p.First == p.Last {
		return strconv.Itoa(p.First) + "/" + p.Protocol
	}
	return fmt.Sprintf("%d-%d/%s", p.First, p.Last, p.Protocol)
}

// Protocols are the protocols of IP beside TCP and UDP that other machines send to a node, as firewalld and ufw name them: VRRP between control-plane
// nodes that share a virtual address. A node that cannot hear the others takes the address, too. A join does not know yet whether there is one.
func Protocols(c *Config, controlPlane bool) []string {
	if controlPlane && c.Cluster.VirtualAddress != "" || c.Join.ControlPlane {
		return []string{"vrrp"}
	}
	return nil
}

// PodInterfaces are the interfaces through which flannel's pods reach their node: all that comes from them must pass a firewall.
func PodInterfaces() []string { return []string{"cni0", "flannel.1"} }

// hasEndpoint reports whether the cluster can have several control-plane nodes: its endpoint is not the address of this one.
func (c *Config) hasEndpoint() bool {
	host, _, err := SplitEndpoint(c.Cluster.ControlPlaneEndpoint, DefaultPort)
	return c.Join.ControlPlane || err == nil && host != "" && host != cmp.Or(c.Node.AdvertiseAddress, c.Node.IP)
}

// Ports are the ports that a node uses, by its roles. controlPlane is true for init; a configuration of join says it by itself.
func Ports(c *Config, controlPlane bool) []PortUse {
	controlPlane = controlPlane || c.Join.ControlPlane
	local := func(n int, of string) PortUse { return PortUse{n, n, "tcp", of, false, true} }
	open := func(first, last int, protocol, of string) PortUse {
		return PortUse{first, last, protocol, of, true, false}
	}
	list := []PortUse{
		{KubeletPort, KubeletPort, "tcp", "the kubelet", true, true},
		local(10248, "the kubelet's health check"), local(10249, "kube-proxy"), local(10256, "kube-proxy's health check"),
		open(30000, 32767, "tcp", "services of the cloud"),
	}
	if c.Addons.CNI == "" || c.Addons.CNI == "flannel" {
		list = append(list, open(8472, 8472, "udp", "the pod network"))
	}
	if controlPlane {
		api := cmp.Or(c.Node.BindPort, DefaultPort)
		list = append(list, PortUse{api, api, "tcp", "the API server", true, true})
		if c.Node.Depot != None {
			list = append(list, PortUse{DepotPort, DepotPort, "tcp", "the depot", true, true})
		}
		list = append(list,
			// Where there can be other control-plane nodes, they reach etcd, which lets in whom its own authority has signed.
			PortUse{2379, 2379, "tcp", "etcd", c.hasEndpoint(), true}, PortUse{2380, 2380, "tcp", "etcd's peers", c.hasEndpoint(), true}, local(2381, "etcd's health check"),
			local(10257, "the controller manager"), local(10259, "the scheduler"))
	}
	if controlPlane || c.Node.AsController {
		list = append(list, PortUse{443, 443, "tcp", "the web console", true, true})
		if c.Addons.Ingress == "traefik" {
			list = append(list, PortUse{80, 80, "tcp", "the ingress", true, true}, local(10254, "the ingress' health check"))
		}
	}
	if c.Node.EnableHostAgent {
		// The agents take the ports of the last three from their first one upwards; how many are opened is our choice.
		list = append(list, open(8885, 8885, "tcp", "the host agent"), open(48885, 48885, "tcp", "the image service of hosts"),
			open(6081, 6081, "udp", "networks between virtual machines"), open(5900, 6899, "tcp", "consoles of virtual machines"),
			open(4396, 4895, "tcp", "live migration"), open(7777, 8276, "tcp", "disks of virtual machines that are copied"))
	}
	return list
}

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
	// Reached means that other machines connect to the port: a firewall must let it through.
	Reached bool
	// Listens means that one of our programs listens on the port from the start: it must be free before.
	Listens bool
}

// String returns the port in the form of firewall-cmd: 6443/tcp, 30000-32767/tcp.
func (p PortUse) String() string {
	if p.First == p.Last {
		return strconv.Itoa(p.First) + "/" + p.Protocol
	}
	return fmt.Sprintf("%d-%d/%s", p.First, p.Last, p.Protocol)
}

// Protocols returns the IP protocols other than TCP and UDP that nodes receive, by their names in firewalld and ufw: VRRP between control-plane nodes
// that share a virtual address. A node that cannot hear the others claims the address as well. A joining node does not know yet whether there is one.
func Protocols(c *Config, controlPlane bool) []string {
	if controlPlane && c.Cluster.VirtualAddress != "" || c.Join.ControlPlane {
		return []string{"vrrp"}
	}
	return nil
}

// PodInterfaces returns the interfaces between flannel's pods and their node: a firewall must accept all their traffic.
func PodInterfaces() []string { return []string{"cni0", "flannel.1"} }

// hasEndpoint reports whether the cluster can have several control-plane nodes: its endpoint is not the address of this one.
func (c *Config) hasEndpoint() bool {
	host, _, err := SplitEndpoint(c.Cluster.ControlPlaneEndpoint, DefaultPort)
	return c.Join.ControlPlane || err == nil && host != "" && host != cmp.Or(c.Node.AdvertiseAddress, c.Node.IP)
}

// Ports returns the ports that a node uses, by its roles. controlPlane is true for init; a join configuration already says so.
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
			// Other control-plane nodes, if any, connect to etcd, which accepts only clients with a certificate from its own CA.
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
		// The agents use the last three ranges from the first port upwards; how many to open is our choice.
		list = append(list, open(8885, 8885, "tcp", "the host agent"), open(48885, 48885, "tcp", "the image service of hosts"),
			open(6081, 6081, "udp", "networks between virtual machines"), open(5900, 6899, "tcp", "consoles of virtual machines"),
			open(4396, 4895, "tcp", "live migration"), open(7777, 8276, "tcp", "disks of virtual machines that are copied"))
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0

package agentlog

import (
	"regexp"

	"yunion.io/x/ocadm/internal/finding"
)

const networkCreate = "climc network-create --server-type baremetal --gateway GATEWAY bcast0 NAME FIRST-IP LAST-IP MASK-LENGTH"

// networkRules are about the node's addresses and bridges, and the cloud's networks for them.
var networkRules = []Rule{
	{
		Code: "OCA-7130", Match: regexp.MustCompile(`try create network: find_matched == false`),
		What: "The cloud has no network for the address of the node",
		Cause: "a host registers in a network of type baremetal that contains its address and has the same mask; no such network exists, or the agent " +
			"uses the wrong interface",
		Remedy: networkCreate + "; if the agent uses the wrong interface, set listen_interface in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7131", Match: regexp.MustCompile(`find multiple match network \((?P<count>\d+)\) for access network`),
		What:   "The cloud has ${count} networks for the address of the node",
		Cause:  "networks of type baremetal overlap",
		Remedy: "climc network-list --details; then delete the superfluous ones with climc network-delete",
	},
	{
		Code: "OCA-7132", Match: regexp.MustCompile(`Fail to get network info: no networks`),
		What:   "The cloud has no network for another address of the node",
		Cause:  "a NIC in host.conf has an address for which the cloud has no network or several networks",
		Remedy: networkCreate + "; or remove the NIC from networks in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7133", Match: regexp.MustCompile(`No auto_alloc network found of wire: (?P<wire>[^,]+), netTypes`),
		What:   "Wire ${wire} has no network of type baremetal that allocates addresses",
		Cause:  "the host needs an address for a NIC on this wire, and no network of the wire has auto_alloc",
		Remedy: networkCreate + ", on this wire",
	},
	{
		Code: "OCA-7133", Match: regexp.MustCompile(`Out of IP address`),
		What:   "A network of the cloud has no free address",
		Cause:  "the host needs an address for a NIC, and the network is full",
		Remedy: "climc network-list --details shows used and total addresses; extend the network with climc network-update --start-ip --end-ip, or create another",
	},
	{
		Code: "OCA-7134", Match: regexp.MustCompile(`IP (?P<ip>[^\s",]+) not attach to wire`),
		What:   "The address ${ip} belongs to a different wire than its NIC",
		Cause:  "the networks of one NIC must be on one wire",
		Remedy: "climc wire-list; climc network-list --details; move the network of ${ip}, or correct networks in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7134", Match: regexp.MustCompile(`expect wire (?P<want>.*?) != assign wire (?P<got>[^\s:]+)`),
		What:   "A NIC is on wire ${got} in the cloud and on ${want} in host.conf",
		Cause:  "the networks of one NIC are on different wires",
		Remedy: "climc wire-list; correct networks in /etc/yunion/host.conf, or the wire of the network",
	},
	{
		Code: "OCA-7135", Match: regexp.MustCompile(`Ip (?P<ip>[^\s",]+) is not configure on (?P<nic>[^\s",]+)`),
		What:   "The address ${ip} is not on ${nic}",
		Cause:  "host.conf names a wrong NIC, or an address that the node no longer has",
		Remedy: "on the node: ip -br address; then correct networks in /etc/yunion/host.conf (NIC/BRIDGE/ADDRESS)",
	},
	{
		Code: "OCA-7135", Match: regexp.MustCompile(`init error.*[ :](?P<nic>[\w.-]+) not exists\b`),
		What:   "The interface ${nic} does not exist on the node",
		Cause:  "host.conf names a NIC that the node does not have",
		Remedy: "on the node: ip -br link; then correct networks in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7136", Match: regexp.MustCompile(`bridge (?P<bridge>[^\s",]+) exists, but not created by this driver`),
		What:   "${bridge} exists and is not an Open vSwitch bridge",
		Cause:  "a Linux bridge has the name that host.conf gives to the agent's bridge",
		Remedy: "name another bridge in networks of /etc/yunion/host.conf, or remove this one: ip -d link show ${bridge}",
	},
	{
		Code: "OCA-7137", Match: regexp.MustCompile(`bridge (?P<bridge>[^\s",]+) IP (?P<got>\S*) is not expected IP (?P<want>[^\s,]+)`),
		What:   "${bridge} has the address ${got}, and host.conf has ${want}",
		Cause:  "the address of the node was changed in only one of the two places",
		Remedy: "on the node: ip -br address show ${bridge}; then correct networks in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7137", Match: regexp.MustCompile(`interface (?P<nic>[^\s",]+) should have no (?:ipv6 )?address`),
		What:   "${nic} still has an address that belongs to its bridge",
		Cause:  "the operating system assigned the address to the NIC again after the agent had moved it to the bridge",
		Remedy: "on the node: ip address flush dev ${nic}; remove the address, and DHCP, from the configuration of ${nic}",
	},
	{
		Code: "OCA-7137", Match: regexp.MustCompile(`bridge (?P<bridge>[^\s",]+) \((?P<ip>\S+)\) shou?l?d have no ipv6 address`),
		What:   "${bridge} has the IPv6 address ${ip}, and host.conf names none",
		Cause:  "a router announced it, or a person assigned it, after the agent had made the bridge",
		Remedy: "append it to the entry of ${bridge} in networks of /etc/yunion/host.conf: NIC/${bridge}/ADDRESS/${ip}",
	},
	{
		Code: "OCA-7137", Match: regexp.MustCompile(`Neither (?P<nic>[^\s",]+) nor (?P<bridge>[^\s",]+) owner address (?P<ip>[^\s",]+)`),
		What:   "Neither ${nic} nor ${bridge} has the address ${ip}",
		Cause:  "host.conf names an address that the node does not have",
		Remedy: "on the node: ip -br address; then correct networks in /etc/yunion/host.conf, or assign the address to ${nic}",
	},
	{
		Code: "OCA-7138", Match: regexp.MustCompile(`Listen interface (?P<nic>[^\s",]+) master have no IP`),
		What:   "The listen interface ${nic} has no address",
		Cause:  "listen_interface names the wrong interface; after the agent has moved the address, it is on the bridge",
		Remedy: "set listen_interface in /etc/yunion/host.conf to the bridge (br0), or remove it",
	},
	{
		Code: "OCA-7138", Match: regexp.MustCompile(`No interface suitable to be master NIC`),
		What:   "No interface in host.conf is suitable for the cloud to reach the node",
		Cause:  "no bridge in networks has an address",
		Remedy: "on the node: ip -br address; then set networks and listen_interface in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7138", Match: regexp.MustCompile(`access nic ip\s+mask 0`),
		What:   "The interface through which the cloud reaches the node has no address",
		Cause:  "listen_interface is wrong, or the address was lost",
		Remedy: "on the node: ip -br address; then correct listen_interface and networks in /etc/yunion/host.conf",
	},
	{
		Code: "OCA-7139", Match: regexp.MustCompile(`dhcp client is enabled before host agent start`), Severity: finding.Warning,
		What:   "A DHCP client runs on a NIC of the node",
		Cause:  "it moves the address from the bridge back to the NIC when it renews its lease",
		Remedy: "give the NIC a static address and disable DHCP in the configuration of the operating system",
	},
}

// SPDX-License-Identifier: Apache-2.0

package agentlog

import (
	"regexp"

	"yunion.io/x/ocadm/internal/finding"
)

// identityRules are about how the cloud identifies the node.
var identityRules = []Rule{
	{
		Code: "OCA-7140", Match: regexp.MustCompile(`duplicate manager_uri (?P<uri>[^\s"]+)`),
		What:   "The cloud has another host with the address ${uri}",
		Cause:  "the MAC address of the node has changed (a bond, a new NIC, a reinstallation) and its earlier record still exists",
		Remedy: "climc host-list --details; then climc host-remove-netif and host-add-netif for the new MAC address, or climc host-delete of the old record",
	},
	{
		Code: "OCA-7141", Match: regexp.MustCompile(`(?:duplicate access_mac|find multiple hosts match access mac) (?P<mac>[^\s",]+)`),
		What: "The cloud has another host with the MAC address ${mac}",
		Cause: "machines were cloned with their MAC address; or a VLAN interface and its parent, which share one address, are both in networks of " +
			"host.conf, and the agent was restarted",
		Remedy: "give each machine its own address: ip link set dev NIC address MAC; for VLANs keep one of the two in networks; climc host-list --details",
	},
	{
		Code: "OCA-7142", Match: regexp.MustCompile(`name starts with letter, and contains letter, number and - only`),
		What:   "The name of the node cannot be the name of a host",
		Cause:  "it must start with a letter and contain only letters, digits and hyphens",
		Remedy: "set hostname: NAME in /etc/yunion/host.conf; or rename the machine with hostnamectl before it joins",
	},
	{
		Code: "OCA-7143", Match: regexp.MustCompile(`dev addr (?P<addr>[^\s",]+) regist(?:er)?ed`),
		What:   "A device with the address ${addr} is registered already",
		Cause:  "a USB device was plugged in elsewhere, or two devices report the same address",
		Remedy: "climc isolated-device-list --details; climc isolated-device-delete ID; or set disable_usb: true in /etc/yunion/host_local.conf",
	},
	{
		Code: "OCA-7144", Match: regexp.MustCompile(`failed get k8s master nodes`),
		What:   "host-health does not find a control plane",
		Cause:  "no node has the label node-role.kubernetes.io/master, or component region is not allowed to list nodes",
		Remedy: "kubectl get nodes -l node-role.kubernetes.io/master; kubectl label node NODE node-role.kubernetes.io/master=",
	},
	{
		Code: "OCA-7145", Match: regexp.MustCompile(`Configuration file (?P<file>[^\s",]+) not exist`), Severity: finding.Warning,
		What:   "${file} is missing on the node",
		Cause:  "the agent has no configuration for its node and guesses the networks",
		Remedy: "on the node: ocadm join phase compute --enable-host-agent",
	},
}

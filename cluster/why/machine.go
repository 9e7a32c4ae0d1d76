// SPDX-License-Identifier: Apache-2.0

package why

import (
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

// Ready is what a part of a machine is that works.
const Ready = "ready"

// Machine is a node as it looks from within.
type Machine struct {
	Node string `json:"node"`
	// ControlPlane is true if it has the manifest of an API server.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Units are states of systemd, such as "active", by the name of the unit; none where only the journals could be read.
	Units map[string]string `json:"units,omitempty"`
	// Journals are the last lines of units, by their names.
	Journals map[string][]string `json:"journals,omitempty"`
	// StaticPods are the last lines of the containers of the control plane, by their names.
	StaticPods map[string][]string `json:"staticPods,omitempty"`
	// Certificates are those below /etc/kubernetes and the kubelet's own.
	Certificates []Certificate `json:"certificates,omitempty"`
	// APIServer is why the API server of a control-plane node is not ready, Ready if it is, "" if it was not asked.
	APIServer string `json:"apiServer,omitempty"`
	// VirtualAddress is what a control-plane node with keepalived sees of the virtual address; nil without one.
	VirtualAddress *VirtualAddress `json:"virtualAddress,omitempty"`
	// Findings are those of "ocadm node doctor" if the machine has files of a compute node.
	Findings finding.List `json:"findings,omitempty"`
}

// Certificate is a file with a certificate, and when that ends.
type Certificate struct {
	File     string    `json:"file"`
	NotAfter time.Time `json:"notAfter"`
}

// VirtualAddress is who has the virtual address of the control plane, seen from one of its nodes.
type VirtualAddress struct {
	Address string `json:"address"`
	// Here reports whether the node itself has it.
	Here bool `json:"here,omitempty"`
	// Others are the other machines in the network that answer for it.
	Others []Claimant `json:"others,omitempty"`
	// Unseen is why the network could not be asked, "" if it was.
	Unseen string `json:"unseen,omitempty"`
	// Keepalived is Ready, or why keepalived does not run here; "" if that is not known.
	Keepalived string `json:"keepalived,omitempty"`
}

// Claimant is a machine that answers for the virtual address.
type Claimant struct {
	MAC string `json:"mac"`
	// Peer is the address of the control-plane node that it is, "" if it is none.
	Peer string `json:"peer,omitempty"`
}

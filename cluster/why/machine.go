// SPDX-License-Identifier: Apache-2.0

package why

import (
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

// Ready is the value for a part of a machine that works.
const Ready = "ready"

// Machine describes a node as seen from within.
type Machine struct {
	Node string `json:"node"`
	// ControlPlane is true if it has the manifest of an API server.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Units maps systemd units to their states, such as "active"; nil if only the journals could be read.
	Units map[string]string `json:"units,omitempty"`
	// Journals holds the last lines of units, by name.
	Journals map[string][]string `json:"journals,omitempty"`
	// StaticPods holds the last log lines of the control plane's containers, by name.
	StaticPods map[string][]string `json:"staticPods,omitempty"`
	// Certificates holds those below /etc/kubernetes and the kubelet's.
	Certificates []Certificate `json:"certificates,omitempty"`
	// APIServer explains why the API server of a control-plane node is not ready; Ready if it is, "" if it was not asked.
	APIServer string `json:"apiServer,omitempty"`
	// VirtualAddress is the virtual address as seen by a control-plane node with keepalived; nil without one.
	VirtualAddress *VirtualAddress `json:"virtualAddress,omitempty"`
	// EtcdDatabase is the problem of the database of an etcd that is not running, "" if there is none.
	EtcdDatabase string `json:"etcdDatabase,omitempty"`
	// EtcdSnapshots describes those of a control-plane node with its own etcd.
	EtcdSnapshots *EtcdSnapshots `json:"etcdSnapshots,omitempty"`
	// Stopped lists the static pods of the control plane whose manifests ocadm moved away. Unfinished is the command that did so, nil if unknown.
	Stopped    []string    `json:"stopped,omitempty"`
	Unfinished *Unfinished `json:"unfinished,omitempty"`
	// Address is the configured node address, "" if the kubelet chooses it. Addresses are those of the machine, Uplink that of its default route.
	Address   string   `json:"address,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Uplink    string   `json:"uplink,omitempty"`
	// Tunnels are those of the pod network to other nodes, as tested from here.
	Tunnels []Tunnel `json:"tunnels,omitempty"`
	// Findings are those of "ocadm node doctor" if the machine has files of a compute node.
	Findings finding.List `json:"findings,omitempty"`
}

// Tunnel is a connection through the pod network to another node.
type Tunnel struct {
	// To is the address of the other node in the pod network.
	To string `json:"to"`
	// Problem explains why there was no reply, "" if there was.
	Problem string `json:"problem,omitempty"`
}

// Certificate is a certificate file with its expiry.
type Certificate struct {
	File     string    `json:"file"`
	NotAfter time.Time `json:"notAfter"`
}

// VirtualAddress describes who has the virtual address of the control plane, as seen from one of its nodes.
type VirtualAddress struct {
	Address string `json:"address"`
	// Here reports whether the node itself has it.
	Here bool `json:"here,omitempty"`
	// Others lists the other machines in the network that answer for it.
	Others []Claimant `json:"others,omitempty"`
	// Unseen explains why the network could not be queried, "" if it was.
	Unseen string `json:"unseen,omitempty"`
	// Keepalived is Ready, or explains why keepalived does not run here; "" if unknown.
	Keepalived string `json:"keepalived,omitempty"`
}

// Claimant is a machine that answers for the virtual address.
type Claimant struct {
	MAC string `json:"mac"`
	// Peer is the address of the claimant if it is a control-plane node, otherwise "".
	Peer string `json:"peer,omitempty"`
}

// Unfinished is an ocadm command that was interrupted, or still runs.
type Unfinished struct {
	// Command continues it, Back undoes it; "" if not possible.
	Command string `json:"command"`
	Back    string `json:"back,omitempty"`
	// Last is when it last recorded a step.
	Last time.Time `json:"last"`
	// AtWork is the PID of ocadm on the machine, 0 if it does not run.
	AtWork int `json:"atWork,omitempty"`
}

// StaleSnapshot is the maximum age of the newest etcd snapshot: one is taken every hour.
const StaleSnapshot = 3 * time.Hour

// EtcdSnapshots describes the etcd snapshots that a control-plane node saves every hour.
type EtcdSnapshots struct {
	// Since is when the node began to save them, Last the time of the newest, zero if there is none.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last,omitzero"`
	// Problem explains why the last one was not saved, "" if it was or that is unknown.
	Problem string `json:"problem,omitempty"`
}

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
	// EtcdDatabase is what is wrong with the database of an etcd that does not run; empty if nothing is.
	EtcdDatabase string `json:"etcdDatabase,omitempty"`
	// EtcdSnapshots are those of a control-plane node with an etcd of its own.
	EtcdSnapshots *EtcdSnapshots `json:"etcdSnapshots,omitempty"`
	// Stopped are the static pods of the control plane whose manifests ocadm moved away, Unfinished the command that did so, nil if that is not known.
	Stopped    []string    `json:"stopped,omitempty"`
	Unfinished *Unfinished `json:"unfinished,omitempty"`
	// Address is that of the node in its settings, "" if the kubelet chooses it; Addresses are those of the machine, that of the default route first.
	Address   string   `json:"address,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Tunnels are those of the pod network to other nodes, as they work from here.
	Tunnels []Tunnel `json:"tunnels,omitempty"`
	// Findings are those of "ocadm node doctor" if the machine has files of a compute node.
	Findings finding.List `json:"findings,omitempty"`
}

// Tunnel is a way through the pod network to another node.
type Tunnel struct {
	// To is the address of the other node in the pod network.
	To string `json:"to"`
	// Problem is why nothing came back, "" if something did.
	Problem string `json:"problem,omitempty"`
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

// Unfinished is a command of ocadm that was cut off, or is at work.
type Unfinished struct {
	// Command continues it, Back takes it back; "" if nothing does.
	Command string `json:"command"`
	Back    string `json:"back,omitempty"`
	// Last is when it last noted a step.
	Last time.Time `json:"last"`
	// AtWork is the process of ocadm on the machine, 0 if none runs.
	AtWork int `json:"atWork,omitempty"`
}

// StaleSnapshot is how old the newest snapshot of etcd may be: one is taken every hour.
const StaleSnapshot = 3 * time.Hour

// EtcdSnapshots are the snapshots of etcd that a control-plane node saves every hour.
type EtcdSnapshots struct {
	// Since is when the node began to save them, Last the time of the newest, the zero time without one.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last,omitzero"`
	// Problem is why the last one was not saved, "" if it was or that is not known.
	Problem string `json:"problem,omitempty"`
}

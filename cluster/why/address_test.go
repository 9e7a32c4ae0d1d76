// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// keepalived adds a keepalived pod with its log.
func (s *Snapshot) keepalived(node string, lines ...string) {
	p := s.addPod("kube-system", "ocadm-vip-"+node, node, map[string]string{"app": "ocadm-vip"})
	s.Logs = append(s.Logs, Log{Namespace: p.Namespace, Pod: p.Name, Container: "keepalived", Lines: lines})
}

// Without access to the network, the logs of keepalived show that two nodes hold the address. Only the last state counts, and lost nodes do not.
func TestHoldersByLogs(t *testing.T) {
	const master, backup = "Thu Nov 26 10:00:00 2026: (ocadm) Entering MASTER STATE", "(ocadm) Entering BACKUP STATE"
	for name, c := range map[string]struct {
		change func(*Snapshot)
		twice  bool
	}{
		"one": {func(s *Snapshot) { s.keepalived("n1", backup, master); s.keepalived("n2", master, backup) }, false},
		"two": {func(s *Snapshot) { s.keepalived("n1", backup, master); s.keepalived("n2", master, "VRRP_Script") }, true},
		"two of move": {func(s *Snapshot) {
			s.keepalived("n1", master)
			s.keepalived("n2", strings.ReplaceAll(master, "ocadm", "ocadm-2"))
		}, false},
		"one is ill": {func(s *Snapshot) {
			s.keepalived("n1", master)
			s.keepalived("n2", master)
			s.ill("ocadm-vip-n2", "CrashLoopBackOff", "")
		}, false},
	} {
		s := healthy(t)
		c.change(s)
		r, _ := Diagnose(s, "")
		if twice := r.Cause != nil && r.Cause.ID == "virtual-address-twice"; twice != c.twice {
			t.Errorf("%s: %+v", name, r.Cause)
		}
	}
}

// TestNewAddress: a node that has lost its network still has addresses of the pod network, to which it must not move.
func TestNewAddress(t *testing.T) {
	for uplink, want := range map[string]string{"10.0.0.57": "on n1: ocadm move 10.0.0.57", "": "a fixed lease or none"} {
		s := healthy(t)
		s.Machines[0].Address, s.Machines[0].Addresses, s.Machines[0].Uplink = "10.0.0.1", []string{"10.244.0.0", "10.244.0.1"}, uplink
		r, _ := Diagnose(s, "")
		if r.Cause == nil || r.Cause.ID != "node-address" || !strings.HasSuffix(r.Cause.Remedy, want) {
			t.Errorf("%q: %+v", uplink, r.Cause)
		}
	}
}

// No problem of the virtual address: one holder, no holder without a ready API server, and a network that could not be queried.
func TestVirtualAddressIsWell(t *testing.T) {
	for name, v := range map[string]VirtualAddress{"here": {Here: true, Keepalived: Ready}, "elsewhere": {Others: []Claimant{{MAC: "x", Peer: "10.0.0.2"}}, Keepalived: Ready},
		"not seen": {Unseen: "it is not an Ethernet interface"}} {
		s := healthy(t)
		s.virtualAddress(v)
		if r, _ := Diagnose(s, ""); !r.Healthy || r.Cause != nil {
			t.Errorf("%s: %+v", name, r.Cause)
		}
	}
	s := healthy(t)
	machines := s.Machines
	s.refuse("OCA-4203")
	s.Machines = machines
	s.virtualAddress(VirtualAddress{})
	s.Machines[0].APIServer = "https://10.0.0.1:6443/readyz refuses connections"
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "api-unreachable" || len(r.Cause.Evidence) != 1 || !strings.Contains(r.Cause.Evidence[0], "n1") {
		t.Errorf("no API server is ready: %+v", r.Cause)
	}
}

// A virtual address without a holder explains the silent endpoint.
func TestSilentEndpointFollows(t *testing.T) {
	s := healthy(t)
	for _, c := range addressed() {
		if c.id == "virtual-address-nowhere" {
			c.change(s)
		}
	}
	r, _ := Diagnose(s, "")
	var ids []string
	for _, x := range r.Consequences {
		ids = append(ids, x.ID)
	}
	if got := strings.Join(ids, " "); got != "endpoint-silent node-lost" {
		t.Errorf("%s, others %+v", got, r.Others)
	}
}

// The finding of a stopped control plane names the commands to continue and to undo; while a command runs, it says to wait.
func TestStopped(t *testing.T) {
	for name, c := range map[string]struct {
		u    *Unfinished
		next string
	}{
		"cut off":   {&Unfinished{Command: "ocadm etcd restore --from-data"}, "on n1: ocadm etcd restore --from-data"},
		"with back": {&Unfinished{Command: "ocadm move 10.0.0.2", Back: "ocadm move 10.0.0.1"}, "on n1: ocadm move 10.0.0.2; or undo it: ocadm move 10.0.0.1"},
		"at work":   {&Unfinished{Command: "ocadm etcd rejoin", AtWork: 77}, "on n1: wait for it: ps -fp 77"},
		"not known": {nil, "on n1: ocadm etcd status; if no ocadm is running: mv /etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/*.yaml /etc/kubernetes/manifests/"},
	} {
		s := healthy(t)
		s.Machines[0].Stopped, s.Machines[0].Unfinished = []string{"etcd"}, c.u
		r, _ := Diagnose(s, "")
		if r.Cause == nil || r.Cause.ID != "control-plane-stopped" || r.Cause.Remedy != c.next {
			t.Errorf("%s: %+v", name, r.Cause)
		}
	}
}

// A node that has just begun to save snapshots needs none yet; a clock that was ahead makes none old.
func TestSnapshotsAreWell(t *testing.T) {
	for name, of := range map[string]func(s *Snapshot) EtcdSnapshots{
		"new": func(s *Snapshot) EtcdSnapshots { return EtcdSnapshots{Since: s.Time.Add(-time.Hour)} },
		"recent": func(s *Snapshot) EtcdSnapshots {
			return EtcdSnapshots{Last: s.Time.Add(-time.Hour), Problem: "etcd starts"}
		},
		"in future": func(s *Snapshot) EtcdSnapshots { return EtcdSnapshots{Last: s.Time.Add(time.Hour)} },
	} {
		s := healthy(t)
		kept := of(s)
		s.Machines[0].EtcdSnapshots = &kept
		if r, _ := Diagnose(s, ""); r.Cause != nil {
			t.Errorf("%s: %+v", name, r.Cause)
		}
	}
	s := healthy(t)
	s.Machines[0].EtcdSnapshots = &EtcdSnapshots{}
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.What != "There is no snapshot of etcd on n1" || !r.Healthy {
		t.Errorf("none: %+v", r)
	}
}

// addressed returns the provocations of causes about addresses, and about machines inspected from within.
func addressed() []provocation {
	day := 24 * time.Hour
	return []provocation{
		{"virtual-address-nowhere", func(s *Snapshot) {
			s.Silent = "dial tcp 10.0.0.100:6443: connect: no route to host"
			s.virtualAddress(VirtualAddress{Keepalived: "its container does not run"})
			s.ready("n3", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.") // a worker uses the virtual address
		}},
		{"virtual-address-twice", func(s *Snapshot) {
			s.virtualAddress(VirtualAddress{Here: true, Others: []Claimant{{MAC: "52:54:00:00:00:02", Peer: "10.0.0.2"}}})
		}},
		{"virtual-address-foreign", func(s *Snapshot) {
			s.virtualAddress(VirtualAddress{Here: true, Others: []Claimant{{MAC: "52:54:00:00:00:99"}}})
		}},
		{"endpoint-silent", func(s *Snapshot) { s.Silent = "dial tcp 10.0.0.100:6443: i/o timeout" }},
		{"control-plane-stopped", func(s *Snapshot) {
			machines := s.Machines
			s.refuse("OCA-4203")
			s.Machines = machines
			s.Machines[0].Stopped = []string{"etcd", "kube-apiserver"}
			s.Machines[0].Unfinished = &Unfinished{Command: "ocadm move 10.0.0.2", Back: "ocadm move 10.0.0.1", Last: s.Time.Add(-time.Hour)}
		}},
		{"node-address", func(s *Snapshot) {
			machines := s.Machines
			s.refuse("OCA-4203")
			s.Machines = machines
			s.Machines[0].Address, s.Machines[0].Addresses = "10.0.0.1", []string{"10.0.0.57", "10.244.0.1"}
			s.Machines[0].Uplink = "10.0.0.57"
			s.Machines[0].StaticPods = map[string][]string{"etcd": {`"failed to start etcd: listen tcp 10.0.0.1:2380: bind: cannot assign requested address"`}}
			s.machine("kubelet", "activating", "exited") // it follows
		}},
		{"etcd-snapshots-old", func(s *Snapshot) {
			s.Machines[0].EtcdSnapshots = &EtcdSnapshots{Since: s.Time.Add(-30 * day), Last: s.Time.Add(-5 * time.Hour), Problem: "OCA-4148: There is no space for a snapshot of etcd"}
		}},
	}
}

// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"
	"testing"
	"time"
)

// keepalived adds a pod of keepalived with what it logged.
func (s *Snapshot) keepalived(node string, lines ...string) {
	p := s.addPod("kube-system", "ocadm-vip-"+node, node, map[string]string{"app": "ocadm-vip"})
	s.Logs = append(s.Logs, Log{Namespace: p.Namespace, Pod: p.Name, Container: "keepalived", Lines: lines})
}

// Without a look at the network, the logs of keepalived tell that two nodes hold the address. Only the last state counts, and not that of a node that is lost.
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

// What is no fault of the virtual address: one holder, none while no API server is ready, and a network that could not be asked.
func TestVirtualAddressIsWell(t *testing.T) {
	for name, v := range map[string]VirtualAddress{"here": {Here: true, Keepalived: Ready}, "elsewhere": {Others: []Claimant{{MAC: "x", Peer: "10.0.0.2"}}, Keepalived: Ready},
		"not seen": {Unseen: "it is no Ethernet"}} {
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

// The endpoint that is silent is explained by the virtual address that nobody has.
func TestSilentEndpointFollows(t *testing.T) {
	s := healthy(t)
	for _, c := range provocations() {
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

// The finding of a stopped control plane has the command that continues, and the way back; one that is at work is waited for.
func TestStopped(t *testing.T) {
	for name, c := range map[string]struct {
		u    *Unfinished
		next string
	}{
		"cut off":   {&Unfinished{Command: "ocadm etcd restore --from-data"}, "on n1: ocadm etcd restore --from-data"},
		"with back": {&Unfinished{Command: "ocadm move 10.0.0.2", Back: "ocadm move 10.0.0.1"}, "on n1: ocadm move 10.0.0.2; or take it back: ocadm move 10.0.0.1"},
		"at work":   {&Unfinished{Command: "ocadm etcd rejoin", AtWork: 77}, "on n1: wait for it: ps -fp 77"},
		"not known": {nil, "on n1: ocadm etcd status; if no ocadm is at work: mv /etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/*.yaml /etc/kubernetes/manifests/"},
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

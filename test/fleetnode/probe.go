// SPDX-License-Identifier: Apache-2.0

package fleetnode

import (
	"encoding/json"
	"fmt"
	"sync"

	"yunion.io/x/ocadm/internal/probe"
	"yunion.io/x/ocadm/test/sshserver"
)

const mtu = 1500

// wires is the network between the machines of each run: who listens, and what was sent to whom.
var wires = struct {
	sync.Mutex
	machines map[string]*Machine
	sent     map[string][]probe.Arrival
}{machines: map[string]*Machine{}, sent: map[string][]probe.Arrival{}}

// probe plays ocadm machine probe. All packets arrive except those that the receiver loses.
func (m *Machine) probe(c *sshserver.Call) int {
	in, out := json.NewDecoder(c.Stdin), json.NewEncoder(c.Stdout)
	var l probe.Listen
	if err := in.Decode(&l); err != nil {
		fmt.Fprint(c.Stderr, err)
		return 1
	}
	key := func(name string) string { return l.Run + " " + name }
	wires.Lock()
	wires.machines[key(l.Name)] = m
	wires.Unlock()
	_ = out.Encode(probe.Ready{Listening: l.TCP, Wire: true})
	var to probe.Targets
	if err := in.Decode(&to); err == nil {
		var r probe.Report
		for _, t := range to.To {
			r.Sent = append(r.Sent, m.send(key(t.Name), l.Name, t))
		}
		_ = out.Encode(r)
		_ = in.Decode(&struct{}{}) // the end
	}
	wires.Lock()
	defer wires.Unlock()
	_ = out.Encode(probe.Arrived{Packets: wires.sent[key(l.Name)]})
	return 0
}

// send delivers to another machine the packets that it does not lose.
func (m *Machine) send(to, from string, t probe.Target) probe.Sent {
	wires.Lock()
	defer wires.Unlock()
	other := wires.machines[to]
	other.mu.Lock()
	loses := other.loses
	other.mu.Unlock()
	comes := func(port, size int) bool { return loses == nil || !loses(from, port, size) }
	s := probe.Sent{To: t.Name, TCP: map[int]string{}, MTU: mtu}
	for _, p := range t.TCP {
		if s.TCP[p] = probe.Silent; comes(p, 0) {
			s.TCP[p] = probe.Connected
		}
	}
	for _, p := range t.UDP {
		for _, size := range []int{probe.Small, 1400, mtu} { //nolint:mnd // the MTU of a tunnel
			if comes(p, size) {
				wires.sent[to] = append(wires.sent[to], probe.Arrival{From: from, Port: p, Size: size, Passed: true})
			}
		}
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// smallMTU is the MTU of the network from and to a machine, as with a tunnel on the way.
const smallMTU = 1400

// route changes the route of the lab's network. With " mtu N" appended, TCP uses that MTU, as a network with a small MTU clamps the MSS. The probe of the
// comparison ignores it; the check of one machine (OCA-2014) reports it, too.
const route = `ip route change $(ip -4 -o route show dev eth0 proto kernel | head -n 1 | sed 's/ mtu.*//') dev eth0 proto kernel`

// machinePairs checks machines that do not fit together. All pairs are named together, and nothing is changed.
func (s *suite) machinePairs(t *testing.T) {
	ctx := t.Context()
	on := func(node int, script string) {
		t.Helper()
		if out, err := s.On(ctx, node, "sh", "-ec", script); err != nil {
			t.Fatalf("%s on node %d: %v: %s", script, node, err, out)
		}
	}
	file := s.file(t, 2, 3, 4, 5)
	id, err := s.On(ctx, 3, "cat", "/etc/machine-id")
	require.NoError(t, err)
	firewall := " INPUT -p udp --dport 8472 -s " + s.Lab.Node(3).Address.String() + " -j DROP"
	on(2, route+" mtu 1400")
	require.NoError(t, s.Lab.Node(2).PathMTU(smallMTU))
	on(4, "cp -p /etc/machine-id /run/machine-id && echo "+strings.TrimSpace(id)+" >/etc/machine-id")
	on(5, "iptables -I"+firewall)
	s.precheck(t, file, "node2: Large packets do not reach the control plane",
		"OCA-7642 node4 and node3 have the same machine id",
		"OCA-7648 Nothing arrives from node3 at node5 on UDP 8472 (pod network)",
		"OCA-7649 Packets of more than 1400 bytes do not arrive from node1, node3, node4, node5 at node2",
		"OCA-7649 Packets of more than 1400 bytes do not arrive from node2 at node1, node3, node4, node5")
	if out, err := s.Kubectl(ctx, "get", "nodes", "-o", "name"); err != nil || strings.TrimSpace(out) != "node/node1" {
		t.Errorf("nodes %q, %v", out, err)
	}
	require.NoError(t, s.Lab.Node(2).PathMTU(1500))
	on(2, route)
	on(4, "cp -p /run/machine-id /etc/machine-id && rm /run/machine-id")
	on(5, "iptables -D"+firewall)
	for _, node := range []int{2, 3, 4, 5} {
		on(node, "rm -r /root/.ocadm") // what the download of the checks leaves
		compare(t, s.Lab.Node(node).Name+" after its precheck", s.fresh[node], s.look(t, node))
	}
	s.precheck(t, file, "")
}

// precheck checks the machines of a file and the findings of their comparison. alone is the name of the only machine that has an error by itself, and the error;
// "" if none has.
func (s *suite) precheck(t *testing.T, file, alone string, want ...string) {
	t.Helper()
	out, err := s.On(t.Context(), 1, scenario.Ocadm, "machine", "precheck", "-f", file, "-o", "json")
	if (err == nil) != (len(want) == 0) {
		t.Errorf("the precheck: %v", err)
	}
	var all []struct {
		Machine, Message, Ways string
		Passed                 bool
		Findings               []struct{ Code, What string }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 5 {
		t.Fatalf("%s: %v", out, err)
	}
	for _, one := range all {
		if one.Machine != "" {
			bad, why, _ := strings.Cut(alone, ": ")
			if one.Passed == (one.Machine == bad) || !one.Passed && !strings.Contains(one.Message, why) {
				t.Errorf("%s: passed %t: %s", one.Machine, one.Passed, one.Message)
			}
			continue
		}
		t.Log(one.Ways)
		var got []string
		for _, f := range one.Findings {
			got = append(got, f.Code+" "+f.What)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || one.Passed != (len(want) == 0) || !strings.HasPrefix(one.Ways, "20 connections between 5 machines") {
			t.Errorf("%q, want %q; %s %s", got, want, one.Ways, one.Message)
		}
	}
}

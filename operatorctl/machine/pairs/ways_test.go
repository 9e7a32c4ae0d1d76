// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/probe"
	"yunion.io/x/ocadm/phases/config"
)

// TestPorts checks that the installer opens each port on such a machine for others.
func TestPorts(t *testing.T) {
	for _, m := range []Member{{}, {ControlPlane: true}, {Compute: true}} {
		c := &config.Config{}
		c.Node.EnableHostAgent, c.Cluster.ControlPlaneEndpoint = m.Compute, "cluster.example.org"
		for _, p := range ports(Member{ControlPlane: true, Compute: true}, m) {
			if !slices.ContainsFunc(config.Ports(c, m.ControlPlane), func(u config.PortUse) bool {
				return u.Reached && u.First <= p.number && p.number <= u.Last && (u.Protocol == "udp") == p.udp
			}) {
				t.Errorf("%+v: the installer does not open %s", m, p)
			}
		}
	}
	if got := ports(Member{}, Member{ControlPlane: true, APIPort: 7443}); got[1].number != 7443 {
		t.Errorf("%v", got)
	}
}

func members(n int, change ...func(int, *Member)) []Member {
	var out []Member
	for i := range n {
		m := Member{Name: fmt.Sprintf("m%03d", i), Address: fmt.Sprint(i)}
		for _, c := range change {
			c(i, &m)
		}
		out = append(out, m)
	}
	return out
}

// TestPlan checks that all pairs of a few machines are tested, of many only neighbours and control planes, and no paths between joined ones.
func TestPlan(t *testing.T) {
	hub := func(n int) func(int, *Member) { return func(i int, m *Member) { m.ControlPlane = i < n } }
	joined := func(of ...int) func(int, *Member) {
		return func(i int, m *Member) { m.Joined = slices.Contains(of, i) }
	}
	for name, c := range map[string]struct {
		all  []Member
		ways int
	}{
		"one":                   {members(1), 0},
		"two":                   {members(2), 2},
		"two that have joined":  {members(2, joined(0, 1)), 0},
		"one joins two":         {members(3, joined(0, 1)), 4},
		"the largest mesh":      {members(maxMesh, hub(3)), maxMesh * (maxMesh - 1)},
		"a chain":               {members(13), 2 * 12},
		"a chain and a hub":     {members(100, hub(1)), 2*98 + 2*99},
		"three hubs and a half": {members(100, hub(4)), 2*96 + 2*3*97 + 6},
		"a thousand":            {members(1000, hub(3)), 2*996 + 2*3*997 + 6},
	} {
		seen, longest := map[way]bool{}, 0
		for _, g := range plan(c.all) {
			longest = max(longest, len(g.members))
			for _, w := range g.ways {
				seen[w] = true
				if !slices.Contains(g.members, w.from) || !slices.Contains(g.members, w.to) || w.from == w.to {
					t.Errorf("%s: %v is not of its group", name, w)
				}
			}
		}
		if len(seen) != c.ways || longest > groupSize+maxHubs {
			t.Errorf("%s: %d ways in groups of %d", name, len(seen), longest)
		}
		if text := said(c.all, plan(c.all)); !strings.HasPrefix(text, fmt.Sprintf("%d connections between %d machines", c.ways, len(c.all))) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// network simulates probes. It holds the losses by "from>to port" or "from>to port size".
type network struct {
	lost map[string]string
	mtu  int
	// broken lists machines without a probe, taken the ports on which something else listens.
	broken, taken map[string]bool
}

func (n *network) run(name string) func(context.Context, io.Reader, func(string)) error {
	return func(_ context.Context, in io.Reader, onLine func(string)) error {
		if n.broken[name] {
			return errors.New("it has no ocadm")
		}
		say := func(v any) {
			text, _ := json.Marshal(v)
			onLine(string(text))
		}
		d := json.NewDecoder(in)
		var l probe.Listen
		if err := d.Decode(&l); err != nil {
			return err
		}
		ready := probe.Ready{Wire: true}
		for _, p := range l.TCP {
			if n.taken[fmt.Sprint(name, " ", p)] {
				ready.Taken = append(ready.Taken, p)
			} else {
				ready.Listening = append(ready.Listening, p)
			}
		}
		say(ready)
		var to probe.Targets
		if err := d.Decode(&to); err != nil {
			return err
		}
		var r probe.Report
		for _, t := range to.To {
			s := probe.Sent{To: t.Name, TCP: map[int]string{}, UDP: map[int]string{}, MTU: n.mtu}
			for _, p := range t.TCP {
				s.TCP[p] = probe.Connected
				if why, lost := n.lost[fmt.Sprintf("%s>%s %d", name, t.Name, p)]; lost {
					s.TCP[p] = why
				}
			}
			for _, p := range t.UDP {
				if why := n.lost[fmt.Sprintf("%s>%s %d", name, t.Name, p)]; strings.HasPrefix(why, "send: ") {
					s.UDP[p] = strings.TrimPrefix(why, "send: ")
				}
			}
			r.Sent = append(r.Sent, s)
		}
		say(r)
		_ = d.Decode(&struct{}{})
		var a probe.Arrived
		for _, from := range []string{"a", "b", "c", "d"} {
			for _, p := range []int{podNetwork, 6081} {
				why, lost := n.lost[fmt.Sprintf("%s>%s %d", from, name, p)]
				if from == name || lost && why != "firewall" && why != "large" {
					continue
				}
				for _, size := range []int{probe.Small, 1400, n.mtu} {
					if size <= 1400 || why != "large" {
						a.Packets = append(a.Packets, probe.Arrival{From: from, Port: p, Size: size, Passed: why != "firewall"})
					}
				}
			}
		}
		say(a)
		return nil
	}
}

// TestTry checks that losses between machines are found, on the path or at either end, once for related ones, and reported for the right machine.
func TestTry(t *testing.T) {
	cp := func(i int, m *Member) { m.Name, m.ControlPlane = string(rune('a'+i)), i == 0 }
	for name, c := range map[string]struct {
		network network
		change  func(int, *Member)
		want    map[string][]string
	}{
		"all is well": {network{}, nil, nil},
		"UDP is lost one way": {network{lost: map[string]string{"b>c 8472": "way"}}, nil,
			map[string][]string{"c": {"error OCA-7648 Nothing arrives from b at c on UDP 8472 (pod network); packets do not arrive"}}},
		"a firewall lets nothing in": {network{lost: map[string]string{"a>c 8472": "firewall", "b>c 8472": "firewall", "d>c 8472": "firewall"}}, nil,
			map[string][]string{"c": {"error OCA-7648 Nothing arrives from a, b, d at c on UDP 8472 (pod network); packets arrive, but the receiver's firewall drops them"}}},
		"firewalld, which join opens": {network{lost: map[string]string{"a>c 8472": "firewall", "a>c 10250": probe.Silent}},
			func(i int, m *Member) { m.Firewalld = i == 2 }, nil},
		"firewalld of a node": {network{lost: map[string]string{"b>a 8472": "firewall"}}, func(i int, m *Member) { m.Firewalld, m.Joined = i == 0, i == 0 },
			map[string][]string{"b": {"error OCA-7648 Nothing arrives from b at a on UDP 8472 (pod network); packets arrive, but the receiver's firewall drops them"}}},
		"nothing goes out": {network{lost: map[string]string{"d>a 8472": "send: operation not permitted", "d>b 8472": "send: operation not permitted",
			"d>c 8472": "send: operation not permitted"}}, nil,
			map[string][]string{"d": {"error OCA-7648 Nothing arrives from d at a, b, c on UDP 8472 (pod network); the sender cannot send: operation not permitted"}}},
		"a small MTU on the way": {network{mtu: 1500, lost: map[string]string{"b>c 8472": "large", "c>b 8472": "large"}}, nil, map[string][]string{
			"b": {"error OCA-7649 Packets of more than 1400 bytes do not arrive from b at c; the sender's interface has MTU 1500, and the pod network uses all of it, including 50 bytes for its own header"},
			"c": {"error OCA-7649 Packets of more than 1400 bytes do not arrive from c at b; the sender's interface has MTU 1500, and the pod network uses all of it, including 50 bytes for its own header"}}},
		"the kubelet's port": {network{lost: map[string]string{"a>b 10250": probe.Silent}}, nil,
			map[string][]string{"b": {"error OCA-7648 Nothing arrives from a at b on TCP 10250 (kubelet); connections get no answer"}}},
		"a firewall that refuses": {network{lost: map[string]string{"a>b 10250": probe.Refused}}, nil,
			map[string][]string{"b": {"error OCA-7648 Nothing arrives from a at b on TCP 10250 (kubelet); connections are refused although a program listens: a firewall rejects them"}}},
		"another program refuses": {network{lost: map[string]string{"a>b 10250": probe.Refused}, taken: map[string]bool{"b 10250": true}}, nil, nil},
		"the API server":          {network{lost: map[string]string{"b>a 6443": "no route to host"}}, nil, map[string][]string{"b": {"error OCA-7648 Nothing arrives from b at a on TCP 6443 (API server); connections fail: no route to host"}}},
		"no probe":                {network{broken: map[string]bool{"d": true}}, nil, map[string][]string{"d": {"warning OCA-7650 The connections to and from d were not tested; it has no ocadm"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := c.network
			n.mtu = max(n.mtu, 1500)
			all := members(4, cp, func(i int, m *Member) {
				m.Probe = n.run(m.Name)
				if c.change != nil {
					c.change(i, m)
				}
			})
			outcome := Try(t.Context(), all, "run", func(int, int) {})
			got := map[string][]string{}
			for name, list := range outcome.Findings() {
				for _, f := range list {
					if f.Remedy == "" || f.Check != Check {
						t.Errorf("%+v", f)
					}
					got[name] = append(got[name], fmt.Sprintf("%s %s %s; %s", f.Severity, f.Code, f.What, f.Cause))
				}
			}
			if !maps.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
	var f finding.List
	for _, list := range (&Outcome{}).Findings() {
		f = append(f, list...)
	}
	if len(f) > 0 {
		t.Errorf("%v", f)
	}
}

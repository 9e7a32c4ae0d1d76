// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/probe"
)

// Check is the name of the check of the paths between machines.
const Check = "Ways"

// codeMTU is the code of the finding about packets that are too large for a path.
const codeMTU = "OCA-7649"

// Outcome is the result of a test of paths.
type Outcome struct {
	// Said describes what was tested.
	Said string
	// Untried holds the machines on which the probe did not run, with the reason.
	Untried map[string]string

	lost []loss
}

// loss is a path on which packets or connections are lost.
type loss struct {
	from, to end
	code     string
	// what is lost, why, and the remedy.
	what, cause, remedy string
	// here and there report which end is at fault, if that is known.
	here, there bool
}

type end struct {
	name                 string
	controlPlane, joined bool
}

func endOf(m Member) end { return end{m.Name, m.ControlPlane, m.Joined} }

// take evaluates the results of a group's machines. It is pure.
func (o *Outcome) take(all []Member, g group, said map[int]*tried) {
	for i, t := range said {
		if t.err != nil {
			o.Untried[all[i].Name] = t.err.Error()
		} else if t.ready.Error != "" {
			o.Untried[all[i].Name] = t.ready.Error
		}
	}
	for _, w := range g.ways {
		from, to := said[w.from], said[w.to]
		if from.err != nil || to.err != nil {
			continue
		}
		for _, l := range judge(all[w.from], all[w.to], from.sent[all[w.to].Name], to) {
			if !slices.Contains(o.lost, l) { // a path may be tested in two groups
				o.lost = append(o.lost, l)
			}
		}
	}
}

// judge returns what is lost from one machine to another. It is pure.
func judge(from, to Member, sent probe.Sent, heard *tried) []loss {
	var out []loss
	for _, p := range ports(from, to) {
		var l loss
		var lost bool
		if p.udp {
			l, lost = judgeUDP(from, to, p, sent, heard)
		} else {
			l, lost = judgeTCP(to, p, sent.TCP[p.number], heard.ready)
		}
		if lost {
			l.from, l.to = endOf(from), endOf(to)
			out = append(out, l)
		}
	}
	return out
}

func judgeTCP(to Member, p port, became string, ready probe.Ready) (loss, bool) {
	taken := slices.Contains(ready.Taken, p.number)
	switch {
	case became == "" || became == probe.Connected || !taken && !slices.Contains(ready.Listening, p.number):
		return loss{}, false
	case to.Firewalld && !to.Joined: // join opens the port
		return loss{}, false
	case became == probe.Refused && taken: // the program that uses it may listen on another address
		return loss{}, false
	}
	l := loss{code: "OCA-7648", what: p.String(), cause: "connections get no answer", remedy: openPorts}
	switch became {
	case probe.Silent:
	case probe.Refused:
		l.cause = "connections are refused although a program listens: a firewall rejects them"
	default:
		l.cause = "connections fail: " + became
	}
	return l, true
}

const openPorts = "open the port in the firewalls of the machines and of the network between them; ocadm init and join list all ports"

func judgeUDP(from, to Member, p port, sent probe.Sent, heard *tried) (loss, bool) {
	if heard.ready.Error != "" {
		return loss{}, false
	}
	passes := to.Firewalld && !to.Joined // join opens the port
	arrived, largest, passed := false, 0, false
	for _, a := range heard.arrived {
		if a.From != from.Name || a.Port != p.number {
			continue
		}
		arrived = true
		if a.Passed || passes {
			passed, largest = true, max(largest, a.Size)
		}
	}
	l := loss{code: "OCA-7648", what: p.String(), remedy: openPorts}
	switch why := sent.UDP[p.number]; {
	case passed:
		if p.number != podNetwork || sent.MTU == 0 || largest >= sent.MTU {
			return loss{}, false
		}
		return loss{code: codeMTU, what: fmt.Sprintf("Packets of more than %d bytes", largest), here: true,
			cause:  fmt.Sprintf("the sender's interface has MTU %d, and the pod network uses all of it, including %d bytes for its own header", sent.MTU, overhead),
			remedy: fmt.Sprintf("allow packets of %d bytes in the network, or set the MTU of the interface of each machine to %d", sent.MTU, largest)}, true
	case why != "":
		l.cause, l.here = "the sender cannot send: "+why, true
	case arrived:
		l.cause, l.there = "packets arrive, but the receiver's firewall drops them", true
	default:
		l.cause = "packets do not arrive"
	}
	return l, true
}

// overhead is that of VXLAN, in bytes.
const overhead = 50

// Findings returns the findings by machine. Losses of one kind that share a machine are one finding. It is pure.
func (o *Outcome) Findings() map[string]finding.List {
	out := map[string]finding.List{}
	for _, name := range slices.Sorted(maps.Keys(o.Untried)) {
		f := finding.Warn("OCA-7650", "The connections to and from "+name+" were not tested", o.Untried[name], "try again when a login to the machine works")
		f.Check = Check
		out[name] = append(out[name], f)
	}
	left := slices.Clone(o.lost)
	for len(left) > 0 {
		hub, at := largest(left)
		var others []string
		var one loss
		left = slices.DeleteFunc(left, func(l loss) bool {
			if keyOf(l, at) != hub {
				return false
			}
			one = l
			if at {
				others = append(others, l.from.name)
			} else {
				others = append(others, l.to.name)
			}
			return true
		})
		slices.Sort(others)
		from, to := strings.Join(others, ", "), one.to.name
		if !at {
			from, to = one.from.name, strings.Join(others, ", ")
		}
		what := fmt.Sprintf("Nothing arrives from %s at %s on %s", from, to, one.what)
		if one.code == codeMTU {
			what = fmt.Sprintf("%s do not arrive from %s at %s", one.what, from, to)
		}
		f := finding.New(one.code, what, one.cause, one.remedy)
		f.Check = Check
		for _, name := range about(one, at, others) {
			out[name] = append(out[name], f)
		}
	}
	return out
}

// hub is the common key of related losses.
type hub struct{ code, what, cause, name string }

// keyOf returns the hub of a loss: the machine at its receiving or sending end.
func keyOf(l loss, to bool) hub {
	if to {
		return hub{l.code, l.what, l.cause, l.to.name}
	}
	return hub{l.code, l.what, l.cause, l.from.name}
}

// largest returns the hub with the most losses. A tie goes to the one at fault, then to the receiving end, then to the first by name.
func largest(all []loss) (best hub, to bool) {
	type candidate struct {
		hub
		to    bool
		n     int
		fault bool
	}
	count := map[candidate]int{}
	for _, l := range all {
		count[candidate{hub: keyOf(l, true), to: true, fault: l.there}]++
		count[candidate{hub: keyOf(l, false), fault: l.here}]++
	}
	var list []candidate
	for c, n := range count {
		c.n = n
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.n, a.n), lists.TrueFirst(a.fault, b.fault), cmp.Compare(a.code+a.what+a.cause, b.code+b.what+b.cause),
			lists.TrueFirst(a.to, b.to), cmp.Compare(a.name, b.name))
	})
	return list[0].hub, list[0].to
}

// about returns the machines that a finding keeps from joining: the one that the paths share, unless it is already in the cluster and works there.
func about(one loss, to bool, others []string) []string {
	center := one.from
	if to {
		center = one.to
	}
	if center.joined || center.controlPlane && len(others) == 1 {
		return others
	}
	return []string{center.name}
}

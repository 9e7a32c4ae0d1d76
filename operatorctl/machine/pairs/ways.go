// SPDX-License-Identifier: Apache-2.0

// Package pairs compares machines with each other and tests the network paths between them, which no machine can do alone. It works on machines with an
// open login, and needs no cluster.
package pairs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Member is a machine of a comparison.
type Member struct {
	// Name is the machine's, Address the one at which the others reach it.
	Name, Address string
	// ControlPlane and Compute are its roles. APIPort is the port of its API server, 0 for the default.
	ControlPlane, Compute bool
	APIPort               int
	// Joined reports whether it is already in the cluster: paths between two such machines are not tested.
	Joined bool
	// Firewalld reports whether firewalld runs on it.
	Firewalld bool
	// Probe runs package probe on the machine until its input ends.
	Probe func(ctx context.Context, in io.Reader, onLine func(string)) error
}

// port is a port that a machine must reach on another.
type port struct {
	number int
	udp    bool
	of     string
}

func (p port) String() string {
	return fmt.Sprintf("%s %d (%s)", map[bool]string{true: "UDP", false: "TCP"}[p.udp], p.number, p.of)
}

// podNetwork is the port of VXLAN. A test compares these ports with those that the installer opens.
const podNetwork = 8472

// ports returns the ports that one machine must reach on another. It is pure.
func ports(from, to Member) []port {
	out := []port{{podNetwork, true, "pod network"}}
	if from.ControlPlane {
		out = append(out, port{10250, false, "kubelet"})
	}
	if to.ControlPlane {
		out = append(out, port{cmp.Or(to.APIPort, 6443), false, "API server"}, port{6444, false, "depot"})
	}
	if from.ControlPlane && to.ControlPlane {
		out = append(out, port{2379, false, "etcd"}, port{2380, false, "etcd"})
	}
	if to.Compute && from.ControlPlane {
		out = append(out, port{8885, false, "host agent"})
	}
	if from.Compute && to.Compute {
		out = append(out, port{6081, true, "networks of virtual machines"}, port{4396, false, "live migration"}, port{7777, false, "disks of virtual machines"})
	}
	return out
}

// way is a path to test, by indexes into the list of members.
type way struct{ from, to int }

const (
	// maxMesh is the maximum number of machines for which all pairs are tested. With more, each is tested with two neighbours and the hubs.
	maxMesh = 12
	// maxHubs is the maximum number of control-plane nodes tested with all others.
	maxHubs = 3
	// groupSize is the maximum number of machines that run the probe concurrently.
	groupSize = 40
)

// group is a set of machines that run the probe concurrently, and the paths between them.
type group struct {
	members []int
	ways    []way
}

// plan returns the paths to test, in groups. It is pure.
func plan(all []Member) []group {
	var hubs, others []int
	for i, m := range all {
		if m.ControlPlane && len(hubs) < maxHubs {
			hubs = append(hubs, i)
		} else {
			others = append(others, i)
		}
	}
	if len(all) <= maxMesh {
		return nonEmpty([]group{mesh(all, slices.Concat(hubs, others))})
	}
	out := []group{mesh(all, hubs)} // the control-plane nodes with each other

	for at := 0; at < len(others); at += groupSize - 1 { // the last machine of a group is the first of the next
		part := others[at:min(len(others), at+groupSize)]
		g := group{members: slices.Concat(hubs, part)}
		for i, b := range part {
			for _, h := range hubs {
				g.add(all, h, b)
				g.add(all, b, h)
			}
			if i > 0 {
				g.add(all, part[i-1], b)
				g.add(all, b, part[i-1])
			}
		}
		out = append(out, g)
	}
	return nonEmpty(out)
}

// mesh returns a group in which all pairs of machines are tested.
func mesh(all []Member, members []int) group {
	g := group{members: members}
	for _, a := range members {
		for _, b := range members {
			g.add(all, a, b)
		}
	}
	return g
}

func (g *group) add(all []Member, a, b int) {
	w := way{a, b}
	if a != b && !(all[a].Joined && all[b].Joined) && !slices.Contains(g.ways, w) {
		g.ways = append(g.ways, w)
	}
}

func nonEmpty(all []group) []group {
	return slices.DeleteFunc(all, func(g group) bool { return len(g.ways) == 0 })
}

// said describes the test for users. It is pure.
func said(all []Member, groups []group) string {
	ways := map[way]bool{} // a path may be in two groups
	for _, g := range groups {
		for _, w := range g.ways {
			ways[w] = true
		}
	}
	how := "each with every other"
	if len(all) > maxMesh {
		how = "each with two others and with the control-plane nodes"
	}
	hubs := lists.Pick(all, func(m Member) (string, bool) { return m.Name, m.ControlPlane })
	control := "no control-plane node"
	if len(hubs) > 0 {
		control = strings.Join(hubs[:min(len(hubs), maxHubs)], ", ")
	}
	return fmt.Sprintf("%d connections between %d machines, %s; control-plane nodes: %s", len(ways), len(all), how, control)
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// maxLabs and maxNodes keep addresses and interface names within their limits.
const (
	maxLabs  = 50
	maxNodes = 20
)

// firstHost is the last octet of the first machine's address.
const firstHost = 11

// networkPrefix is the prefix of all labs: lab i has 10.198.i.0/24. It must be outside Kubernetes' service network 10.96.0.0/12, which ends at
// 10.111.255.255, because kube-proxy drops packets to addresses there that belong to no service.
const networkPrefix = "10.198."

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Layout holds every name and address of one lab. It depends only on the lab's name and index, so that a later run can clean up after a crashed one.
type Layout struct {
	Name  string
	Index int
	// Dir holds the lab's state and disks, RunDir runc's state of its containers.
	Dir, RunDir string
}

// stateRoot returns the directory of all labs.
func stateRoot() string {
	return cmp.Or(os.Getenv("OCADM_LAB_DIR"), "/var/lib/ocadm-lab")
}

func newLayout(name string, index int) Layout {
	return Layout{
		Name: name, Index: index,
		Dir:    filepath.Join(stateRoot(), name),
		RunDir: filepath.Join("/run/ocadm-lab", fmt.Sprint(index)),
	}
}

// Bridge returns the name of the lab's bridge, which is also the prefix of its other names.
func (l Layout) Bridge() string { return fmt.Sprintf("ocadm-lab%d", l.Index) }

// Subnet returns the lab's network.
func (l Layout) Subnet() netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("%s%d.0/24", networkPrefix, l.Index))
}

// Host returns this machine's address on the bridge.
func (l Layout) Host() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("%s%d.1", networkPrefix, l.Index))
}

// NodeAddress returns the address of machine i, counted from 1.
func (l Layout) NodeAddress(i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("%s%d.%d", networkPrefix, l.Index, firstHost+i-1))
}

func nodeName(i int) string { return fmt.Sprintf("node%d", i) }

func (l Layout) container(i int) string { return l.Bridge() + "-" + nodeName(i) }
func (l Layout) netns(i int) string     { return l.container(i) }
func (l Layout) netnsPath(i int) string { return filepath.Join("/run/netns", l.netns(i)) }
func (l Layout) veth(i int) string      { return fmt.Sprintf("ocl%dn%d", l.Index, i) }
func (l Layout) cgroup() string         { return "/" + l.Bridge() }
func (l Layout) nodeDir(i int) string   { return filepath.Join(l.Dir, "nodes", nodeName(i)) }
func (l Layout) stateFile() string      { return filepath.Join(l.Dir, "lab.json") }

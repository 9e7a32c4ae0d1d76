// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestSpec(t *testing.T) {
	s := spec(container{
		Hostname: "node1", NetNS: "/run/netns/x", CgroupsPath: "/lab/node1", Capabilities: []string{"CAP_SYS_ADMIN"},
		Binds: []bind{{Source: "/disk/var", Target: "/var", Writable: true}, {Source: "/host/bin", Target: "/lab/bin"}},
	})
	for _, kind := range []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace, specs.NetworkNamespace,
	} {
		if !slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind }) {
			t.Errorf("no %s namespace", kind)
		}
	}
	// A sandboxed host may not set resource limits, and a limit would keep the machine from starting there.
	if len(s.Process.Rlimits) != 0 || s.Process.OOMScoreAdj != nil || s.Linux.Seccomp != nil {
		t.Error("the machine has limits, a score or a system call filter")
	}
	binds := map[string][]string{}
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			binds[m.Destination] = m.Options
		}
	}
	for _, c := range []struct {
		target string
		want   []string
	}{
		{"/var", []string{"rbind", "rprivate", "rshared", "rw"}},
		{"/lab/bin", []string{"rbind", "rprivate", "ro"}},
	} {
		if !slices.Equal(binds[c.target], c.want) {
			t.Errorf("%s has options %v, want %v", c.target, binds[c.target], c.want)
		}
	}
}

func TestLayout(t *testing.T) {
	l := newLayout("bench", 3)
	for _, c := range []struct{ what, got, want string }{
		{"bridge", l.Bridge(), "ocadm-lab3"},
		{"host", l.Host().String(), "10.198.3.1"},
		{"first machine", l.NodeAddress(1).String(), "10.198.3.11"},
		{"last machine", l.NodeAddress(maxNodes).String(), "10.198.3.30"},
		{"subnet", l.Subnet().String(), "10.198.3.0/24"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	// The kernel limits an interface name to 15 characters.
	last := newLayout("x", maxLabs-1)
	for _, name := range []string{last.Bridge(), last.veth(maxNodes)} {
		if len(name) > 15 {
			t.Errorf("the interface name %s is too long", name)
		}
	}
}

func TestResolverIsNoLoopback(t *testing.T) {
	if got := resolver(newLayout("x", 0).Host()); got != "nameserver 10.198.0.1\noptions attempts:1 timeout:1\n" {
		t.Errorf("resolv.conf is %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package virtualaddress

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"yunion.io/x/ocadm/internal/vip"
)

// TestHolders checks that a machine with the address answers, and that one that has just lost it does not.
func TestHolders(t *testing.T) {
	needRoot(t)
	runtime.LockOSThread() // the thread ends with the test: it is never unlocked
	there, here := newNamespace(t), newNamespace(t)
	own := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "own"}, PeerName: "other", PeerNamespace: netlink.NsFd(there)}
	must(t, netlink.LinkAdd(own))
	up(t, "own", "192.0.2.1/24")
	must(t, netns.Set(there))
	up(t, "other", "192.0.2.2/24", "192.0.2.100/24")
	must(t, netns.Set(here))

	answers := func(address string) bool {
		t.Helper()
		holders, err := vip.Holders(t.Context(), "own", address)
		must(t, err)
		return len(holders[address]) > 0
	}
	for _, address := range []string{"192.0.2.100", "192.0.2.2"} {
		if !answers(address) {
			t.Fatalf("%s does not answer", address)
		}
	}
	must(t, netns.Set(there))
	link, err := netlink.LinkByName("other")
	must(t, err)
	address, err := netlink.ParseAddr("192.0.2.100/24")
	must(t, err)
	must(t, netlink.AddrDel(link, address))
	must(t, netns.Set(here))
	if answers("192.0.2.100") {
		t.Error("an address that was given up answers")
	}
	if !answers("192.0.2.2") {
		t.Error("an address that stayed does not answer")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newNamespace creates a network namespace for this thread, which ends with the test.
func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	n, err := netns.New()
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// up assigns addresses to an interface and enables it.
func up(t *testing.T, name string, addresses ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, err)
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		must(t, err)
		must(t, netlink.AddrAdd(link, address))
	}
	must(t, netlink.LinkSetUp(link))
}

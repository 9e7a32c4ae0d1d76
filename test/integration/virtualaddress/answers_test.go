// SPDX-License-Identifier: Apache-2.0

//go:build linux

package virtualaddress

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/test/require"
)

// TestAnswers checks that a machine with the address answers, and that one that has just lost it does not, although the kernel remembers it.
func TestAnswers(t *testing.T) {
	needRoot(t)
	runtime.LockOSThread() // the thread ends with the test: it is never unlocked
	there, here := newNamespace(t), newNamespace(t)
	own := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "own"}, PeerName: "other", PeerNamespace: netlink.NsFd(there)}
	require.NoError(t, netlink.LinkAdd(own))
	up(t, "own", "192.0.2.1/24")
	require.NoError(t, netns.Set(there))
	up(t, "other", "192.0.2.2/24", "192.0.2.100/24")
	require.NoError(t, netns.Set(here))

	for _, address := range []string{"192.0.2.100", "192.0.2.2"} {
		if mac, err := vip.Answers(t.Context(), address); mac == "" || err != nil {
			t.Fatalf("%s: %q, %v", address, mac, err)
		}
	}
	require.NoError(t, netns.Set(there))
	link, err := netlink.LinkByName("other")
	require.NoError(t, err)
	address, err := netlink.ParseAddr("192.0.2.100/24")
	require.NoError(t, err)
	require.NoError(t, netlink.AddrDel(link, address))
	require.NoError(t, netns.Set(here))
	if list, err := netlink.NeighList(0, netlink.FAMILY_V4); err != nil || len(list) != 2 {
		t.Fatalf("the kernel remembers %v, %v", list, err)
	}
	for range 2 {
		if mac, err := vip.Answers(t.Context(), "192.0.2.100"); mac != "" || err != nil {
			t.Errorf("an address that was given up: %q, %v", mac, err)
		}
	}
	if mac, err := vip.Answers(t.Context(), "192.0.2.2"); mac == "" || err != nil {
		t.Errorf("an address that stayed: %q, %v", mac, err)
	}
}

// newNamespace creates a network namespace for this thread, which ends with the test.
func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	n, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// up assigns addresses to an interface and enables it.
func up(t *testing.T, name string, addresses ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	require.NoError(t, err)
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		require.NoError(t, err)
		require.NoError(t, netlink.AddrAdd(link, address))
	}
	require.NoError(t, netlink.LinkSetUp(link))
}

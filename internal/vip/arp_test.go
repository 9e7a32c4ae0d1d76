// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"net"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"yunion.io/x/ocadm/test/require"
)

var probing = net.HardwareAddr{2, 0, 0, 0, 0, 1}

func TestARP(t *testing.T) {
	packet, err := arpProbe(probing, "10.0.0.100")
	if err != nil || len(packet) != arpLength || !slices.Equal(packet[24:], []byte{10, 0, 0, 100}) {
		t.Fatalf("%v, %v", packet, err)
	}
	if _, _, ok := arpSender(packet); ok {
		t.Error("one that asks has no address")
	}
	packet[7] = 2 // a reply
	copy(packet[14:], []byte{10, 0, 0, 100})
	if a, mac, ok := arpSender(packet); !ok || a.String() != "10.0.0.100" || mac != probing.String() {
		t.Errorf("%v %v %v", a, mac, ok)
	}
	for name, broken := range map[string][]byte{"cut off": packet[:20], "IPv6": append([]byte{0, 1, 0x86, 0xdd}, packet[4:]...)} {
		if _, _, ok := arpSender(broken); ok {
			t.Error(name)
		}
	}
	if _, err := arpProbe(probing, "fd00::1"); err == nil {
		t.Error("an address of IPv6 is asked for")
	}
}

// network creates a bridge in a separate network namespace, with one machine per list of addresses. The test stays in the namespace.
func network(t *testing.T, machines ...[]string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	home, err := netns.New()
	if err != nil {
		t.Skipf("no network namespace can be made: %v", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", HardwareAddr: probing}}
	require.NoError(t, netlink.LinkAdd(bridge))
	for i, addresses := range machines {
		there, err := netns.New()
		require.NoError(t, err)
		require.NoError(t, netns.Set(home))
		mac := net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}
		near := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near" + string(rune('a'+i)), MasterIndex: bridge.Index}, PeerName: "far", PeerNamespace: netlink.NsFd(there),
			PeerHardwareAddr: mac}
		require.NoError(t, netlink.LinkAdd(near))
		require.NoError(t, netlink.LinkSetUp(near))
		require.NoError(t, netns.Set(there))
		far, err := netlink.LinkByName("far")
		require.NoError(t, err)
		require.NoError(t, netlink.LinkSetUp(far))
		for _, a := range addresses {
			address, err := netlink.ParseAddr(a)
			require.NoError(t, err)
			require.NoError(t, netlink.AddrAdd(far, address))
		}
		require.NoError(t, netns.Set(home))
	}
	require.NoError(t, netlink.LinkSetUp(bridge))
	own, err := netlink.ParseAddr("10.0.0.1/24")
	require.NoError(t, err)
	require.NoError(t, netlink.AddrAdd(bridge, own))
}

// Both machines with the address are detected, even if this one has it as well, and a machine by its own address. The last address is unused.
func TestHolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	network(t, []string{"10.0.0.2/24", "10.0.0.100/32"}, []string{"10.0.0.3/24", "10.0.0.100/32"})
	bridge, err := netlink.LinkByName("br0")
	require.NoError(t, err)
	for _, too := range []bool{false, true} {
		if too {
			address, _ := netlink.ParseAddr("10.0.0.100/32")
			require.NoError(t, netlink.AddrAdd(bridge, address))
		}
		got, err := Holders(t.Context(), "br0", "10.0.0.100", "10.0.0.3", "10.0.0.200")
		if err != nil || !slices.Equal(got["10.0.0.100"], []string{"02:00:00:00:01:00", "02:00:00:00:01:01"}) ||
			!slices.Equal(got["10.0.0.3"], []string{"02:00:00:00:01:01"}) || len(got["10.0.0.200"]) > 0 {
			t.Errorf("this machine has it, too: %v: %v, %v", too, got, err)
		}
	}
}

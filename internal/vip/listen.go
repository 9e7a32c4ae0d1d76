// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// hearing is three times the interval at which most routers advertise themselves.
const hearing = 3 * time.Second

// FreeRouterID returns a random router ID that no other VRRP group in the interface's network advertises. Groups that use unicast cannot be detected,
// so their IDs are passed as known.
func FreeRouterID(ctx context.Context, iface string, known ...int) (id int, used []int, err error) {
	taken, err := heard(ctx, iface)
	if err != nil {
		return 0, nil, err
	}
	for _, id := range known {
		taken[id] = true
	}
	var free []int
	for i := 1; i <= 255; i++ {
		if taken[i] {
			used = append(used, i)
		} else {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		return 0, used, errors.New("all router IDs of VRRP are in use in this network")
	}
	n, err := rand.Int(rand.Reader, big.NewInt(int64(len(free))))
	if err != nil {
		return 0, used, fmt.Errorf("choosing a router ID: %w", err)
	}
	return free[n.Int64()], used, nil
}

// heard returns the router IDs in VRRP advertisements, which routers send to 224.0.0.18.
func heard(ctx context.Context, iface string) (map[int]bool, error) {
	link, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("looking at interface %s: %w", iface, err)
	}
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "ip4:112", "0.0.0.0")
	if err != nil {
		return nil, fmt.Errorf("listening for VRRP: %w", err)
	}
	defer func() { _ = packets.Close() }() // nothing was sent
	raw, err := packets.(*net.IPConn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listening for VRRP: %w", err)
	}
	var joined error
	err = raw.Control(func(fd uintptr) {
		group := &unix.IPMreqn{Multiaddr: [4]byte{224, 0, 0, 18}, Ifindex: int32(link.Index)}    //nolint:gosec // interface indexes are small
		joined = unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, group) //nolint:gosec // a file descriptor
	})
	if err := errors.Join(err, joined); err != nil {
		return nil, fmt.Errorf("listening for VRRP: %w", err)
	}
	end := time.Now().Add(hearing)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	if err := packets.SetReadDeadline(end); err != nil {
		return nil, fmt.Errorf("listening for VRRP: %w", err)
	}
	taken := map[int]bool{}
	buffer := make([]byte, 1500)
	for {
		n, _, err := packets.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return taken, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listening for VRRP: %w", err)
		}
		if id, ok := routerID(buffer[:n]); ok {
			taken[id] = true
		}
	}
}

// routerID parses the router ID of an advertisement. Versions 2 and 3 begin with version and type, then the ID: RFC 5798, section 5.2.
func routerID(packet []byte) (int, bool) {
	if len(packet) < 8 || packet[0]&0x0f != 1 || packet[0]>>4 != 2 && packet[0]>>4 != 3 {
		return 0, false
	}
	return int(packet[1]), true
}

// Answers reports whether a machine in the network has the address: the kernel asks for it by ARP when something is sent there. What the kernel remembers
// of a machine that had the address a moment ago is no answer, so that is deleted first.
func Answers(ctx context.Context, address string) (mac string, err error) {
	ip := net.ParseIP(address)
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", net.JoinHostPort(address, "9"))
	if err != nil {
		return "", nil // no way there: no answer
	}
	defer func() { _ = conn.Close() }() // nothing depends on it
	list, err := neighbours(ip)
	if err != nil {
		return "", err
	}
	for _, n := range list {
		if n.State&unix.NUD_PERMANENT == 0 {
			_ = netlink.NeighDel(&n) // one that stays counts as an answer
		}
	}
	for range 30 { // the kernel asks three times, a second apart
		_, _ = conn.Write([]byte{0}) // a refusal is an answer, too: it shows in the table
		if wait.Sleep(ctx, 100*time.Millisecond) != nil {
			return "", ctx.Err()
		}
		if list, err = neighbours(ip); err != nil {
			return "", err
		}
		for _, n := range list {
			return n.HardwareAddr.String(), nil
		}
	}
	return "", nil
}

// answered are the states in which the kernel has the MAC address of a neighbour.
const answered = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

// neighbours are those with an address that have answered.
func neighbours(ip net.IP) (out []netlink.Neigh, err error) {
	list, err := netlink.NeighList(0, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("reading the neighbours: %w", err)
	}
	return lists.Filter(list, func(n netlink.Neigh) bool { return n.IP.Equal(ip) && n.State&answered != 0 }), nil
}

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

	"golang.org/x/sys/unix"
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
		return 0, used, errors.New("all router IDs of VRRP are taken in this network")
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

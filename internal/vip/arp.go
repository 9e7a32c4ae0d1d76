// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/lists"
)

const (
	// askRounds is the number of requests per address, askRound the wait for replies to each: a machine replies within milliseconds.
	askRounds = 3
	askRound  = 400 * time.Millisecond
	// readTimeout bounds each read, so that the end of a context is noticed.
	readTimeout = 50 * time.Millisecond
)

// Fields of an ARP packet for IPv4 over Ethernet: RFC 826.
const (
	arpLength  = 28
	arpRequest = 1
	ethernet   = 1
)

// Holders returns the MAC addresses of other machines in the interface's network that hold the addresses. It sends ARP probes (RFC 5227, section
// 2.1.1), so it detects several holders of an address, including one that this machine holds too. It does not use the kernel's ARP cache.
func Holders(ctx context.Context, iface string, addresses ...string) (map[string][]string, error) {
	link, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("looking at interface %s: %w", iface, err)
	}
	own, err := hardwareAddresses()
	if err != nil {
		return nil, err
	}
	fd, err := arpSocket(link)
	if err != nil {
		return nil, fmt.Errorf("sending ARP requests on %s: %w", iface, err)
	}
	defer func() { _ = unix.Close(fd) }() // everything was sent
	out := map[string][]string{}
	heard := func(packet []byte) {
		address, mac, ok := arpSender(packet)
		name := address.String()
		if ok && slices.Contains(addresses, name) && !slices.Contains(own, mac) && !slices.Contains(out[name], mac) {
			out[name] = append(out[name], mac)
		}
	}
	for range askRounds {
		for _, a := range addresses {
			packet, err := arpProbe(link.HardwareAddr, a)
			if err == nil {
				err = unix.Sendto(fd, packet, 0, everyone(link))
			}
			if err != nil {
				return nil, fmt.Errorf("sending an ARP request for %s on %s: %w", a, iface, err)
			}
		}
		if err := listen(ctx, fd, heard); err != nil {
			return nil, fmt.Errorf("sending ARP requests on %s: %w", iface, err)
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out, nil
}

// hardwareAddresses returns those of this machine.
func hardwareAddresses() (out []string, err error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	return lists.Map(list, func(i net.Interface) string { return i.HardwareAddr.String() }), nil
}

// bigEndian converts a number to the byte order of packet socket addresses.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func arpSocket(link *net.Interface) (fd int, err error) {
	if len(link.HardwareAddr) != 6 {
		return 0, errors.New("it is not an Ethernet interface")
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(bigEndian(unix.ETH_P_ARP)))
	if err != nil {
		return 0, err
	}
	wait := unix.NsecToTimeval(readTimeout.Nanoseconds())
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP), Ifindex: link.Index}))
	if err != nil {
		_ = unix.Close(fd) // nothing was sent
	}
	return fd, err
}

func everyone(link *net.Interface) *unix.SockaddrLinklayer {
	return &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP), Ifindex: link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
}

// listen passes the packets received in one round to take.
func listen(ctx context.Context, fd int, take func(packet []byte)) error {
	end := time.Now().Add(askRound)
	buffer := make([]byte, 1500)
	for time.Now().Before(end) {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		switch {
		case err == nil:
			take(buffer[:n])
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}

// arpProbe returns an ARP probe for an address, with no sender address.
func arpProbe(mac net.HardwareAddr, address string) ([]byte, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || !a.Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address", address)
	}
	out := make([]byte, 0, arpLength)
	for _, n := range []uint16{ethernet, unix.ETH_P_IP, 6<<8 | 4, arpRequest} {
		out = binary.BigEndian.AppendUint16(out, n)
	}
	out = append(out, mac...)
	out = append(out, make([]byte, 4+6)...) // zero sender IP address and target MAC address
	return append(out, a.AsSlice()...), nil
}

// arpSender returns the sender of an ARP packet: the IP address that it claims, and its MAC address.
func arpSender(packet []byte) (address netip.Addr, mac string, ok bool) {
	if len(packet) < arpLength || binary.BigEndian.Uint16(packet) != ethernet || binary.BigEndian.Uint16(packet[2:]) != unix.ETH_P_IP || packet[4] != 6 || packet[5] != 4 {
		return address, "", false
	}
	address, _ = netip.AddrFromSlice(packet[14:18])
	return address, net.HardwareAddr(packet[8:14]).String(), !address.IsUnspecified()
}

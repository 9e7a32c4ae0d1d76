// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/lists"
)

// arrivals collects the packets that arrived.
type arrivals struct {
	run, self string

	mu  sync.Mutex
	all map[Arrival]bool
}

func (a *arrivals) add(datagram []byte, passed bool) {
	one, ours := read(datagram, a.run, a.self)
	if !ours {
		return
	}
	one.Passed = passed
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[one] = true
}

// list returns the packets without duplicates.
func (a *arrivals) list() []Arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Arrival{}
	for one := range a.all {
		passed := one
		if passed.Passed = true; one.Passed || !a.all[passed] {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(x, y Arrival) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Port, y.Port), cmp.Compare(x.Size, y.Size))
	})
	return out
}

// raw sees packets that the machine's firewall lets through, whether or not a program or the kernel listens on the port.
func (a *arrivals) raw(ctx context.Context) (stop func(), err error) {
	var conns []net.PacketConn
	var errs []error
	var readers sync.WaitGroup
	for network, address := range map[string]string{"ip4:udp": "0.0.0.0", "ip6:udp": "::"} {
		c, err := (&net.ListenConfig{}).ListenPacket(ctx, network, address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		conns = append(conns, c)
		if ip, is := c.(*net.IPConn); is && network == "ip4:udp" { // an IPv6 socket omits the IP header
			errs = append(errs, filterOf(ip))
		}
		readers.Go(func() {
			buffer := make([]byte, maxPacket)
			for {
				n, _, err := c.ReadFrom(buffer)
				if err != nil {
					return
				}
				a.add(buffer[:n], true)
			}
		})
	}
	if len(conns) == 0 {
		return nil, errors.Join(errs...)
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
		readers.Wait()
	}, nil
}

// maxPacket is the maximum size of an IP packet.
const maxPacket = 1 << 16

// wire sees packets that arrive at the interfaces, before the firewall does. The kernel passes only packets with our mark.
func (a *arrivals) wire() (stop func(), err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := filter(fd); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	end := make([]int, 2) //nolint:mnd // the two ends of a pipe
	if err := unix.Pipe2(end, unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(os.NewSyscallError("pipe2", err), unix.Close(fd))
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		buffer := make([]byte, maxPacket)
		for {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(end[0]), Events: unix.POLLIN}}
			if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) || ready[1].Revents != 0 {
				return
			}
			n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
			if l, is := from.(*unix.SockaddrLinklayer); err == nil && is && l.Pkttype != unix.PACKET_OUTGOING {
				a.add(datagram(buffer[:n]), false)
			}
		}
	})
	return func() {
		_ = unix.Close(end[1])
		reader.Wait()
		_ = unix.Close(end[0])
		_ = unix.Close(fd)
	}, nil
}

func networkOrder(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

func filterOf(c *net.IPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	return cmp.Or(raw.Control(func(fd uintptr) { set = filter(int(fd)) }), set)
}

// filter makes the kernel drop everything but UDP packets with our mark: a machine may have much traffic.
func filter(fd int) error {
	const udp, inPayload = 17, headUDP + uint32(len(zeros))
	want := binary.BigEndian.Uint32([]byte(mark))
	program, err := bpf.Assemble([]bpf.Instruction{
		/* 0 */ bpf.LoadAbsolute{Off: 0, Size: 1},
		/* 1 */ bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		/* 2 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 6, SkipTrue: 6},
		/* 3 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 4, SkipTrue: 10},
		/* 4 */ bpf.LoadAbsolute{Off: 9, Size: 1},
		/* 5 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: udp, SkipTrue: 8},
		/* 6 */ bpf.LoadMemShift{Off: 0},
		/* 7 */ bpf.LoadIndirect{Off: inPayload, Size: 4},
		/* 8 */ bpf.Jump{Skip: 3},
		/* 9 */ bpf.LoadAbsolute{Off: 6, Size: 1},
		/* 10 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: udp, SkipTrue: 3},
		/* 11 */ bpf.LoadAbsolute{Off: headIPv6 + inPayload, Size: 4},
		/* 12 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: want, SkipTrue: 1},
		/* 13 */ bpf.RetConstant{Val: maxPacket},
		/* 14 */ bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filters := lists.Map(program, func(p bpf.RawInstruction) unix.SockFilter {
		return unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	})
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}))
}

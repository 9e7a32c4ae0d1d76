// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

const (
	// lifetime bounds a run: the other end may disappear without closing the connection.
	lifetime = 3 * time.Minute
	// Connections are tried dialTries times, packets are sent rounds times.
	dialTimeout, dialTries = 3 * time.Second, 2
	rounds, pause          = 3, 150 * time.Millisecond
	// atOnce is the number of machines tried concurrently.
	atOnce = 16
	// maxLine bounds a line, in bytes.
	maxLine = 1 << 20
)

// Run conducts the dialogue. It ends with its input, or with ctx.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, lifetime)
	defer cancel()
	lines := make(chan []byte)
	go func() { // ends with the input, or at the latest with the process
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			select {
			case lines <- slices.Clone(s.Bytes()):
			case <-ctx.Done():
				return
			}
		}
	}()
	var listen Listen
	if more, err := next(ctx, lines, &listen); err != nil || !more {
		return err
	}
	if err := listen.check(); err != nil {
		return err
	}
	seen := &arrivals{run: listen.Run, self: listen.Name, all: map[Arrival]bool{}}
	ready := Ready{Listening: []int{}}
	for _, port := range listen.TCP {
		closeListener, err := accept(ctx, port)
		switch {
		case err == nil:
			defer closeListener()
			ready.Listening = append(ready.Listening, port)
		case errors.Is(err, syscall.EADDRINUSE):
			ready.Taken = append(ready.Taken, port)
		}
	}
	if stop, err := seen.wire(); err == nil {
		defer stop()
		ready.Wire = true
	}
	stop, err := seen.raw(ctx)
	if err != nil {
		ready.Error = err.Error()
	} else {
		defer stop()
	}
	say := json.NewEncoder(out)
	if err := say.Encode(ready); err != nil {
		return err
	}
	var targets Targets
	more, err := next(ctx, lines, &targets)
	if err != nil {
		return err
	}
	if more {
		if err := say.Encode(Report{Sent: send(ctx, listen, targets.To)}); err != nil {
			return err
		}
		if _, err := next(ctx, lines, &struct{}{}); err != nil {
			return err
		}
	}
	return say.Encode(Arrived{Packets: seen.list()})
}

// next reads a line. more is false at the end of the input.
func next(ctx context.Context, lines <-chan []byte, into any) (more bool, err error) {
	select {
	case line, more := <-lines:
		if !more {
			return false, nil
		}
		if err := json.Unmarshal(line, into); err != nil {
			return false, fmt.Errorf("reading a line: %w", err)
		}
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// accept listens on a port, and accepts connections until it is closed. The other end closes them.
func accept(ctx context.Context, port int) (func(), error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(dialTimeout))
				_, _ = c.Read(make([]byte, 1))
			})
		}
	})
	return func() { l.Close(); open.Wait() }, nil
}

// send tries the paths to all targets.
func send(ctx context.Context, l Listen, to []Target) []Sent {
	return lists.Parallel(to, atOnce, func(_ int, t Target) Sent { return one(ctx, l, t) })
}

// one tries the paths to one target.
func one(ctx context.Context, l Listen, t Target) Sent {
	s := Sent{To: t.Name, TCP: map[int]string{}, UDP: map[int]string{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, port := range t.TCP {
		all.Go(func() {
			is := connect(ctx, net.JoinHostPort(t.Address, strconv.Itoa(port)))
			mu.Lock()
			defer mu.Unlock()
			s.TCP[port] = is
		})
	}
	for i, port := range t.UDP {
		mtu, err := packets(ctx, l, t, port, t.MTU && i == 0)
		mu.Lock()
		if s.MTU = max(s.MTU, mtu); err != nil {
			s.UDP[port] = err.Error()
		}
		mu.Unlock()
	}
	all.Wait()
	return s
}

func connect(ctx context.Context, address string) string {
	d := net.Dialer{Timeout: dialTimeout}
	for try := 1; ; try++ {
		c, err := d.DialContext(ctx, "tcp", address)
		var late net.Error
		switch {
		case err == nil:
			c.Close()
			return Connected
		case errors.Is(err, syscall.ECONNREFUSED):
			return Refused
		case try < dialTries && ctx.Err() == nil:
		case errors.As(err, &late) && late.Timeout():
			return Silent
		default:
			return cause(err)
		}
	}
}

// cause returns the kernel's error message.
func cause(err error) string {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	return err.Error()
}

// packets sends packets to a UDP port, of all sizes or a small one. It returns the MTU of the interface.
func packets(ctx context.Context, l Listen, t Target, port int, all bool) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(t.Address, strconv.Itoa(port)))
	if err != nil {
		return 0, errors.New(cause(err))
	}
	defer conn.Close()
	u, is := conn.(*net.UDPConn)
	if !is {
		return 0, fmt.Errorf("sending to %s: it is not a UDP socket", t.Address)
	}
	local, _ := u.LocalAddr().(*net.UDPAddr)
	heads := headIPv4 + headUDP
	if local.IP.To4() == nil {
		heads = headIPv6 + headUDP
	}
	if err := unfragmented(u, heads == headIPv4+headUDP); err != nil {
		return 0, err
	}
	mtu := mtuOf(local.IP)
	tried := []int{Small}
	if all {
		tried = ladder(mtu)
	}
	var failed error
	for range rounds {
		for _, size := range tried {
			p := packet(l.Run, l.Name, t.Name, size, heads)
			_, err := u.Write(p)
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) { // caused by an earlier packet
				_, err = u.Write(p)
			}
			if size == Small && err != nil {
				failed = errors.New(cause(err))
			}
		}
		if err := wait.Sleep(ctx, pause); err != nil {
			return mtu, err
		}
	}
	return mtu, failed
}

// unfragmented disables fragmentation, and makes the kernel ignore its cached path MTU.
func unfragmented(u *net.UDPConn, v4 bool) error {
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		if v4 {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		} else {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
	})
	if err = cmp.Or(err, set); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	return nil
}

// mtuOf returns the MTU of the interface with an address.
func mtuOf(ip net.IP) int {
	all, err := net.Interfaces()
	if err != nil {
		return 0
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, is := a.(*net.IPNet); is && n.IP.Equal(ip) {
				return i.MTU
			}
		}
	}
	return 0
}

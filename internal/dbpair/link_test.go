// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the network path to a server. It can be cut: then no data passes, but no connection closes either, as in a network that drops packets.
type link struct {
	port, to int
	listener net.Listener
	isCut    atomic.Bool
	silent   atomic.Bool // whether it does not even pass on that an end has closed, as after a power failure
	mu       sync.Mutex
	conns    []net.Conn
}

func newLink(to int) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{port: l.Addr().(*net.TCPAddr).Port, to: to, listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.carry(c)
		}
	}()
	return k, nil
}

func (k *link) carry(c net.Conn) {
	s, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", k.to))
	if err != nil {
		_ = c.Close()
		return
	}
	k.mu.Lock()
	k.conns = append(k.conns, c, s)
	k.mu.Unlock()
	both := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			for k.isCut.Load() && err == nil {
				time.Sleep(20 * time.Millisecond)
				if _, gone := from.Write(nil); gone != nil {
					err = io.EOF
				}
			}
			if n > 0 && err == nil {
				_, err = to.Write(buf[:n])
			}
			if err != nil {
				break
			}
		}
		for k.silent.Load() {
			time.Sleep(20 * time.Millisecond)
		}
		_, _ = to.Close(), from.Close()
		both <- struct{}{}
	}
	go pass(s, c)
	go pass(c, s)
	<-both
}

func (k *link) cut(is bool) { k.isCut.Store(is) }

func (k *link) close() {
	k.silent.Store(false)
	_ = k.listener.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
}

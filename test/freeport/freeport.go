// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for test programs that cannot choose one themselves.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// first and last limit the range. It lies below the ports that Linux assigns to connections and to listeners on port 0, and below the NodePorts of Kubernetes.
const first, last = 12000, 29999

// taken holds a socket for each port, in Linux' abstract namespace, until this process ends. It shows other processes that the port is taken.
var taken struct {
	sync.Mutex
	sockets []net.Listener
}

// Take returns a port of the address on which nothing listens. It returns each port only once, in this and all concurrent processes.
func Take(host string) (int, error) {
	var err error
	for range 1000 {
		var port int
		if port, err = try(host); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

func try(host string) (int, error) {
	port := first + rand.IntN(last-first+1)
	socket, err := net.Listen("unix", fmt.Sprintf("@ocadm-test-port-%d", port))
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		_ = socket.Close()
		return 0, err
	}
	taken.Lock()
	defer taken.Unlock()
	taken.sockets = append(taken.sockets, socket)
	return port, l.Close()
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Listener is one port of a program.
type Listener struct {
	Address string
	Port    int
	// TLS is nil for plain HTTP.
	TLS     *tls.Config
	Handler http.Handler
}

func (l Listener) String() string {
	scheme := "http"
	if l.TLS != nil {
		scheme = "https"
	}
	return scheme + "://:" + strconv.Itoa(l.Port)
}

// patience is how long a client may take for its handshake and request headers. A busy machine is slow, and a closed connection would look like a missing service.
const patience = 60 * time.Second

// Serve listens until ctx ends, then stops immediately: the real services do not drain either. It calls listening when all ports are open.
func Serve(ctx context.Context, listeners []Listener, listening func()) error {
	failures := make(chan error, len(listeners))
	for _, l := range listeners {
		socket, err := net.Listen("tcp", net.JoinHostPort(l.Address, strconv.Itoa(l.Port)))
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		// A server changes its configuration, so that two listeners cannot share one.
		server := &http.Server{Handler: l.Handler, TLSConfig: l.TLS.Clone(), ReadHeaderTimeout: patience, ErrorLog: log.Default()}
		defer server.Close()
		go func() {
			if l.TLS != nil {
				failures <- server.ServeTLS(socket, "", "")
				return
			}
			failures <- server.Serve(socket)
		}()
	}
	listening()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failures:
		return fmt.Errorf("serving: %w", err)
	}
}

// Ping returns the handler of probes, which every service has. Unless open is set, it answers only probes and the cloud's own clients.
func Ping(open bool, agents []string) Routes {
	agents = append([]string{"kube-probe", "yunioncloud-go/201708"}, agents...)
	return Routes{{Method: http.MethodGet, Path: "/ping", Handle: func(c Call) (any, error) {
		if !open && !slices.ContainsFunc(agents, func(a string) bool { return strings.Contains(c.UserAgent(), a) }) {
			return nil, Forbidden("user agent is not allowed")
		}
		return "pong", nil
	}}}
}

// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// startForeign plays a program that is not the cloud's own. It reads only --httpListenAddr, --tlsCertFile and --tlsKeyFile of its arguments.
func startForeign(ctx context.Context, m Machine, p servicespec.Spec, args []string) error {
	ports, err := m.foreignPorts(p, args)
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return m.stayUp(ctx, p, nil)
	}
	var pair *tls.Config
	if file := argument(args, "tlsCertFile"); file != "" {
		c, err := tls.LoadX509KeyPair(m.path(file), m.path(argument(args, "tlsKeyFile")))
		if err != nil {
			return fmt.Errorf("loading certificate: %w", err)
		}
		pair = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
	}
	routes := rest.Routes{{Method: http.MethodGet, Path: "/health", Handle: func(rest.Call) (any, error) { return "OK", nil }}}
	listeners := lists.Map(ports, func(port int) rest.Listener {
		return rest.Listener{Address: m.Address, Port: port, TLS: pair, Handler: routes}
	})
	return rest.Serve(ctx, listeners, func() {
		log.Printf("%s listens on %v", p.Name, ports)
		m.isUp(ctx)
	})
}

func (m Machine) foreignPorts(p servicespec.Spec, args []string) ([]int, error) {
	if address := argument(args, "httpListenAddr"); address != "" {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("reading --httpListenAddr: %w", err)
		}
		port, err := strconv.Atoi(text)
		return []int{port}, err
	}
	if p.PortFile != "" {
		text, err := os.ReadFile(m.path(p.PortFile))
		if err != nil {
			return nil, fmt.Errorf("reading configuration: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch strings.TrimSpace(key) {
			case "server.port", "bind-address":
				port, err := strconv.Atoi(strings.Trim(value, ` ":`))
				return []int{port}, err
			}
		}
	}
	return slices.DeleteFunc([]int{p.Port, p.SecondPort}, func(n int) bool { return n == 0 }), nil
}

// argument returns the value of -name=value or --name=value.
func argument(args []string, name string) string {
	for _, a := range args {
		if value, found := strings.CutPrefix(strings.TrimLeft(a, "-"), name+"="); found {
			return value
		}
	}
	return ""
}

// withoutMissing removes --config FILE if that file does not exist.
func (m Machine) withoutMissing(args []string, file string) []string {
	i := slices.Index(args, file)
	if file == "" || i < 1 {
		return args
	}
	if _, err := os.Stat(m.path(file)); err == nil {
		return args
	}
	return slices.Delete(slices.Clone(args), i-1, i+1)
}

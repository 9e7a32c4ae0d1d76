// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// tunnel is flannel's link for VXLAN.
	tunnel = "flannel.1"
	// kubeletPort answers on every address of a node.
	kubeletPort = "10250"
	// tunnelTries are made, because one packet may be lost, each with tunnelWait.
	tunnelTries = 2
	tunnelWait  = 3 * time.Second
	// tunnelsAtOnce bounds what a large cluster costs.
	tunnelsAtOnce = 32
)

// podNetwork tries flannel's tunnels to the other nodes from this one. At the other end of each is a kubelet: its certificate comes in packets of full size, which
// a network with a small MTU drops.
func podNetwork(ctx context.Context, h *host.Host) []why.Tunnel {
	ends := tunnelEnds(h.Files.Text("/proc/net/route"))
	out := make([]why.Tunnel, len(ends))
	var g errgroup.Group
	g.SetLimit(tunnelsAtOnce)
	for i, end := range ends {
		g.Go(func() error {
			out[i] = why.Tunnel{To: end}
			for range tunnelTries {
				if out[i].Problem = through(ctx, net.JoinHostPort(end, kubeletPort)); out[i].Problem == "" {
					break
				}
			}
			return nil
		})
	}
	_ = g.Wait() // none fails
	return out
}

// through is why no TLS server answers at an address, "" if one does or refuses: then packets went both ways.
func through(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		if lost(err) {
			return "no connection to " + address + " in " + tunnelWait.String()
		}
		return ""
	}
	defer func() { _ = c.Close() }()                          // nothing was written that could be lost
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only whether packets arrive is asked
	if err := t.HandshakeContext(ctx); lost(err) {
		return "connected to " + address + ", but packets of full size do not arrive"
	}
	return ""
}

// lost reports whether an error means that nothing answered.
func lost(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// tunnelEnds are the addresses of the other nodes in the pod network, from the kernel's table of routes: proc(5), /proc/net/route.
func tunnelEnds(routes string) []string {
	var out []string
	for line := range strings.Lines(routes) {
		f := strings.Fields(line) // Iface Destination Gateway …
		if len(f) < 3 || f[0] != tunnel {
			continue
		}
		raw, err := hex.DecodeString(f[2])
		if err != nil || len(raw) != 4 {
			continue
		}
		slices.Reverse(raw) // on machines of little-endian order, as all that Kubernetes is built for here
		if a, ok := netip.AddrFromSlice(raw); ok && !a.IsUnspecified() {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

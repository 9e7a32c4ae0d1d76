// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
)

// dialTimeout limits the first connection, so that a missing depot is noticed soon.
const dialTimeout = 5 * time.Second

// Wanted reports whether a joining node should install from the depot.
func Wanted(c *config.Config) bool {
	return c.Node.Bundle == "" && c.Node.Depot != config.None && len(node.DepotAddresses(c)) > 0
}

// Connect asks the cluster's depot what it has for this machine. A joining machine authenticates with its token or its discovery file, a node with its certificate.
func Connect(ctx context.Context, h *host.Host) (*depot.Remote, error) {
	m, err := kubernetes.MemberOf(ctx, h)
	if err != nil {
		return nil, err
	}
	return ConnectAs(ctx, h, m)
}

// ConnectAs is like Connect, with known membership data of the cluster.
func ConnectAs(ctx context.Context, h *host.Host, m kubernetes.Member) (*depot.Remote, error) {
	address := node.DepotAddresses(h.Config)[0]
	c := clientOf(address, m.Token, m.TLS)
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, c.Unreachable(fmt.Errorf("connecting to it: %w", err))
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	r, err := c.Remote(ctx, h.Facts.Arch)
	if err == nil {
		err = r.CheckArchitecture()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func clientOf(address, token string, t *tls.Config) *depot.Client {
	return depot.NewClient("https://"+address, token, fetch.Fetcher{Client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: t, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 4,
	}}})
}

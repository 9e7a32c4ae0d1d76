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

// dialTimeout bounds the first connection, so that a cluster without a depot is noticed soon.
const dialTimeout = 5 * time.Second

// Wanted reports whether a joining node is to install from the depot.
func Wanted(c *config.Config) bool {
	return c.Node.Bundle == "" && c.Node.Depot != config.None && c.Join.DiscoveryFile == "" && len(node.DepotAddresses(c)) > 0
}

// Connect asks the cluster's depot what it has for this machine. A machine that joins shows its token, and trusts the authority that the
// control plane proves with it. A node shows its certificate.
func Connect(ctx context.Context, h *host.Host) (*depot.Remote, error) {
	address := node.DepotAddresses(h.Config)[0]
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	token := h.Config.Join.Token
	if cert, err := tls.LoadX509KeyPair(h.Files.Path(node.Certificate), h.Files.Path(node.Certificate)); err == nil {
		t.Certificates, token = []tls.Certificate{cert}, ""
		if t.RootCAs, err = depot.Authorities(h.Files.Path(authority)); err != nil {
			return nil, err
		}
	} else {
		d, err := kubernetes.Discover(ctx, h.Config)
		if err != nil {
			return nil, err
		}
		t.RootCAs = kubernetes.Pool(d.CA)
	}
	c := depot.NewClient("https://"+address, token, fetch.Fetcher{Client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: t, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 4,
	}}})
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

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// ConnectBundle asks the server that --bundle names what it has for this machine. The server is trusted because of the pinned hash of its CA.
func ConnectBundle(ctx context.Context, h *host.Host) (*depot.Remote, error) {
	n := h.Config.Node
	u, err := url.Parse(n.Bundle)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the bundle: %w", err)
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), strconv.Itoa(config.DepotPort)))
	t := kubernetes.PinnedTLS(n.BundleCAHash, u.Hostname())
	c := clientOf(address, n.BundleToken, t)
	if err := reach(ctx, address, t); err != nil { // immediate, whereas a download is retried
		return nil, explainServer(address, c.Unreachable(err))
	}
	r, err := c.Remote(ctx, h.Facts.Arch)
	return r, explainServer(address, err)
}

func reach(ctx context.Context, address string, t *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: t}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to it: %w", err)
	}
	return conn.Close()
}

// explainServer replaces the remedies in a depot's findings with those for a server outside a cluster.
func explainServer(address string, err error) error {
	if errors.Is(err, kubernetes.ErrOtherAuthority) {
		return finding.Errorf(depot.CodeUnreachable, "The server at "+address+" does not match --bundle-ca-hash",
			`copy the line that "ocadm bundle serve" prints there again; if it is the same, a different server answers at this address`, "%w", err)
	}
	found := slices.Clone(finding.Of(err))
	for i, f := range found {
		switch f.Code {
		case depot.CodeRefused:
			found[i].Remedy = `copy --bundle-token from the line that "ocadm bundle serve" prints`
		case depot.CodeUnreachable:
			found[i].Remedy = `make sure that "ocadm bundle serve" runs there and that this machine can reach it: curl -k https://` + address + depot.HealthPath
		}
	}
	if len(found) == 0 {
		return err
	}
	return found
}

// servedRoot returns the root of everything the bundle server has.
func servedRoot(r *depot.Remote) root {
	name := "bundle-" + r.ID()
	return root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) { return s.Complete(ctx, name) },
		func(ctx context.Context, s *depot.Store, p func(done, total int64)) error {
			return s.Take(ctx, name, r, p)
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"yunion.io/x/ocadm/internal/pki"
)

// certificates holds the CA of the pair, and issues the certificate of one server.
type certificates struct {
	name      string // name of the server
	names     []string
	files     Files
	authority pki.Pair
	checked   time.Time
}

// ensure issues the certificate of the server unless there is one that is valid for long enough.
func (c *certificates) ensure() error {
	if err := c.renewAuthority(time.Now()); err != nil {
		return err
	}
	ca, _ := os.ReadFile(c.files.CA)                                   // missing before the first start
	pair, err := tls.LoadX509KeyPair(c.files.Certificate, c.files.Key) // they do not match if the agent was killed while writing them
	if err == nil && bytes.Equal(ca, c.authority.CertPEM()) && !pki.NeedsRenewal(pair.Leaf, time.Now()) && pki.SignedBy(pair.Leaf, c.authority.Cert) {
		return nil
	}
	leaf, err := pki.Issue(c.authority, pki.Request{CommonName: c.name, Names: c.names, NotBefore: time.Now(), Small: true})
	if err != nil {
		return fmt.Errorf("issuing the certificate of the server: %w", err)
	}
	key, err := leaf.KeyPEM()
	if err != nil {
		return fmt.Errorf("issuing the certificate of the server: %w", err)
	}
	for name, data := range map[string][]byte{c.files.CA: c.authority.CertPEM(), c.files.Certificate: leaf.CertPEM(), c.files.Key: key} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return fmt.Errorf("writing the certificate of the server: %w", err)
		}
	}
	return nil
}

// renewAuthority renews the CA and keeps its key, which both agents have: what one signs is valid for the other, which may still have the former CA.
// Nothing else renews the Secret, and no server starts without a certificate.
func (c *certificates) renewAuthority(now time.Time) error {
	if !pki.NeedsRenewal(c.authority.Cert, now) {
		return nil
	}
	next, err := pki.ContinueCA(now, c.authority)
	if err != nil {
		return err
	}
	c.authority = next
	return nil
}

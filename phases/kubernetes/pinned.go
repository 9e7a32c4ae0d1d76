// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
)

// ErrOtherAuthority reports a server whose certificate was not signed by the pinned CA.
var ErrOtherAuthority = errors.New("it has a different certificate authority")

// Pin returns the hash of a certificate's key as in the join command: "sha256:" and 64 digits.
func Pin(cert *x509.Certificate) string { return pubkeypin.Hash(cert) }

// PinnedTLS configures a client of a server at host that sends its CA together with its own certificate: the CA is trusted because of its pin.
func PinnedTLS(pin, host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies with the pinned CA
		VerifyConnection: func(c tls.ConnectionState) error {
			i := slices.IndexFunc(c.PeerCertificates, func(cert *x509.Certificate) bool {
				return cert.IsCA && strings.EqualFold(pubkeypin.Hash(cert), pin)
			})
			if i < 0 {
				return fmt.Errorf("verifying the server %s: %w", host, ErrOtherAuthority)
			}
			roots, between := x509.NewCertPool(), x509.NewCertPool()
			roots.AddCert(c.PeerCertificates[i])
			for _, cert := range c.PeerCertificates[1:] {
				between.AddCert(cert)
			}
			_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host})
			return err
		}}
}

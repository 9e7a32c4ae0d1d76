// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLSMode is the encryption mode of connections. The names are those of --ssl-mode of MySQL's clients, in lower case and with dashes:
// https://dev.mysql.com/doc/refman/8.4/en/connection-options.html
type TLSMode string

const (
	TLSDisabled TLSMode = "disabled"
	// TLSPreferred encrypts if the server offers it, and accepts any certificate.
	TLSPreferred TLSMode = "preferred"
	// TLSRequired encrypts or fails, and accepts any certificate.
	TLSRequired TLSMode = "required"
	// TLSVerifyCA requires a certificate from a trusted CA, with any name: those that MySQL generates itself have no host name.
	TLSVerifyCA TLSMode = "verify-ca"
	// TLSVerifyIdentity also requires the name of the host in the certificate.
	TLSVerifyIdentity TLSMode = "verify-identity"
)

// TLSModes returns the names of the modes.
func TLSModes() []string {
	return []string{string(TLSDisabled), string(TLSPreferred), string(TLSRequired), string(TLSVerifyCA), string(TLSVerifyIdentity)}
}

// CheckTLS returns an error if a mode and its CA certificates are invalid.
func CheckTLS(mode TLSMode, ca string) error {
	_, _, err := Config{TLS: mode, CA: ca}.tls()
	return err
}

// tls returns the driver's TLS configuration; fallback is true if it may continue unencrypted with a server that has no TLS.
func (c Config) tls() (t *tls.Config, fallback bool, err error) {
	verify := c.TLS == TLSVerifyCA || c.TLS == TLSVerifyIdentity
	var roots *x509.CertPool
	if c.CA != "" {
		if !verify {
			return nil, false, fmt.Errorf("CA certificates are set, but mode %q ignores them: use %s or %s", c.TLS, TLSVerifyCA,
				TLSVerifyIdentity)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, false, errors.New("the CA setting contains no PEM certificate")
		}
	}
	t = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.Host, RootCAs: roots}
	switch c.TLS {
	case TLSDisabled:
		return nil, false, nil
	case "", TLSPreferred:
		t.InsecureSkipVerify = true
		return t, true, nil
	case TLSRequired:
		t.InsecureSkipVerify = true
	case TLSVerifyCA:
		t.InsecureSkipVerify = true // skips the name only: VerifyConnection verifies the rest
		t.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	case TLSVerifyIdentity:
	default:
		return nil, false, fmt.Errorf("%q is not a TLS mode: %s, %s, %s, %s or %s", c.TLS, TLSDisabled, TLSPreferred, TLSRequired, TLSVerifyCA,
			TLSVerifyIdentity)
	}
	return t, false, nil
}

func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server presented no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// address checks the URL of the API. The token is sent there, so without TLS it must be on this machine.
func address(text string) (*url.URL, error) {
	const example = "for example --api https://operator-api.example.org"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, unusable("the address cannot be read", example)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, unusable("the address has more than a scheme, a host and a path", example)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, unusable("the address does not begin with https:// and a host", example)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, unusable("the token would be sent to "+u.Host+" in clear text", example)
	}
	return u, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// transport returns an HTTP client for the API. It follows no redirects: the token is for one server.
func transport(o Options, patience time.Duration) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.TLSHandshakeTimeout = patience, patience
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case len(o.CA) > 0 && o.Fingerprint != "":
		return nil, unusable("both a CA and a fingerprint are given", "give either --api-ca-file or --api-fingerprint")
	case len(o.CA) > 0:
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, unusable("the file with the CA contains no certificate", "give --api-ca-file a file with certificates in PEM")
		}
	case o.Fingerprint != "":
		digits := strings.ToLower(o.Fingerprint)
		for _, name := range []string{"sha256:", "sha256 fingerprint="} { // the second as openssl prints it
			digits = strings.TrimPrefix(digits, name)
		}
		want, err := hex.DecodeString(strings.ReplaceAll(digits, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, unusable("the fingerprint is not a SHA-256 in hexadecimal digits", "print it with: openssl x509 -in tls.crt -noout -fingerprint -sha256")
		}
		t.TLSClientConfig.InsecureSkipVerify = true // the fingerprint proves more than a name
		t.TLSClientConfig.VerifyConnection = pinned(want)
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// otherCertificateError is the error for a server whose certificate is not the pinned one.
type otherCertificateError struct{ got string }

func (e *otherCertificateError) Error() string {
	return "its certificate has the SHA-256 fingerprint " + e.got
}

// pinned accepts only one certificate.
func pinned(want []byte) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server presents no certificate")
		}
		got := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(got[:], want) != 1 {
			return &otherCertificateError{hex.EncodeToString(got[:])}
		}
		return nil
	}
}

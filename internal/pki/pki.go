// SPDX-License-Identifier: Apache-2.0

// Package pki issues and checks the certificates of a cloud: one CA, service certificates with the names clients really use, and etcd's three
// certificates. Time is always a parameter; callers decide where certificates are stored and when they are replaced. It does not handle Kubernetes'
// own certificates, which are kubeadm's.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// keyBits is the RSA key size for CA and leaves, as in clouds installed earlier. Everything that reads the files (the services, nginx, MariaDB,
	// etcd, older installers' tools) accepts it, and the cost, some 0.1 s per key, is paid once per certificate.
	keyBits = 2048
	// skew is how far certificates are backdated, for nodes whose clocks differ.
	skew = time.Hour
	// CALifetime is the validity of a new CA.
	CALifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime is the default validity of a leaf certificate.
	LeafLifetime = 800 * 24 * time.Hour
)

// Pair is a certificate with its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Usage is the side of a connection that a certificate is for.
type Usage int

// The usages; ServerAndClient is what etcd peers need.
const (
	Server Usage = iota
	Client
	ServerAndClient
)

// Request describes a leaf certificate.
type Request struct {
	CommonName string
	// Names are the DNS names and IP addresses of the subject; empty ones and duplicates are dropped.
	Names []string
	Usage Usage
	// NotBefore is the time of issue; the certificate is backdated by an hour for clocks that differ.
	NotBefore time.Time
	// NotAfter defaults to LeafLifetime after NotBefore, and is never later than the CA's end.
	NotAfter time.Time
	// Key is the private key; if nil, one is generated. It is a small one if Small says that all its readers accept that.
	Key   crypto.Signer
	Small bool
}

// NewCA returns a self-signed CA with the given key, or with one made by NewKey if key is nil.
func NewCA(now time.Time, commonName string, key crypto.Signer) (Pair, error) {
	p, err := sign(authority(now, commonName), nil, key)
	if err != nil {
		return Pair{}, fmt.Errorf("creating certificate authority %q: %w", commonName, err)
	}
	return p, nil
}

// ContinueCA returns a CA that succeeds an old one, with the same name, key and key identifier: certificates signed by one are valid with the other.
// The identifier is copied because a later Go may compute it differently, and OpenSSL compares it.
func ContinueCA(now time.Time, old Pair) (Pair, error) {
	t := authority(now, old.Cert.Subject.CommonName)
	t.SubjectKeyId = old.Cert.SubjectKeyId
	p, err := sign(t, nil, old.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("renewing certificate authority %q: %w", t.Subject.CommonName, err)
	}
	return p, nil
}

func authority(now time.Time, commonName string) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-skew).UTC(),
		NotAfter:              now.Add(CALifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// Issue issues a leaf certificate signed by ca.
func Issue(ca Pair, r Request) (Pair, error) {
	if ca.Cert == nil || ca.Key == nil || !ca.Cert.IsCA {
		return Pair{}, fmt.Errorf("issuing certificate %q: the signer is not a certificate authority with its key", r.CommonName)
	}
	if r.NotBefore.IsZero() {
		return Pair{}, fmt.Errorf("issuing certificate %q: no time given", r.CommonName)
	}
	start, end := r.NotBefore.Add(-skew), r.NotAfter
	if end.IsZero() {
		end = r.NotBefore.Add(LeafLifetime)
	}
	if end.After(ca.Cert.NotAfter) {
		end = ca.Cert.NotAfter
	}
	if start.Before(ca.Cert.NotBefore) {
		start = ca.Cert.NotBefore
	}
	if !start.Before(end) {
		return Pair{}, fmt.Errorf("issuing certificate %q: it would end (%s) before it begins", r.CommonName, end.Format(time.RFC3339))
	}
	dns, ips := splitNames(r.Names)
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: r.CommonName},
		NotBefore:             start.UTC(),
		NotAfter:              end.UTC(),
		DNSNames:              dns,
		IPAddresses:           slices.CompactFunc(ips, net.IP.Equal),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           extUsages(r.Usage),
		BasicConstraintsValid: true,
	}
	key := r.Key
	if key == nil && r.Small {
		var err error
		if key, err = newSmallKey(); err != nil {
			return Pair{}, fmt.Errorf("issuing certificate %q: %w", r.CommonName, err)
		}
	}
	p, err := sign(t, &ca, key)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing certificate %q: %w", r.CommonName, err)
	}
	return p, nil
}

func extUsages(u Usage) []x509.ExtKeyUsage {
	switch u {
	case Client:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	case ServerAndClient:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	default:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
}

// NewKey generates a key of a type that every program of a cloud can read.
func NewKey() (crypto.Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// newSmallKey generates a P-256 key, a thousand times faster.
func newSmallKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// sign sets the common fields and signs t with ca, or self-signs it if ca is nil. Without a key one is generated.
func sign(t *x509.Certificate, ca *Pair, key crypto.Signer) (_ Pair, err error) {
	if t.Subject.CommonName == "" {
		return Pair{}, errors.New("no common name")
	}
	if n := len(t.Subject.CommonName); n > 64 {
		return Pair{}, fmt.Errorf("the common name has %d characters, 64 are allowed", n)
	}
	if key == nil {
		if key, err = NewKey(); err != nil {
			return Pair{}, err
		}
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, fmt.Errorf("generating a serial number: %w", err)
	}
	parent, signer := t, key
	if ca != nil {
		parent, signer = ca.Cert, ca.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: key}, nil
}

// NeedsRenewal reports whether cert is nil or two thirds of its lifetime have passed.
func NeedsRenewal(cert *x509.Certificate, now time.Time) bool {
	return cert == nil || !now.Before(RenewAt(cert))
}

// RenewAt returns the time when two thirds of the certificate's lifetime have passed.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

// Covers returns the names (DNS names or IP addresses) that the certificate is not valid for.
func Covers(cert *x509.Certificate, names []string) (missing []string) {
	// A cloud has two hundred names, most of them literally in the certificate: looking there first avoids comparing all with all.
	named := map[string]bool{}
	if cert != nil {
		for _, n := range cert.DNSNames {
			named[n] = true
		}
	}
	for _, n := range unique(names) {
		if named[n] && net.ParseIP(n) == nil {
			continue
		}
		if cert == nil || cert.VerifyHostname(n) != nil {
			missing = append(missing, n)
		}
	}
	return missing
}

// SignedBy reports whether ca signed cert. It ignores the dates; see NeedsRenewal.
func SignedBy(cert, ca *x509.Certificate) bool {
	return cert != nil && ca != nil && cert.CheckSignatureFrom(ca) == nil
}

// SPDX-License-Identifier: Apache-2.0

// Package pki makes and judges the certificates of a cloud: one CA, service certificates with the names clients really use, etcd's
// three certificates. Time is always a parameter; where certificates are stored and when they are replaced is the caller's business.
// It is not for Kubernetes' own certificates, which are kubeadm's.
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
	// keyBits: RSA 2048 for CA and leaves, as clouds installed earlier have. Everything that reads the files (the services, nginx,
	// MariaDB, etcd, older installers' tools) takes it, and the cost, some 0.1 s a key, is paid once per certificate.
	keyBits = 2048
	// skew is how far a certificate is dated back, for nodes whose clocks differ.
	skew = time.Hour
	// CALifetime is how long a new CA is valid.
	CALifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime is how long a leaf is valid when the request does not say.
	LeafLifetime = 800 * 24 * time.Hour
)

// Pair is a certificate with its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Usage says which side of a connection a certificate may stand on.
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
	DNSNames   []string
	IPs        []net.IP
	Usage      Usage
	// NotBefore is when the certificate is made; it is dated back by an hour for clocks that differ.
	NotBefore time.Time
	// NotAfter is LeafLifetime after NotBefore when zero, and never later than the CA's end.
	NotAfter time.Time
	// Key is used if it is set; else one is made, a small one if Small says that all its readers take that.
	Key   crypto.Signer
	Small bool
}

// NewCA makes a self-signed certificate authority with a key of NewKey, or a new one where key is nil.
func NewCA(now time.Time, commonName string, key crypto.Signer) (Pair, error) {
	p, err := sign(authority(now, commonName), nil, key)
	if err != nil {
		return Pair{}, fmt.Errorf("making certificate authority %q: %w", commonName, err)
	}
	return p, nil
}

// ContinueCA makes a certificate authority for the time after an old one, with its name, its key and its key identifier: what one signs is valid for the
// other. The identifier is taken over, because a later Go may compute another one, and OpenSSL compares it.
func ContinueCA(now time.Time, old Pair) (Pair, error) {
	t := authority(now, old.Cert.Subject.CommonName)
	t.SubjectKeyId = old.Cert.SubjectKeyId
	p, err := sign(t, nil, old.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("continuing certificate authority %q: %w", t.Subject.CommonName, err)
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

// Issue makes a leaf certificate signed by ca.
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
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: r.CommonName},
		NotBefore:             start.UTC(),
		NotAfter:              end.UTC(),
		DNSNames:              unique(r.DNSNames),
		IPAddresses:           slices.CompactFunc(slices.Clone(r.IPs), net.IP.Equal),
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

// NewKey makes a key such as every program of a cloud can read.
func NewKey() (crypto.Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// newSmallKey makes a key on the curve P-256, a thousand times faster.
func newSmallKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// sign fills in what every certificate needs and signs t with ca, or with its own key when ca is nil. Without a key one is made.
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

// NeedsRenewal reports whether two thirds of the certificate's lifetime are over, or it has none.
func NeedsRenewal(cert *x509.Certificate, now time.Time) bool {
	return cert == nil || !now.Before(RenewAt(cert))
}

// RenewAt is when two thirds of the certificate's lifetime are over.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

// Covers returns those of the names (DNS names or IP addresses) that a client could not reach with this certificate.
func Covers(cert *x509.Certificate, names []string) (missing []string) {
	// A cloud has two hundred names: most are in the certificate as they are, and looking there first saves comparing all with all.
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

// SignedBy reports whether ca signed cert. It ignores the dates, see NeedsRenewal.
func SignedBy(cert, ca *x509.Certificate) bool {
	return cert != nil && ca != nil && cert.CheckSignatureFrom(ca) == nil
}

// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"yunion.io/x/ocadm/internal/lists"
)

func (p Pair) CertPEM() []byte { return EncodeCerts(p.Cert) }

// KeyPEM returns the private key as a PEM block: PKCS #1 for RSA, as in the files of earlier clouds, otherwise PKCS #8.
func (p Pair) KeyPEM() ([]byte, error) {
	if k, ok := p.Key.(*rsa.PrivateKey); ok {
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}), nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("encoding the private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// EncodeCerts returns the certificates as PEM blocks, in the order given.
func EncodeCerts(certs ...*x509.Certificate) []byte {
	return slices.Concat(lists.Map(certs, func(c *x509.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	})...)
}

// ParseCerts parses all certificates of a PEM file, which must have at least one. It skips other blocks.
func ParseCerts(data []byte) ([]*x509.Certificate, error) {
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parsing certificates: %w", err)
	}
	return certs, nil
}

// ParseKey parses a private key: PKCS #1, SEC 1 or PKCS #8.
func ParseKey(data []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parsing the private key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parsing the private key: %T cannot sign", key)
	}
	return signer, nil
}

// ParsePair parses a certificate (the first of the file) and its key, and verifies that they belong together.
func ParsePair(certPEM, keyPEM []byte) (Pair, error) {
	certs, err := ParseCerts(certPEM)
	if err != nil {
		return Pair{}, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return Pair{}, err
	}
	pub, ok := certs[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !pub.Equal(key.Public()) {
		return Pair{}, fmt.Errorf("reading certificate %q: the private key belongs to another certificate", certs[0].Subject.CommonName)
	}
	return Pair{Cert: certs[0], Key: key}, nil
}

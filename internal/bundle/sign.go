// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// SigningKey reads a private key that signs bundles: Ed25519 in PEM, as "openssl genpkey -algorithm ed25519" writes it.
func SigningKey(text []byte) (ed25519.PrivateKey, error) {
	raw, err := decodePEM(text, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("reading a private key: %w", err)
	}
	key, ok := any.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading a private key: it is %T, want Ed25519", any)
	}
	return key, nil
}

// PublicKey reads a public key that verifies bundles: Ed25519 in PEM, as "openssl pkey -pubout" writes it.
func PublicKey(text []byte) (ed25519.PublicKey, error) {
	raw, err := decodePEM(text, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKIXPublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("reading a public key: %w", err)
	}
	key, ok := any.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("reading a public key: it is %T, want Ed25519", any)
	}
	return key, nil
}

func decodePEM(text []byte, kind string) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, errors.New("want a PEM file with a " + kind)
	}
	return block.Bytes, nil
}

// Signed reports whether there is a signature, by whomever.
func (b *Bundle) Signed() bool { return b.signature != nil }

// CheckSignature returns a finding unless the bundle has a signature by the owner of the key. It does not read the blobs: those are compared
// with their digests when they are used, or by Verify.
func (b *Bundle) CheckSignature(key ed25519.PublicKey) error {
	switch {
	case b.signature == nil:
		return badSignature(b.name, "it has no signature")
	case !ed25519.Verify(key, b.index, b.signature):
		return badSignature(b.name, "it was signed with another key, or changed since")
	}
	return nil
}

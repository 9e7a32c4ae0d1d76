// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// SigningKey parses a private key for signing bundles: Ed25519 in PEM, as "openssl genpkey -algorithm ed25519" writes it.
func SigningKey(text []byte) (ed25519.PrivateKey, error) {
	return readKey[ed25519.PrivateKey](text, "PRIVATE KEY", x509.ParsePKCS8PrivateKey)
}

// PublicKey parses a public key for verifying bundles: Ed25519 in PEM, as "openssl pkey -pubout" writes it.
func PublicKey(text []byte) (ed25519.PublicKey, error) {
	return readKey[ed25519.PublicKey](text, "PUBLIC KEY", x509.ParsePKIXPublicKey)
}

func readKey[K any](text []byte, kind string, parse func([]byte) (any, error)) (key K, err error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return key, errors.New("want a PEM file with a " + kind)
	}
	parsed, err := parse(block.Bytes)
	if err != nil {
		return key, fmt.Errorf("reading a %s: %w", strings.ToLower(kind), err)
	}
	key, ok := parsed.(K)
	if !ok {
		return key, fmt.Errorf("reading a %s: it is %T, want Ed25519", strings.ToLower(kind), parsed)
	}
	return key, nil
}

// Signed reports whether the bundle has a signature, whoever made it.
func (b *Bundle) Signed() bool { return b.signature != nil }

// CheckSignature returns a finding unless the bundle is signed with the private key of key. It does not read blobs: their digests are checked on use,
// or by Verify.
func (b *Bundle) CheckSignature(key ed25519.PublicKey) error {
	switch {
	case b.signature == nil:
		return badSignature(b.name, "it has no signature")
	case !ed25519.Verify(key, b.index, b.signature):
		return badSignature(b.name, "it was signed with another key, or changed after it was signed")
	}
	return nil
}

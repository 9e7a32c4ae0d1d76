// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"crypto"
	"errors"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/pki"
)

// authority is a CA that signs, with the certificates to trust while a new CA replaces an old one.
type authority struct {
	pair pki.Pair
	// trust holds the certificate of pair, then that of the other CA.
	trust []byte
	// data is the content of the Secret.
	data map[string][]byte
	// rotation describes what the rotation waits for; empty if there is none.
	rotation string
}

// The keys of a CA that does not sign certificates yet.
const keyNextCert, keyNextKey = "ca-next.crt", "ca-next.key"

// lastCall is how long before its expiry a CA is replaced even if some pods do not trust the next one, but at most a sixth of its lifetime.
const lastCall = 90 * 24 * time.Hour

const (
	waitsForTrust  = "waiting until every pod trusts the next CA"
	waitsForLeaves = "waiting until every pod has a certificate from the new CA"
)

// step is a step in the life of a CA. A CA is rotated at two thirds of its lifetime: the next CA is created and all pods come to trust both; then the
// next one signs and all pods get its certificates; then the old one is dropped. Each step is one write of the Secret.
type step int

const (
	keepCA step = iota
	makeCA
	announceCA
	switchCA
	dropOldCA
)

// nextStep returns the next step, and the CA after it. served is true if all pods run with the CA certificates in the Secret. It is pure.
func nextStep(data map[string][]byte, now time.Time, served bool) (step, authority, error) {
	if len(data[keyCACert]) == 0 {
		return makeCA, authority{}, nil
	}
	trusted, err := pki.ParseCerts(data[keyCACert])
	if err != nil {
		return keepCA, authority{}, err
	}
	ca, err := pki.ParsePair(data[keyCACert], data[keyCAKey])
	if err != nil {
		return keepCA, authority{}, err
	}
	if !ca.Cert.IsCA {
		return keepCA, authority{}, errors.New("its first certificate is not a CA")
	}
	a := authority{pair: ca, trust: data[keyCACert], data: map[string][]byte{keyCACert: data[keyCACert], keyCAKey: data[keyCAKey]}}
	switch {
	case len(data[keyNextCert]) > 0 && (served || !now.Before(replacedBy(ca))):
		next, err := pki.ParsePair(data[keyNextCert], data[keyNextKey])
		if err != nil {
			return keepCA, authority{}, fmt.Errorf("reading the next CA: %w", err)
		}
		trust := pki.EncodeCerts(next.Cert, ca.Cert)
		return switchCA, authority{
			pair: next, trust: trust, data: map[string][]byte{keyCACert: trust, keyCAKey: data[keyNextKey]}, rotation: waitsForLeaves,
		}, nil
	case len(data[keyNextCert]) > 0:
		a.data[keyNextCert], a.data[keyNextKey], a.rotation = data[keyNextCert], data[keyNextKey], waitsForTrust
		return keepCA, a, nil
	case !now.Before(ca.Cert.NotAfter):
		return makeCA, authority{}, nil // its certificates have expired, too
	case len(trusted) > 1 && (served || !now.Before(trusted[1].NotAfter)):
		a.trust = pki.EncodeCerts(ca.Cert)
		a.data[keyCACert] = a.trust
		return dropOldCA, a, nil
	case len(trusted) > 1:
		a.rotation = waitsForLeaves
		return keepCA, a, nil
	case pki.NeedsRenewal(ca.Cert, now):
		return announceCA, a, nil
	}
	return keepCA, a, nil
}

// take performs a step. Only makeCA and announceCA create a key.
func (a authority) take(s step, now time.Time, newKey func() (crypto.Signer, error)) (authority, error) {
	if s != makeCA && s != announceCA {
		return a, nil
	}
	key, err := newKey()
	if err != nil {
		return authority{}, fmt.Errorf("generating the CA: %w", err)
	}
	ca, err := pki.NewCA(now, "onecloud", key)
	if err != nil {
		return authority{}, fmt.Errorf("generating the CA: %w", err)
	}
	data, err := encodePair(ca, keyCACert, keyCAKey)
	if err != nil || s == makeCA {
		return authority{pair: ca, trust: data[keyCACert], data: data}, err
	}
	a.trust = pki.EncodeCerts(a.pair.Cert, ca.Cert)
	a.data[keyCACert], a.data[keyNextCert], a.data[keyNextKey], a.rotation = a.trust, data[keyCACert], data[keyCAKey], waitsForTrust
	return a, nil
}

// replacedBy returns the latest time at which a CA stops signing.
func replacedBy(ca pki.Pair) time.Time {
	return ca.Cert.NotAfter.Add(-min(lastCall, ca.Cert.NotAfter.Sub(ca.Cert.NotBefore)/6))
}

// next returns when an authority must be checked again.
func (a authority) next() time.Time {
	if a.rotation == "" {
		return pki.RenewAt(a.pair.Cert)
	}
	return replacedBy(a.pair)
}

func encodePair(p pki.Pair, certKey, keyKey string) (map[string][]byte, error) {
	key, err := p.KeyPEM()
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return map[string][]byte{certKey: p.CertPEM(), keyKey: key}, nil
}

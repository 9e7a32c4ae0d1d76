// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"crypto"
	"errors"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// authority is a CA that signs, with what is to be trusted while one CA takes over from another.
type authority struct {
	pair pki.Pair
	// trust holds the certificate of pair first, then the other one's.
	trust []byte
	// data is how it is kept in a Secret.
	data map[string][]byte
	// made tells that it was made in this pass.
	made bool
	// rolling says in words what is under way; empty at rest.
	rolling string
}

// The keys of a CA that does not sign yet.
const keyNextCert, keyNextKey = "ca-next.crt", "ca-next.key"

// lastCall is how long before its end a CA gives way to the next whether all pods trust that one or not; a sixth of its life if that is
// less.
const lastCall = 90 * 24 * time.Hour

// authorityOf reads a CA from the data of a Secret, makes one where there is none, and replaces it in time. At two thirds of its life:
// the next one is made, and every pod comes to trust both; then the next one signs, and every pod gets a certificate of it; then the old
// one is dropped. served tells whether all pods run with what the Secret holds now. It is a step a pass at most, each whole in one write
// of the Secret: who is stopped in between goes on from there.
func authorityOf(data map[string][]byte, now time.Time, served bool, newKey func() (crypto.Signer, error)) (authority, error) {
	if len(data[keyCACert]) == 0 {
		return newAuthority(now, newKey)
	}
	trusted, err := pki.ParseCerts(data[keyCACert])
	if err != nil {
		return authority{}, err
	}
	ca, err := pki.ParsePair(data[keyCACert], data[keyCAKey])
	if err != nil {
		return authority{}, err
	}
	if !ca.Cert.IsCA {
		return authority{}, errors.New("its first certificate is no CA")
	}
	a := authority{pair: ca, trust: data[keyCACert], data: map[string][]byte{keyCACert: data[keyCACert], keyCAKey: data[keyCAKey]}}
	if len(data[keyNextCert]) > 0 {
		return a.takeOver(data, served || !now.Before(giveWay(ca)))
	}
	switch {
	case !now.Before(ca.Cert.NotAfter):
		return newAuthority(now, newKey) // nobody can be served under it any more
	case len(trusted) > 1 && (served || !now.Before(trusted[1].NotAfter)):
		a.trust = pki.EncodeCerts(ca.Cert)
	case len(trusted) > 1:
		a.rolling = "every pod gets a certificate of the new CA"
	case pki.NeedsRenewal(ca.Cert, now):
		next, err := newAuthority(now, newKey)
		if err != nil {
			return authority{}, err
		}
		a.trust = pki.EncodeCerts(ca.Cert, next.pair.Cert)
		a.data[keyNextCert], a.data[keyNextKey], a.rolling = next.data[keyCACert], next.data[keyCAKey], toTrust
	}
	a.data[keyCACert] = a.trust
	return a, nil
}

const toTrust = "every pod comes to trust the next CA"

// takeOver lets the next CA sign if all pods trust it.
func (a authority) takeOver(data map[string][]byte, ready bool) (authority, error) {
	next, err := pki.ParsePair(data[keyNextCert], data[keyNextKey])
	if err != nil {
		return authority{}, fmt.Errorf("reading the next CA: %w", err)
	}
	if !ready {
		a.data[keyNextCert], a.data[keyNextKey], a.rolling = data[keyNextCert], data[keyNextKey], toTrust
		return a, nil
	}
	trust := pki.EncodeCerts(next.Cert, a.pair.Cert)
	return authority{
		pair: next, trust: trust, data: map[string][]byte{keyCACert: trust, keyCAKey: data[keyNextKey]},
		rolling: "every pod gets a certificate of the new CA",
	}, nil
}

// giveWay is when a CA stops signing at the latest.
func giveWay(ca pki.Pair) time.Time {
	return ca.Cert.NotAfter.Add(-min(lastCall, ca.Cert.NotAfter.Sub(ca.Cert.NotBefore)/6))
}

func newAuthority(now time.Time, newKey func() (crypto.Signer, error)) (authority, error) {
	key, err := newKey()
	if err != nil {
		return authority{}, fmt.Errorf("making the CA: %w", err)
	}
	ca, err := pki.NewCA(now, "onecloud", key)
	if err != nil {
		return authority{}, fmt.Errorf("making the CA: %w", err)
	}
	data, err := encodePair(ca, keyCACert, keyCAKey)
	return authority{pair: ca, trust: data[keyCACert], data: data, made: true}, err
}

// next is when an authority has to be looked at again: when it is to be replaced, or gives way.
func (a authority) next() time.Time {
	if a.rolling == "" {
		life := a.pair.Cert.NotAfter.Sub(a.pair.Cert.NotBefore)
		return a.pair.Cert.NotBefore.Add(life / 3 * 2)
	}
	return giveWay(a.pair)
}

// served tells whether, at the end of the pass before, all pods ran with the CA certificates of a Secret as they are now.
func (p *pass) served(secret string, data map[string][]byte) bool {
	hash, err := engine.Hash(data[keyCACert])
	return err == nil && p.m.served[secret] == hash
}

// noteServed remembers which CA certificates all pods run with, and tells whether that lets the exchange of a CA go on.
func (p *pass) noteServed() (onward bool) {
	all := true
	for _, c := range p.parts {
		if c.Enabled && (c.err != nil || c.paused || len(c.gated) > 0 || !c.serving) {
			all = false
		}
	}
	was := p.m.served
	p.m.served = map[string]string{}
	for secret, a := range p.certs.authorities {
		hash, err := engine.Hash(a.trust)
		if !all || err != nil {
			continue
		}
		p.m.served[secret] = hash
		onward = onward || a.rolling != "" && was[secret] != hash
	}
	return onward
}

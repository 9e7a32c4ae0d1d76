// SPDX-License-Identifier: Apache-2.0

// Package certificate declares the types of certificate requests.
package certificate

import "errors"

// Certifier obtains no certificate.
type Certifier struct{}

// ObtainRequest requests a certificate.
type ObtainRequest struct {
	Domains, EmailAddresses []string
	Bundle                  bool
	Profile, PreferredChain string
}

// RenewOptions request a renewal.
type RenewOptions struct {
	Bundle                  bool
	EmailAddresses          []string
	Profile, PreferredChain string
}

// Resource is a certificate.
type Resource struct {
	Domain                  string
	PrivateKey, Certificate []byte
}

var errNone = errors.New("the lab's Traefik has no ACME client")

// Obtain always fails.
func (*Certifier) Obtain(ObtainRequest) (*Resource, error) { return nil, errNone }

// RenewWithOptions always fails.
func (*Certifier) RenewWithOptions(Resource, *RenewOptions) (*Resource, error) { return nil, errNone }

// SPDX-License-Identifier: Apache-2.0

// Package certificate has the types of requests for certificates.
package certificate

import "errors"

// Certifier gets no certificate.
type Certifier struct{}

// ObtainRequest asks for a certificate.
type ObtainRequest struct {
	Domains, EmailAddresses []string
	Bundle                  bool
	Profile, PreferredChain string
}

// RenewOptions ask for a further one.
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

// Obtain returns an error.
func (*Certifier) Obtain(ObtainRequest) (*Resource, error) { return nil, errNone }

// RenewWithOptions returns an error.
func (*Certifier) RenewWithOptions(Resource, *RenewOptions) (*Resource, error) { return nil, errNone }

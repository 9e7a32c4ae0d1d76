// SPDX-License-Identifier: Apache-2.0

// Package registration has the types of accounts.
package registration

import "errors"

// Registrar registers nobody.
type Registrar struct{}

// Resource is an account.
type Resource struct {
	URI string `json:"uri,omitempty"`
}

// RegisterOptions ask for an account.
type RegisterOptions struct{ TermsOfServiceAgreed bool }

// RegisterEABOptions ask for an account that another one vouches for.
type RegisterEABOptions struct {
	TermsOfServiceAgreed bool
	Kid, HmacEncoded     string
}

var errNone = errors.New("the lab's Traefik has no ACME client")

// Register returns an error.
func (*Registrar) Register(RegisterOptions) (*Resource, error) { return nil, errNone }

// RegisterWithExternalAccountBinding returns an error.
func (*Registrar) RegisterWithExternalAccountBinding(RegisterEABOptions) (*Resource, error) {
	return nil, errNone
}

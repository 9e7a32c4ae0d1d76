// SPDX-License-Identifier: Apache-2.0

// Package registration declares the types of accounts.
package registration

import "errors"

// Registrar registers no account.
type Registrar struct{}

// Resource is an account.
type Resource struct {
	URI string `json:"uri,omitempty"`
}

// RegisterOptions request an account.
type RegisterOptions struct{ TermsOfServiceAgreed bool }

// RegisterEABOptions request an account bound to an external one.
type RegisterEABOptions struct {
	TermsOfServiceAgreed bool
	Kid, HmacEncoded     string
}

var errNone = errors.New("the lab's Traefik has no ACME client")

// Register always fails.
func (*Registrar) Register(RegisterOptions) (*Resource, error) { return nil, errNone }

// RegisterWithExternalAccountBinding always fails.
func (*Registrar) RegisterWithExternalAccountBinding(RegisterEABOptions) (*Resource, error) {
	return nil, errNone
}

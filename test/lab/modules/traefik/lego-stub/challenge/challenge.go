// SPDX-License-Identifier: Apache-2.0

// Package challenge has the types of proofs that a domain is one's own.
package challenge

// Provider answers challenges.
type Provider interface {
	Present(domain, token, keyAuth string) error
	CleanUp(domain, token, keyAuth string) error
}

// Manager keeps no provider.
type Manager struct{}

// SetDNS01Provider does nothing.
func (*Manager) SetDNS01Provider(Provider, ...func()) error { return nil }

// SetHTTP01Provider does nothing.
func (*Manager) SetHTTP01Provider(Provider, ...func()) error { return nil }

// SetTLSALPN01Provider does nothing.
func (*Manager) SetTLSALPN01Provider(Provider, ...func()) error { return nil }

// SPDX-License-Identifier: Apache-2.0

// Package challenge declares the types for proving ownership of a domain.
package challenge

// Provider answers challenges.
type Provider interface {
	Present(domain, token, keyAuth string) error
	CleanUp(domain, token, keyAuth string) error
}

// Manager stores no provider.
type Manager struct{}

// SetDNS01Provider does nothing.
func (*Manager) SetDNS01Provider(Provider, ...func()) error { return nil }

// SetHTTP01Provider does nothing.
func (*Manager) SetHTTP01Provider(Provider, ...func()) error { return nil }

// SetTLSALPN01Provider does nothing.
func (*Manager) SetTLSALPN01Provider(Provider, ...func()) error { return nil }

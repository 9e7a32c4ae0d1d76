// SPDX-License-Identifier: Apache-2.0

// Package lego lets Traefik's ACME provider compile without lego, whose two hundred DNS providers are a third of Traefik's code. The lab
// gets no certificate from the internet: every call fails.
package lego

import (
	"crypto/x509"
	"errors"
	"net/http"

	"github.com/go-acme/lego/v4/certcrypto"
	"github.com/go-acme/lego/v4/certificate"
	"github.com/go-acme/lego/v4/challenge"
	"github.com/go-acme/lego/v4/registration"
)

// LEDirectoryProduction is the default server.
const LEDirectoryProduction = "https://acme-v02.api.letsencrypt.org/directory"

// Config is a client's.
type Config struct {
	CADirURL, UserAgent string
	HTTPClient          *http.Client
	Certificate         CertificateConfig
}

// CertificateConfig is what a certificate shall be.
type CertificateConfig struct {
	KeyType           certcrypto.KeyType
	DisableCommonName bool
}

// Client is never made.
type Client struct {
	Certificate  *certificate.Certifier
	Challenge    *challenge.Manager
	Registration *registration.Registrar
}

// NewConfig returns an empty configuration.
func NewConfig(any) *Config { return &Config{} }

// NewClient returns an error.
func NewClient(*Config) (*Client, error) {
	return nil, errors.New("the lab's Traefik has no ACME client")
}

// CreateCertPool returns an error.
func CreateCertPool([]string, bool) (*x509.CertPool, error) {
	return nil, errors.New("the lab's Traefik has no ACME client")
}

// SPDX-License-Identifier: Apache-2.0

// Package lego lets Traefik's ACME provider compile without lego, whose two hundred DNS providers are a third of Traefik's code. The lab gets no
// certificate from the internet: every call fails.
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

// Config is the configuration of a client.
type Config struct {
	CADirURL, UserAgent string
	HTTPClient          *http.Client
	Certificate         CertificateConfig
}

// CertificateConfig configures certificates.
type CertificateConfig struct {
	KeyType           certcrypto.KeyType
	DisableCommonName bool
}

// Client is never created.
type Client struct {
	Certificate  *certificate.Certifier
	Challenge    *challenge.Manager
	Registration *registration.Registrar
}

// NewConfig returns an empty configuration.
func NewConfig(any) *Config { return &Config{} }

// NewClient always fails.
func NewClient(*Config) (*Client, error) {
	return nil, errors.New("the lab's Traefik has no ACME client")
}

// CreateCertPool always fails.
func CreateCertPool([]string, bool) (*x509.CertPool, error) {
	return nil, errors.New("the lab's Traefik has no ACME client")
}

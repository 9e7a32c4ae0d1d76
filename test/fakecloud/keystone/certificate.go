// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// checkCertificate rejects a certificate that no client could use.
func checkCertificate(_ context.Context, r rest.Record) error {
	pair, err := tls.X509KeyPair([]byte(r.Text("certificate")), []byte(r.Text("private_key")))
	if err != nil {
		return rest.BadInput("invalid certificate: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(r.Text("ca_certificate"))) {
		return rest.BadInput("invalid ca_certificate")
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return rest.BadInput("the certificate is not the CA's: %v", err)
	}
	return nil
}

// withCertificate resolves the certificate of an endpoint, given by id or name.
func (s *Server) withCertificate(ctx context.Context, endpoint rest.Record) error {
	named := endpoint.Text("service_certificate")
	if named == "" {
		return nil
	}
	certificate, err := s.store.Get(ctx, "servicecertificates", named)
	if err != nil {
		return err
	}
	delete(endpoint, "service_certificate")
	endpoint["service_certificate_id"] = certificate.Text("id")
	return nil
}

func (s *Server) removeCertificate(ctx context.Context, certificate rest.Record) error {
	return s.unused(ctx, "service_certificate_id", certificate, "certificate is in use by endpoints")
}

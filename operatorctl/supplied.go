// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
)

// isSupplied tells whether a person has marked a Secret of certificates as theirs.
func isSupplied(s *corev1.Secret) bool { return s.Annotations[v1alpha1.AnnotationSupplied] == "true" }

// ensureSupplied takes the certificates of a person: the operator never writes that Secret. etcd, which nobody but the services talks
// to, keeps certificates of the operator's, under a CA of its own.
func (p *pass) ensureSupplied(ctx context.Context, s *corev1.Secret) error {
	if err := usable(s, p.cr.Name+"-keystone."+p.cr.Namespace+".svc", p.now); err != nil {
		return fmt.Errorf("the certificates in Secret %q, which annotation %s says are yours, cannot be used: %w", s.Name, v1alpha1.AnnotationSupplied, err)
	}
	p.certs.told.Supplied = true
	if err := p.use(s.Data); err != nil {
		return err
	}
	// Whoever supplies them renews them: that is noticed by a watch, or with the audit.
	p.certs.renewAt = p.certs.told.NotAfter.Time
	name := p.cr.Name + "-etcd-ca"
	current, err := p.storedCertificates(ctx, name)
	if err != nil {
		return err
	}
	ca, err := p.authority(ctx, name, current.Data)
	if err != nil {
		return err
	}
	p.certSecrets = append(p.certSecrets, p.secret(name, ca.data))
	p.certs.renewAt = ca.next()
	if err := p.ensureEtcd(ctx, ca); err != nil {
		return err
	}
	if !p.now.Before(p.certs.told.NotAfter.Time) {
		p.certs.told.Message = "the supplied certificate has ended: replace it in Secret " + s.Name
	}
	return nil
}

// usable tells what keeps certificates from being used: a key that is missing, two that do not belong together, a CA that has not signed
// them, a name that they lack. That they have ended is no reason to leave everything else alone.
func usable(s *corev1.Secret, name string, now time.Time) error {
	for _, key := range []string{keyCACert, keyServiceCert, keyServiceKey} {
		if len(s.Data[key]) == 0 {
			return fmt.Errorf("key %s is missing", key)
		}
	}
	leaf, err := pki.ParsePair(s.Data[keyServiceCert], s.Data[keyServiceKey])
	if err != nil {
		return err
	}
	chain, err := pki.ParseCerts(s.Data[keyServiceCert])
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Data[keyCACert]) {
		return fmt.Errorf("key %s holds no certificate", keyCACert)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if now.After(leaf.Cert.NotAfter) {
		now = leaf.Cert.NotAfter
	}
	_, err = leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name, CurrentTime: now})
	return err
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"bytes"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

func pairData(t *testing.T, p pki.Pair, name string) map[string][]byte {
	t.Helper()
	key, err := p.KeyPEM()
	require.NoError(t, err)
	return map[string][]byte{name + ".crt": p.CertPEM(), name + ".key": key}
}

func certsSecret(t *testing.T, made time.Time) *corev1.Secret {
	t.Helper()
	ca, err := pki.NewCA(made, "onecloud", nil)
	require.NoError(t, err)
	data := pairData(t, ca, "ca")
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-certs"}, Data: data}
}

// The cache only holds objects with the operator's label, and may be stale. That must not replace a CA.
func TestUncachedCAIsKept(t *testing.T) {
	old := certsSecret(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ca := bytes.Clone(old.Data["ca.crt"])
	b := newBench(t, interceptor.Funcs{}, newCloud(), old)
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, old.Name)
	if !bytes.Equal(now.Data["ca.crt"], ca) {
		t.Fatal("the CA was replaced")
	}
	if len(now.Data["service.crt"]) == 0 {
		t.Fatal("no service certificate was issued")
	}
}

// A leaf is renewed at two thirds of its lifetime, and when the address of the cloud changes.
func TestLeafIsRenewed(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	leaf := func() *x509.Certificate {
		t.Helper()
		b.reconcile()
		s := &corev1.Secret{}
		b.get(s, "default-certs")
		certs, err := pki.ParseCerts(s.Data["service.crt"])
		require.NoError(t, err)
		return certs[0]
	}
	first := leaf()
	reported := b.cloud().Status.Certificates
	if !reported.NotAfter.Time.Equal(first.NotAfter) || reported.RenewAt.IsZero() || reported.CANotAfter.IsZero() {
		t.Errorf("the status says %+v", reported)
	}
	b.clock = reported.RenewAt.Add(-time.Hour)
	if !leaf().Equal(first) {
		t.Fatal("renewed too early")
	}
	b.clock = reported.RenewAt.Add(time.Hour)
	second := leaf()
	if second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
		t.Fatal("not renewed at two thirds of its life")
	}
	cr := b.cloud()
	cr.Spec.LoadBalancerEndpoint = "192.0.2.7"
	require.NoError(t, b.api.Update(t.Context(), cr))
	if third := leaf(); third.Equal(second) || third.VerifyHostname("192.0.2.7") != nil {
		t.Fatal("a new address is not in the certificate")
	}
}

// A user's certificates are used and never written; if they cannot be used, the reason is reported.
func TestSuppliedCertificates(t *testing.T) {
	ca, err := pki.NewCA(b0, "of the house", nil)
	require.NoError(t, err)
	issued := func(small bool, names ...string) *corev1.Secret {
		pair, err := pki.Issue(ca, pki.Request{CommonName: "cloud", Names: names, NotBefore: b0, Usage: pki.Server, Small: small})
		require.NoError(t, err)
		data := pairData(t, pair, "service")
		data["ca.crt"] = ca.CertPEM()
		return &corev1.Secret{Data: data, ObjectMeta: metav1.ObjectMeta{
			Namespace: "onecloud", Name: "default-certs", Annotations: map[string]string{v1alpha1.AnnotationSupplied: "true"},
		}}
	}
	issue := func(names ...string) *corev1.Secret { return issued(false, names...) }
	good := issue("*.onecloud.svc")
	b := newBench(t, interceptor.Funcs{}, newCloud(), good)
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, good.Name)
	if !maps.EqualFunc(now.Data, good.Data, bytes.Equal) || len(now.OwnerReferences) > 0 || len(now.Labels) > 0 {
		t.Error("the Secret was written")
	}
	if reported := b.cloud().Status.Certificates; !reported.Supplied || reported.NotAfter.IsZero() {
		t.Errorf("the status says %+v", reported)
	}
	b.get(&corev1.Secret{}, "default-etcd-ca") // etcd's own

	other := issue("example.com")
	missing := issue("*.onecloud.svc")
	delete(missing.Data, "service.key")
	stranger := issue("*.onecloud.svc")
	stranger.Data["service.key"] = other.Data["service.key"]
	// apigateway of Cloudpods ends with any other key: vendor/yunion.io/x/pkg/util/seclib/certs.go, DecodePrivateKey, v3.10.16 to v4.0.3.
	elliptic := issued(true, "*.onecloud.svc")
	for want, s := range map[string]*corev1.Secret{
		"default-keystone.onecloud.svc": other, "service.key is missing": missing, "belongs to another": stranger, "service.key is not an RSA key": elliptic,
	} {
		b := newBench(t, interceptor.Funcs{}, newCloud(), s)
		if _, err := b.r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), v1alpha1.AnnotationSupplied) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// The Ingress presents the certificate that a user supplies, without keys that only an Ingress reads, and the operator's before and after.
func TestIngressPresentsTheSuppliedCertificate(t *testing.T) {
	ca, err := pki.NewCA(b0, "of the house", nil)
	require.NoError(t, err)
	pair, err := pki.Issue(ca, pki.Request{CommonName: "cloud", Names: []string{"*.onecloud.svc"}, NotBefore: b0, Usage: pki.Server})
	require.NoError(t, err)
	b := newBench(t, interceptor.Funcs{}, newCloud())
	presents := func() ([]byte, string) {
		t.Helper()
		for range 2 {
			b.settleAll()
		}
		web := &networkingv1.Ingress{}
		b.get(web, "default-web")
		s := &corev1.Secret{}
		b.get(s, web.Spec.TLS[0].SecretName)
		if _, err := pki.ParsePair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
			t.Fatalf("Secret %s: %v", s.Name, err)
		}
		if s.Name != "default-certs" && s.Type != corev1.SecretTypeTLS {
			t.Errorf("Secret %s has type %q", s.Name, s.Type)
		}
		return s.Data[corev1.TLSCertKey], s.Name
	}
	if _, name := presents(); name != "default-certs" {
		t.Errorf("the Ingress reads %s", name)
	}
	own := &corev1.Secret{}
	b.get(own, "default-certs")
	before, etcd := own.DeepCopy(), &corev1.Secret{}
	b.get(etcd, "default-etcd-server")
	own.Annotations = map[string]string{v1alpha1.AnnotationSupplied: "true"}
	maps.Copy(own.Data, pairData(t, pair, "service")) // tls.crt and tls.key remain the operator's
	own.Data["ca.crt"] = ca.CertPEM()
	require.NoError(t, b.api.Update(t.Context(), own))
	if crt, name := presents(); !bytes.Equal(crt, pair.CertPEM()) {
		t.Errorf("the Ingress presents another certificate, from %s", name)
	}
	require.NoError(t, b.api.Delete(t.Context(), own))
	if crt, name := presents(); bytes.Equal(crt, pair.CertPEM()) || name != "default-certs" {
		t.Errorf("the Ingress still presents the supplied certificate, from %s", name)
	}
	if err := b.api.Get(t.Context(), client.ObjectKey{Namespace: own.Namespace, Name: "default-ingress-certs"}, own); !apierrors.IsNotFound(err) {
		t.Errorf("the copy remains: %v", err)
	}
	// Members of etcd with certificates from different CAs would reject each other.
	now := &corev1.Secret{}
	b.get(now, "default-etcd-server")
	b.get(own, "default-certs")
	if !maps.EqualFunc(now.Data, etcd.Data, bytes.Equal) || !bytes.Equal(own.Data["ca.crt"], before.Data["ca.crt"]) {
		t.Error("the CA or the certificates of etcd have changed")
	}
}

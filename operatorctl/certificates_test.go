// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"bytes"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
)

func certsSecret(t *testing.T, made time.Time) *corev1.Secret {
	t.Helper()
	ca, err := pki.NewCA(made, "onecloud", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodePair(ca, keyCACert, keyCAKey)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-certs"}, Data: data}
}

// The cache holds what bears the operator's label, and may be behind. A CA is too dear to be replaced because of that.
func TestCAThatTheCacheDoesNotSeeIsKept(t *testing.T) {
	old := certsSecret(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ca := bytes.Clone(old.Data[keyCACert])
	b := newBench(t, interceptor.Funcs{}, newCloud(), old)
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, old.Name)
	if !bytes.Equal(now.Data[keyCACert], ca) {
		t.Fatal("the CA was replaced")
	}
	if len(now.Data[keyServiceCert]) == 0 {
		t.Fatal("no service certificate was issued")
	}
}

// A CA is exchanged without a moment in which somebody does not trust somebody: both are trusted, then the new one signs, then the old
// one goes, and each step waits for the pods.
func TestCAIsExchangedInSteps(t *testing.T) {
	now := b0
	a, err := authorityOf(nil, now, false, pki.NewKey)
	if err != nil {
		t.Fatal(err)
	}
	first := a.pair.Cert
	step := func(served bool) []*x509.Certificate {
		t.Helper()
		if a, err = authorityOf(a.data, now, served, pki.NewKey); err != nil {
			t.Fatal(err)
		}
		trusted, err := pki.ParseCerts(a.trust)
		if err != nil || !trusted[0].Equal(a.pair.Cert) {
			t.Fatalf("the first that is trusted does not sign: %v", err)
		}
		return trusted
	}
	if trusted := step(true); len(trusted) != 1 || a.rolling != "" || !a.next().Equal(first.NotBefore.Add(first.NotAfter.Sub(first.NotBefore)/3*2)) {
		t.Fatalf("at rest: %d trusted, %q, next %s", len(trusted), a.rolling, a.next())
	}
	now = a.next()
	if trusted := step(true); len(trusted) != 2 || !a.pair.Cert.Equal(first) || a.rolling == "" {
		t.Fatal("at two thirds of its life the next CA is not trusted beside it")
	}
	next := step(false)
	if len(next) != 2 || !a.pair.Cert.Equal(first) {
		t.Fatal("the new CA signs while there are pods that do not trust it")
	}
	if trusted := step(true); len(trusted) != 2 || !a.pair.Cert.Equal(next[1]) || !trusted[1].Equal(first) {
		t.Fatal("the new CA does not sign, or the old one is not trusted beside it")
	}
	if trusted := step(false); len(trusted) != 2 {
		t.Fatal("the old CA is dropped while there are pods with its certificates")
	}
	if trusted := step(true); len(trusted) != 1 || !a.pair.Cert.Equal(next[1]) || a.rolling != "" || len(a.data) != 2 {
		t.Fatalf("in the end: %d trusted, %d keys, %q", len(trusted), len(a.data), a.rolling)
	}
}

// Where pods never come round, the CA gives way before it ends, and is dropped when it has.
func TestCAGivesWayInTime(t *testing.T) {
	now := b0
	a, err := authorityOf(nil, now, false, pki.NewKey)
	if err != nil {
		t.Fatal(err)
	}
	first := a.pair.Cert
	for _, c := range []struct {
		at      time.Time
		signs   bool
		trusted int
	}{
		{a.next(), true, 2}, {first.NotAfter.Add(-lastCall - time.Hour), true, 2}, {first.NotAfter.Add(-lastCall), false, 2},
		{first.NotAfter.Add(-time.Hour), false, 2}, {first.NotAfter, false, 1},
	} {
		if a, err = authorityOf(a.data, c.at, false, pki.NewKey); err != nil {
			t.Fatal(err)
		}
		trusted, _ := pki.ParseCerts(a.trust)
		if a.pair.Cert.Equal(first) != c.signs || len(trusted) != c.trusted {
			t.Errorf("at %s: the first CA signs: %t, %d are trusted", c.at, a.pair.Cert.Equal(first), len(trusted))
		}
	}
	// The operator did not run for years.
	old, err := authorityOf(nil, b0, false, pki.NewKey)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = authorityOf(old.data, old.pair.Cert.NotAfter.Add(time.Hour), false, pki.NewKey); err != nil || a.pair.Cert.Equal(old.pair.Cert) {
		t.Errorf("a CA that has ended still signs: %v", err)
	}
}

// What lies in the Secret is not written in other words: that would roll every pod of a cloud that was adopted.
func TestCAIsKeptToTheByte(t *testing.T) {
	a, err := authorityOf(nil, b0, false, pki.NewKey)
	if err != nil {
		t.Fatal(err)
	}
	a.data[keyCACert] = append([]byte("# the CA of the cloud\n"), a.data[keyCACert]...)
	kept, err := authorityOf(a.data, b0, true, pki.NewKey)
	if err != nil || !bytes.Equal(kept.data[keyCACert], a.data[keyCACert]) || !bytes.Equal(kept.data[keyCAKey], a.data[keyCAKey]) {
		t.Errorf("the CA was rewritten: %v", err)
	}
}

// A leaf is renewed at two thirds of its life, and when the address by which people reach the cloud changes.
func TestLeafIsRenewed(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	leaf := func() *x509.Certificate {
		t.Helper()
		b.reconcile()
		s := &corev1.Secret{}
		b.get(s, "default-certs")
		certs, err := pki.ParseCerts(s.Data[keyServiceCert])
		if err != nil {
			t.Fatal(err)
		}
		return certs[0]
	}
	first := leaf()
	told := b.cloud().Status.Certificates
	if !told.NotAfter.Time.Equal(first.NotAfter) || told.RenewAt.IsZero() || told.CANotAfter.IsZero() {
		t.Errorf("the status says %+v", told)
	}
	b.clock = told.RenewAt.Add(-time.Hour)
	if !leaf().Equal(first) {
		t.Fatal("renewed too early")
	}
	b.clock = told.RenewAt.Add(time.Hour)
	second := leaf()
	if second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
		t.Fatal("not renewed at two thirds of its life")
	}
	cr := b.cloud()
	cr.Spec.LoadBalancerEndpoint = "192.0.2.7"
	if err := b.api.Update(t.Context(), cr); err != nil {
		t.Fatal(err)
	}
	if third := leaf(); third.Equal(second) || third.VerifyHostname("192.0.2.7") != nil {
		t.Fatal("a new address is not in the certificate")
	}
}

// Certificates of a person are used and never written; what keeps them from being used is said.
func TestSuppliedCertificates(t *testing.T) {
	ca, err := pki.NewCA(b0, "of the house", nil)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(names ...string) *corev1.Secret {
		pair, err := pki.Issue(ca, pki.Request{CommonName: "cloud", DNSNames: names, NotBefore: b0, Usage: pki.Server})
		if err != nil {
			t.Fatal(err)
		}
		data, err := encodePair(pair, keyServiceCert, keyServiceKey)
		if err != nil {
			t.Fatal(err)
		}
		data[keyCACert] = ca.CertPEM()
		return &corev1.Secret{Data: data, ObjectMeta: metav1.ObjectMeta{
			Namespace: "onecloud", Name: "default-certs", Annotations: map[string]string{v1alpha1.AnnotationSupplied: "true"},
		}}
	}
	good := issue("*.onecloud.svc")
	b := newBench(t, interceptor.Funcs{}, newCloud(), good)
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, good.Name)
	if !maps.EqualFunc(now.Data, good.Data, bytes.Equal) || len(now.OwnerReferences) > 0 || len(now.Labels) > 0 {
		t.Error("the Secret was written")
	}
	if told := b.cloud().Status.Certificates; !told.Supplied || told.NotAfter.IsZero() {
		t.Errorf("the status says %+v", told)
	}
	b.get(&corev1.Secret{}, "default-etcd-ca") // etcd's own

	other := issue("example.com")
	missing := issue("*.onecloud.svc")
	delete(missing.Data, keyServiceKey)
	stranger := issue("*.onecloud.svc")
	stranger.Data[keyServiceKey] = other.Data[keyServiceKey]
	for want, s := range map[string]*corev1.Secret{"default-keystone.onecloud.svc": other, "service.key is missing": missing, "belongs to another": stranger} {
		b := newBench(t, interceptor.Funcs{}, newCloud(), s)
		if _, err := b.r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), v1alpha1.AnnotationSupplied) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

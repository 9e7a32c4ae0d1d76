// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// store issues what is due, and stores it as the operator does: a Secret keeps its time of creation.
func store(t *testing.T, w Wanted, found map[string]*corev1.Secret) Certificates {
	t.Helper()
	p, err := w.Plan(found)
	require.NoError(t, err)
	c, err := p.Apply()
	require.NoError(t, err)
	for _, s := range c.Secrets {
		if found[s.Name] == nil {
			found[s.Name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.Name, CreationTimestamp: metav1.NewTime(w.Now)}}
		}
		found[s.Name].Data = s.Data
	}
	return c
}

// Most services get etcd's client certificate from the identity service when they start, and keep it. A new one reaches them only with a new service
// certificate, for which their pods restart.
func TestServiceCertificateFollowsThatOfEtcd(t *testing.T) {
	w := Wanted{Cluster: "default", Namespace: "onecloud", Names: []string{"service"}, Now: b0}
	found := map[string]*corev1.Secret{}
	apply := func() (service, client []byte) {
		t.Helper()
		store(t, w, found)
		return found["default-certs"].Data[keyServiceCert], found["default-etcd-client"].Data["etcd-client.crt"]
	}
	service, client := apply()
	w.Now, w.Names = b0.Add(500*24*time.Hour), append(w.Names, "cloud.example.com") // a new address
	named, kept := apply()
	if bytes.Equal(named, service) || !bytes.Equal(kept, client) {
		t.Fatal("the name is missing, or etcd's client certificate is new")
	}
	w.Now = b0.Add(540 * 24 * time.Hour)
	followed, renewed := apply()
	if bytes.Equal(renewed, client) || bytes.Equal(followed, named) {
		t.Errorf("after two thirds of its lifetime: client certificate renewed %t, service certificate too %t", !bytes.Equal(renewed, client), !bytes.Equal(followed, named))
	}
	if again, still := apply(); !bytes.Equal(again, followed) || !bytes.Equal(still, renewed) {
		t.Error("they are issued again")
	}
	// A lost one, as in an adopted cloud, is issued without a restart of everything.
	delete(found, "default-etcd-client")
	if again, issued := apply(); !bytes.Equal(again, followed) || bytes.Equal(issued, renewed) {
		t.Error("a missing client certificate replaces that of the services")
	}
}

// The identity service takes a chain with a certificate, not a list of CAs: while the CA is replaced, only the one that signs.
func TestCAOfEtcdsClientsIsOne(t *testing.T) {
	w := Wanted{Cluster: "default", Namespace: "onecloud", Names: []string{"service"}, Now: b0, Served: map[string]string{}}
	found := map[string]*corev1.Secret{}
	for step := range 5 {
		c := store(t, w, found)
		cas, err := pki.ParseCerts([]byte(c.EtcdClient.CAPEM))
		require.NoError(t, err)
		client, err := pki.ParseCerts([]byte(c.EtcdClient.PEM))
		require.NoError(t, err)
		if len(cas) != 1 || !pki.SignedBy(client[0], cas[0]) {
			t.Errorf("step %d, %q: %d CAs", step, c.Status.Message, len(cas))
		}
		w.Served = c.Trust // all pods have followed
		w.Now = b0.Add(7 * 365 * 24 * time.Hour)
	}
}

// Supplied certificates come and go without a change of etcd's. When etcd's client certificate is renewed, the pods restart all the same, and not before.
func TestSuppliedCertificateAndThoseOfEtcd(t *testing.T) {
	w := Wanted{Cluster: "default", Namespace: "onecloud", Names: []string{"default-keystone.onecloud.svc"}, Now: b0}
	found := map[string]*corev1.Secret{}
	apply := func() Certificates {
		t.Helper()
		return store(t, w, found)
	}
	own := apply()
	supplied := found["default-certs"].DeepCopy()
	supplied.Annotations = map[string]string{v1alpha1.AnnotationSupplied: "true"}
	found[supplied.Name] = supplied
	if kept := apply(); kept.EtcdHash != own.EtcdHash {
		t.Error("the supplied certificate replaces those of etcd, whose members would reject each other")
	}
	delete(found, supplied.Name)
	if back := apply(); back.EtcdHash != own.EtcdHash || back.CertHash == own.CertHash || back.Status.Supplied {
		t.Error("the deletion of the supplied certificate replaces those of etcd")
	}
	maps.DeleteFunc(found, func(name string, _ *corev1.Secret) bool { return name != supplied.Name })
	found[supplied.Name] = supplied
	if first := apply(); first.CertHash != own.CertHash || apply().CertHash != first.CertHash {
		t.Error("the first client certificate restarts all pods")
	}
	w.Now = b0.Add(540 * 24 * time.Hour)
	renewed := apply()
	if renewed.CertHash == own.CertHash || !renewed.Status.Supplied {
		t.Error("the pods keep the earlier client certificate")
	}
	if apply().CertHash != renewed.CertHash {
		t.Error("they restart again")
	}
}

// Certificates that were issued while a clock was ahead are not valid once it is right: they are issued again, once, and by the same CA.
func TestCertificatesOfTheFutureAreReplaced(t *testing.T) {
	w := Wanted{Cluster: "default", Namespace: "onecloud", Names: []string{"service"}, Now: b0}
	found := map[string]*corev1.Secret{}
	apply := func() (ca, service []byte) {
		t.Helper()
		store(t, w, found)
		return found["default-certs"].Data[keyCACert], found["default-certs"].Data[keyServiceCert]
	}
	ca, _ := apply()
	w.Now = b0.Add(540 * 24 * time.Hour)
	_, ahead := apply()
	w.Now = b0.Add(24 * time.Hour)
	same, now := apply()
	leaf, err := pki.ParseCerts(now)
	if err != nil || leaf[0].NotBefore.After(w.Now) || bytes.Equal(now, ahead) || !bytes.Equal(same, ca) {
		t.Errorf("valid from %s, %v", leaf[0].NotBefore, err)
	}
	if _, again := apply(); !bytes.Equal(again, now) {
		t.Error("they are issued again")
	}
	w.Now = b0.Add(-24 * time.Hour) // of the CA, too: nothing is gained
	_, early := apply()
	if _, again := apply(); !bytes.Equal(again, early) {
		t.Error("a certificate is issued again and again")
	}
}

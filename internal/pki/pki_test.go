// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/test/require"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func newCA(t *testing.T) Pair {
	t.Helper()
	ca, err := NewCA(epoch, "onecloud", nil)
	require.NoError(t, err)
	return ca
}

func issue(t *testing.T, ca Pair, r Request) Pair {
	t.Helper()
	p, err := Issue(ca, r)
	require.NoError(t, err)
	return p
}

func verify(ca, leaf *x509.Certificate, name string, at time.Time, u x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{u}})
	return err
}

func TestServiceCertificate(t *testing.T) {
	ca := newCA(t)
	names := append(ServiceNames("default-region", "onecloud"), "10.1.2.3", "cloud.example.org", "", "10.1.2.3")
	leaf := issue(t, ca, Request{CommonName: "service", Names: names, NotBefore: epoch})

	for _, tc := range []struct {
		name string
		host string
		at   time.Time
		use  x509.ExtKeyUsage
		ok   bool
	}{
		{"short name", "default-region", epoch, x509.ExtKeyUsageServerAuth, true},
		{"namespaced", "default-region.onecloud", epoch, x509.ExtKeyUsageServerAuth, true},
		{"svc", "default-region.onecloud.svc", epoch, x509.ExtKeyUsageServerAuth, true},
		{"fqdn", "default-region.onecloud.svc.cluster.local", epoch, x509.ExtKeyUsageServerAuth, true},
		{"load balancer IP", "10.1.2.3", epoch, x509.ExtKeyUsageServerAuth, true},
		{"load balancer name", "cloud.example.org", epoch, x509.ExtKeyUsageServerAuth, true},
		{"a clock half an hour behind", "default-region", epoch.Add(-30 * time.Minute), x509.ExtKeyUsageServerAuth, true},
		{"day before the end", "default-region", epoch.Add(LeafLifetime - day), x509.ExtKeyUsageServerAuth, true},
		{"other service", "default-glance", epoch, x509.ExtKeyUsageServerAuth, false},
		{"expired", "default-region", epoch.Add(LeafLifetime + day), x509.ExtKeyUsageServerAuth, false},
		{"not yet valid", "default-region", epoch.Add(-day), x509.ExtKeyUsageServerAuth, false},
		{"as a client", "default-region", epoch, x509.ExtKeyUsageClientAuth, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := verify(ca.Cert, leaf.Cert, tc.host, tc.at, tc.use); (err == nil) != tc.ok {
				t.Errorf("verified: %v, want ok=%v", err, tc.ok)
			}
		})
	}
	if n := leaf.Cert.PublicKey.(interface{ Size() int }).Size(); n != 256 {
		t.Errorf("key of %d bytes, want RSA 2048", n)
	}
	if leaf.Cert.SerialNumber.Cmp(ca.Cert.SerialNumber) == 0 {
		t.Error("leaf and CA share a serial number")
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := newCA(t)
	leaf := issue(t, ca, Request{CommonName: "service", NotBefore: epoch})
	for _, tc := range []struct {
		name string
		ca   Pair
		r    Request
		want string
	}{
		{"no CA", Pair{}, Request{CommonName: "x", NotBefore: epoch}, "not a certificate authority"},
		{"a leaf as CA", leaf, Request{CommonName: "x", NotBefore: epoch}, "not a certificate authority"},
		{"no time", ca, Request{CommonName: "x"}, "no time given"},
		{"no name", ca, Request{NotBefore: epoch}, "no common name"},
		{"long name", ca, Request{CommonName: strings.Repeat("x", 65), NotBefore: epoch}, "65 characters"},
		{"ends before it begins", ca, Request{CommonName: "x", NotBefore: epoch, NotAfter: epoch.Add(-2 * day)}, "before it begins"},
		{"after the CA's end", ca, Request{CommonName: "x", NotBefore: epoch.Add(CALifetime + 2*day)}, "before it begins"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Issue(tc.ca, tc.r)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// A continued CA has the key identifier of the old one, even if a different one would be computed: OpenSSL uses it to find an issuer.
func TestContinueCA(t *testing.T) {
	old, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, SubjectKeyId: []byte{1, 2, 3}, NotBefore: epoch, NotAfter: epoch.Add(day),
		BasicConstraintsValid: true, IsCA: true}, nil, nil)
	require.NoError(t, err)
	next, err := ContinueCA(epoch.Add(day), old)
	require.NoError(t, err)
	leaf, err := Issue(next, Request{CommonName: "a", NotBefore: epoch.Add(day)})
	require.NoError(t, err)
	if !bytes.Equal(leaf.Cert.AuthorityKeyId, old.Cert.SubjectKeyId) || !SignedBy(leaf.Cert, old.Cert) || next.Cert.Subject.CommonName != "ca" {
		t.Errorf("the authority of a leaf is %x", leaf.Cert.AuthorityKeyId)
	}
}

func TestLeafNeverOutlivesCA(t *testing.T) {
	ca := newCA(t)
	leaf := issue(t, ca, Request{CommonName: "service", NotBefore: epoch.Add(CALifetime - 10*day)})
	if !leaf.Cert.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Errorf("leaf ends %v, CA %v", leaf.Cert.NotAfter, ca.Cert.NotAfter)
	}
}

func TestNeedsRenewal(t *testing.T) {
	cert := &x509.Certificate{NotBefore: epoch, NotAfter: epoch.Add(90 * day)}
	for _, tc := range []struct {
		name string
		cert *x509.Certificate
		at   time.Time
		want bool
	}{
		{"new", cert, epoch, false},
		{"just before two thirds", cert, epoch.Add(60*day - time.Second), false},
		{"at two thirds", cert, epoch.Add(60 * day), true},
		{"expired", cert, epoch.Add(91 * day), true},
		{"none", nil, epoch, true},
	} {
		if got := NeedsRenewal(tc.cert, tc.at); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestCovers(t *testing.T) {
	ca := newCA(t)
	leaf := issue(t, ca, Request{CommonName: "service", Names: []string{"a", "*.b.svc", "10.0.0.1", "fd00::1"}, NotBefore: epoch})
	got := Covers(leaf.Cert, []string{"a", "x.b.svc", "10.0.0.1", "fd00::1", "b", "10.0.0.2", "x.y.b.svc", "b", ""})
	if want := []string{"b", "10.0.0.2", "x.y.b.svc"}; !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	if got := Covers(nil, []string{"a"}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("no certificate covers: missing %v", got)
	}
}

func TestSignedBy(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	leaf := issue(t, ca, Request{CommonName: "service", NotBefore: epoch})
	if !SignedBy(leaf.Cert, ca.Cert) {
		t.Error("own CA not recognised")
	}
	if SignedBy(leaf.Cert, other.Cert) {
		t.Error("a CA of the same name with another key passes for the signer")
	}
}

func TestPEM(t *testing.T) {
	ca := newCA(t)
	leaf := issue(t, ca, Request{CommonName: "service", Names: []string{"a"}, NotBefore: epoch})
	key, err := leaf.KeyPEM()
	require.NoError(t, err)
	if !bytes.HasPrefix(key, []byte("-----BEGIN RSA PRIVATE KEY-----")) {
		t.Errorf("key starts %.40q", key)
	}
	back, err := ParsePair(slices.Concat(leaf.CertPEM(), ca.CertPEM()), key)
	require.NoError(t, err)
	if !back.Cert.Equal(leaf.Cert) {
		t.Error("another certificate came back")
	}
	if _, err := tls.X509KeyPair(leaf.CertPEM(), key); err != nil {
		t.Errorf("crypto/tls refuses it: %v", err)
	}
	caKey, _ := ca.KeyPEM()
	if _, err := ParsePair(leaf.CertPEM(), caKey); err == nil || !strings.Contains(err.Error(), "another certificate") {
		t.Errorf("a foreign key was accepted: %v", err)
	}

	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	sec1, err := x509.MarshalECPrivateKey(ec)
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"sec1":  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
		"pkcs8": mustKeyPEM(t, Pair{Key: ec}),
	} {
		k, err := ParseKey(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !ec.PublicKey.Equal(k.Public()) {
			t.Errorf("%s: another key came back", name)
		}
	}
	for _, bad := range []string{"", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := ParseCerts([]byte(bad)); err == nil {
			t.Errorf("%q parsed as certificates", bad)
		}
		if _, err := ParseKey([]byte(bad)); err == nil {
			t.Errorf("%q parsed as a key", bad)
		}
	}
}

func mustKeyPEM(t *testing.T, p Pair) []byte {
	t.Helper()
	b, err := p.KeyPEM()
	require.NoError(t, err)
	return b
}

func TestSplitNames(t *testing.T) {
	dns, ips := splitNames([]string{"a", "", "10.0.0.1", "[fd00::1]", "a", "b.c"})
	if diff := cmp.Diff([]string{"a", "b.c"}, dns); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")}, ips); diff != "" {
		t.Error(diff)
	}
}

func TestEtcd(t *testing.T) {
	ca := newCA(t)
	req := EtcdRequests("default-etcd", "onecloud", []string{"10.9.9.9"}, epoch, time.Time{})
	server, peer, client := issue(t, ca, req.Server), issue(t, ca, req.Peer), issue(t, ca, req.Client)
	for _, tc := range []struct {
		name string
		leaf Pair
		host string
		use  x509.ExtKeyUsage
		ok   bool
	}{
		{"server by service", server, "default-etcd.onecloud.svc", x509.ExtKeyUsageServerAuth, true},
		{"server by short name", server, "default-etcd", x509.ExtKeyUsageServerAuth, true},
		{"server by member", server, "default-etcd-0.default-etcd.onecloud.svc", x509.ExtKeyUsageServerAuth, true},
		{"server on loopback", server, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		{"server on IPv6 loopback", server, "::1", x509.ExtKeyUsageServerAuth, true},
		{"server by load balancer", server, "10.9.9.9", x509.ExtKeyUsageServerAuth, true},
		{"server of another namespace", server, "default-etcd.other.svc", x509.ExtKeyUsageServerAuth, false},
		{"peer as server", peer, "default-etcd-2.default-etcd.onecloud.svc.cluster.local", x509.ExtKeyUsageServerAuth, true},
		{"peer as client", peer, "", x509.ExtKeyUsageClientAuth, true},
		{"peer by load balancer", peer, "10.9.9.9", x509.ExtKeyUsageServerAuth, false},
		{"client", client, "", x509.ExtKeyUsageClientAuth, true},
		{"client as server", client, "", x509.ExtKeyUsageServerAuth, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := verify(ca.Cert, tc.leaf.Cert, tc.host, epoch, tc.use); (err == nil) != tc.ok {
				t.Errorf("verified: %v, want ok=%v", err, tc.ok)
			}
		})
	}
}

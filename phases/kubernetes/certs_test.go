// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

type reporter struct{ changed []string }

func (*reporter) Info(string, ...any)           {}
func (*reporter) Output(string)                 {}
func (*reporter) Waiting(string, string)        {}
func (*reporter) Progress(int64, int64, string) {}
func (r *reporter) Changed(f string, _ ...any)  { r.changed = append(r.changed, f) }

func fakeHost(t *testing.T, rec *host.Recorder) *host.Host {
	t.Helper()
	if rec == nil {
		rec = &host.Recorder{}
	}
	h, err := host.Fake(t.Context(), t.TempDir(), testConfig(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func write(t *testing.T, h *host.Host, name, data string) {
	t.Helper()
	if err := h.Files.WriteFile(name, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func (p pair) keyPEM(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(p.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func issue(t *testing.T, ca *pair, notAfter time.Time, names ...string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	parent, signer := tmpl, crypto.Signer(key)
	if ca == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

func TestCertificateProblems(t *testing.T) {
	later := time.Now().Add(24 * time.Hour)
	ca, other := issue(t, nil, later), issue(t, nil, later)
	names := apiServerNames(testConfig())
	good := issue(t, &ca, later, names...)
	apiserver := certificates()[3]
	tests := map[string]struct {
		cert, key string
		want      string // part of the problem; "" means none
	}{
		"good":            {good.pem, good.keyPEM(t), ""},
		"missing":         {"", "", missing},
		"no key":          {good.pem, "", "key does not exist"},
		"other's key":     {good.pem, ca.keyPEM(t), "another certificate's"},
		"torn":            {good.pem[:60], good.keyPEM(t), "no certificate"},
		"other authority": {issue(t, &other, later, names...).pem, "", "key does not exist"},
		"lacks a name":    {"lacks", "", "not made for"},
		"expired":         {"expired", "", "expired at"},
		"wrong authority": {"wrong", "", "not signed by"},
	}
	made := map[string]pair{
		"lacks":   issue(t, &ca, later, "kubernetes"),
		"expired": issue(t, &ca, time.Now().Add(-time.Hour), names...),
		"wrong":   issue(t, &other, later, names...),
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, nil)
			write(t, h, pkiDir+"/ca.crt", ca.pem)
			write(t, h, pkiDir+"/ca.key", ca.keyPEM(t))
			if p, ok := made[tt.cert]; ok {
				tt.cert, tt.key = p.pem, p.keyPEM(t)
			}
			if tt.cert != "" {
				write(t, h, pkiDir+"/apiserver.crt", tt.cert)
			}
			if tt.key != "" {
				write(t, h, pkiDir+"/apiserver.key", tt.key)
			}
			got, err := apiserver.problem(h, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Fatalf("problem %q, want %q", got, tt.want)
			}
			if done, _ := apiserver.done(t.Context(), h); done != (tt.want == "") {
				t.Errorf("done is %t", done)
			}
			// Running the phase must first take away what kubeadm would stumble over, and nothing else.
			if err := apiserver.clear(t.Context(), h, &reporter{}); err != nil {
				t.Fatal(err)
			}
			if kept := h.Files.Exists(pkiDir + "/apiserver.crt"); kept != (tt.want == "") {
				t.Errorf("kept is %t", kept)
			}
		})
	}
}

func TestAuthorityIsNeverReplaced(t *testing.T) {
	h := fakeHost(t, nil)
	ca := issue(t, nil, time.Now().Add(-time.Hour))
	write(t, h, pkiDir+"/ca.crt", ca.pem)
	write(t, h, pkiDir+"/ca.key", ca.keyPEM(t))
	err := certificates()[0].clear(t.Context(), h, &reporter{})
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-4030" {
		t.Errorf("an expired authority gives %v", err)
	}
	if !h.Files.Exists(pkiDir + "/ca.crt") {
		t.Error("the authority was removed")
	}
}

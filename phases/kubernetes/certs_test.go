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
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

type reporter struct {
	workflow.Discard
	changed []string
}

func (r *reporter) Changed(f string, _ ...any) { r.changed = append(r.changed, f) }

func fakeHost(t *testing.T, rec *host.Recorder) *host.Host {
	t.Helper()
	if rec == nil {
		rec = &host.Recorder{}
	}
	h, err := host.Fake(t.Context(), t.TempDir(), testConfig(), rec)
	require.NoError(t, err)
	return h
}

func write(t *testing.T, h *host.Host, name, data string) {
	t.Helper()
	require.NoError(t, h.Files.WriteFile(name, []byte(data), 0o600))
}

type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func (p pair) keyPEM(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(p.key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func issue(t *testing.T, ca *pair, notAfter time.Time, names ...string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
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
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return pair{cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

func TestCertificateProblems(t *testing.T) {
	later := time.Now().Add(24 * time.Hour)
	ca, other := issue(t, nil, later), issue(t, nil, later)
	good, expired, wrong := issue(t, &ca, later), issue(t, &ca, time.Now().Add(-time.Hour)), issue(t, &other, later)
	apiserver := certificates()[3]
	for name, tt := range map[string]struct {
		cert, key string
		changed   bool
		want      string // part of the problem; "" means no problem
		gone      bool
	}{
		"good":                  {cert: good.pem, key: good.keyPEM(t)},
		"another configuration": {cert: good.pem, key: good.keyPEM(t), changed: true, gone: true},
		"missing":               {want: missing, gone: true},
		"no key":                {cert: good.pem, want: "key does not exist", gone: true},
		"other's key":           {cert: good.pem, key: ca.keyPEM(t), want: "does not match", gone: true},
		"torn":                  {cert: good.pem[:60], key: good.keyPEM(t), want: "failed to find any PEM data", gone: true},
		"expired":               {cert: expired.pem, key: expired.keyPEM(t), want: "expired at", gone: true},
		"wrong authority":       {cert: wrong.pem, key: wrong.keyPEM(t), want: "not signed by", gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, nil)
			write(t, h, pkiDir+"/ca.crt", ca.pem)
			write(t, h, pkiDir+"/ca.key", ca.keyPEM(t))
			if tt.cert != "" {
				write(t, h, pkiDir+"/apiserver.crt", tt.cert)
			}
			if tt.key != "" {
				write(t, h, pkiDir+"/apiserver.key", tt.key)
			}
			got, err := apiserver.problem(h, time.Now())
			require.NoError(t, err)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Fatalf("problem %q, want %q", got, tt.want)
			}
			// Running the phase must first remove what kubeadm would reject or keep, and nothing else.
			require.NoError(t, apiserver.clear(h, &reporter{}, tt.changed))
			if gone := !h.Files.Exists(pkiDir + "/apiserver.crt"); gone != tt.gone {
				t.Errorf("gone is %t", gone)
			}
		})
	}
}

// A phase is done if it succeeded with this configuration and its outputs exist.
func TestPhaseIsDone(t *testing.T) {
	h := fakeHost(t, nil)
	files := kubeadmPhase{name: "x", args: []string{"init", "phase", "x"}, check: filesThere("/etc/x")}.phase()
	done := func(want bool, what string) {
		t.Helper()
		if got, err := files.Check(t.Context(), h); got != want || err != nil {
			t.Errorf("%s: done %t, %v", what, got, err)
		}
	}
	write(t, h, "/etc/x", "")
	done(false, "interrupted before its end was noted")
	require.NoError(t, files.Run(t.Context(), h, &reporter{}))
	done(true, "run")
	h.Config.Cluster.Token = "abcdef.0123456789abcdef"
	done(true, "another token")
	h.Config.Cluster.APIServerCertExtraSANs = []string{"api.example.org"}
	done(false, "a different configuration")
	h.Config.Cluster.APIServerCertExtraSANs = nil
	require.NoError(t, h.Files.Remove("/etc/x"))
	done(false, "its output is gone")
}

func TestAuthorityIsNeverReplaced(t *testing.T) {
	h := fakeHost(t, nil)
	ca := issue(t, nil, time.Now().Add(-time.Hour))
	write(t, h, pkiDir+"/ca.crt", ca.pem)
	write(t, h, pkiDir+"/ca.key", ca.keyPEM(t))
	err := certificates()[0].clear(h, &reporter{}, true)
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-4030" {
		t.Errorf("an expired authority gives %v", err)
	}
	if !h.Files.Exists(pkiDir + "/ca.crt") {
		t.Error("the authority was removed")
	}
}

// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// Wherever it is interrupted, the data of the server is kept, and an empty directory does not pass for a complete copy.
func TestEmptyCutOff(t *testing.T) {
	for name, files := range map[string][]string{
		"before":                 {"complete", "data/old", "data.kept/older"},
		"its mark was replaced":  {"keeping", "data/old"},
		"its data was put aside": {"keeping", "data.kept/old", "data/made-by-the-pod"},
		"it cannot go on":        {"complete/busy", "data/old"}, // the mark cannot be removed
	} {
		dir := t.TempDir()
		for _, f := range files {
			f = filepath.Join(dir, f)
			require.NoError(t, os.MkdirAll(filepath.Dir(f), 0o700))
			require.NoError(t, os.WriteFile(f, nil, 0o600))
		}
		f := Files{Dir: dir}
		err := f.empty(t.Context(), Programs{Install: []string{"true"}})
		if (err != nil) != (name == "it cannot go on") {
			t.Errorf("%s: %v", name, err)
		}
		if exists(f.complete()) || !exists(filepath.Join(dir, "data.kept", "old")) || exists(filepath.Join(dir, "data.kept", "older")) || exists(f.data()) {
			t.Errorf("%s: complete %t, kept %t", name, exists(f.complete()), exists(filepath.Join(dir, "data.kept", "old")))
		}
	}
}

// certified returns the certificates of a server, issued by the CA.
func certified(t *testing.T, ca pki.Pair) *certificates {
	t.Helper()
	dir := t.TempDir()
	c := &certificates{name: First, authority: ca, names: []string{"server"}, files: Files{
		CA: filepath.Join(dir, "ca.crt"), Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}}
	require.NoError(t, c.ensure())
	return c
}

// A CA that expired after ten years is renewed: the server starts, and the other one, which has the former CA, trusts it.
func TestAuthorityOfLongAgo(t *testing.T) {
	now := time.Now()
	ca, err := pki.NewCA(now.Add(-pki.CALifetime-24*time.Hour), "ocadm-mysql", nil)
	require.NoError(t, err)
	c := certified(t, ca)
	raw, err := os.ReadFile(c.files.Certificate)
	require.NoError(t, err)
	certs, err := pki.ParseCerts(raw)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.Cert)
	if _, err := certs[0].Verify(x509.VerifyOptions{DNSName: "server", Roots: roots}); err != nil {
		t.Error(err)
	}
	if !pki.SignedBy(certs[0], ca.Cert) {
		t.Error("the authority of before has not signed the certificate")
	}
}

// An agent that was killed while writing a certificate leaves files that do not match. The server would not start with them.
func TestCertificateCutOff(t *testing.T) {
	ca, err := pki.NewCA(time.Now(), "ocadm-mysql", nil)
	require.NoError(t, err)
	c := certified(t, ca)
	whole, err := os.ReadFile(c.files.Certificate)
	require.NoError(t, err)
	require.NoError(t, c.ensure())
	if again, err := os.ReadFile(c.files.Certificate); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("a good certificate is recreated, %v", err)
	}
	other, err := pki.Issue(ca, pki.Request{CommonName: "other", NotBefore: time.Now(), Small: true})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.files.Certificate, other.CertPEM(), 0o600))
	require.NoError(t, c.ensure())
	if _, err := tls.LoadX509KeyPair(c.files.Certificate, c.files.Key); err != nil {
		t.Error(err)
	}
}

// A failed copy does not start over immediately.
func TestCopyFailed(t *testing.T) {
	a := New(Config{Me: Second, Limits: DefaultLimits(), Files: Files{Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler)})
	l, c := a.local, &a.copier
	l.mode, c.copying = Copying, make(chan error, 1)
	view := func() View {
		return View{Me: a.me, Limits: a.limits, Reached: true, Record: Record{Primary: First, Term: 1}, Mode: l.mode, Complete: exists(l.files.complete()), CopyFailed: c.sinceFailed()}
	}
	c.copying <- errors.New("the disk is full")
	c.collect(t.Context())
	if d := Decide(view()); l.mode != Stopped || d.Act != Wait {
		t.Errorf("%s, %+v", l.mode, d)
	}
}

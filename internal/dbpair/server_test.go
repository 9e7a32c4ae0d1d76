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
)

// Wherever it is cut off, what a server had is kept, and an empty directory does not pass for a whole copy.
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
			if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := &Agent{Files: Files{Dir: dir}, Install: []string{"true"}}
		err := a.empty(t.Context())
		if (err != nil) != (name == "it cannot go on") {
			t.Errorf("%s: %v", name, err)
		}
		if a.complete() || !exists(filepath.Join(dir, "data.kept", "old")) || exists(filepath.Join(dir, "data.kept", "older")) || exists(a.Files.data()) {
			t.Errorf("%s: complete %t, kept %t", name, a.complete(), exists(filepath.Join(dir, "data.kept", "old")))
		}
	}
}

// certified is an agent whose server has a certificate of an authority.
func certified(t *testing.T, ca pki.Pair) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{Me: First, Authority: ca, Names: []string{"server"}, Files: Files{
		CA: filepath.Join(dir, "ca.crt"), Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}}
	if err := a.certificate(); err != nil {
		t.Fatal(err)
	}
	return a
}

// An authority that has ended, after ten years, is continued: the server starts, and the other one, which has the authority of before, trusts it.
func TestAuthorityOfLongAgo(t *testing.T) {
	now := time.Now()
	ca, err := pki.NewCA(now.Add(-pki.CALifetime-24*time.Hour), "ocadm-mysql", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := certified(t, ca)
	raw, err := os.ReadFile(a.Files.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCerts(raw)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Authority.Cert)
	if _, err := certs[0].Verify(x509.VerifyOptions{DNSName: "server", Roots: roots}); err != nil {
		t.Error(err)
	}
	if !pki.SignedBy(certs[0], ca.Cert) {
		t.Error("the authority of before has not signed the certificate")
	}
}

// An agent that was killed between the files of a certificate leaves no pair. The server would not start with it.
func TestCertificateCutOff(t *testing.T) {
	ca, err := pki.NewCA(time.Now(), "ocadm-mysql", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := certified(t, ca)
	whole, err := os.ReadFile(a.Files.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.certificate(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(a.Files.Certificate); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("a good certificate is made anew, %v", err)
	}
	other, err := pki.Issue(ca, pki.Request{CommonName: "other", NotBefore: time.Now(), Small: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.Files.Certificate, other.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.certificate(); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(a.Files.Certificate, a.Files.Key); err != nil {
		t.Error(err)
	}
}

// A copy that failed does not begin anew at once.
func TestCopyFailed(t *testing.T) {
	a := &Agent{Me: Second, Limits: DefaultLimits(), Files: Files{Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler), mode: Copying, copying: make(chan error, 1)}
	view := func() View {
		return View{Me: a.Me, Limits: a.Limits, Reached: true, Record: Record{Primary: First, Term: 1}, Mode: a.mode, Complete: a.complete(), CopyFailed: a.sinceFailedCopy()}
	}
	a.copying <- errors.New("the disk is full")
	a.collectCopy(t.Context())
	if d := Decide(view()); a.mode != Stopped || d.Act != Wait {
		t.Errorf("%s, %+v", a.mode, d)
	}
}

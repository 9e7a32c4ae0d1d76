// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

func issuerIn(t *testing.T, ca pki.Pair, names ...string) Issuer {
	t.Helper()
	dir := t.TempDir()
	key, err := ca.KeyPEM()
	require.NoError(t, err)
	i := Issuer{CACert: filepath.Join(dir, "ca.crt"), CAKey: filepath.Join(dir, "ca.key"), File: filepath.Join(dir, "serving.pem"), Names: names}
	for file, data := range map[string][]byte{i.CACert: ca.CertPEM(), i.CAKey: key} {
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	return i
}

func (i Issuer) serial(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(i.File)
	require.NoError(t, err)
	p, err := pki.ParsePair(raw, raw)
	require.NoError(t, err)
	return p.Cert.SerialNumber.String()
}

func TestIssuer(t *testing.T) {
	now := time.Now()
	i := issuerIn(t, authority(t), "node1", "10.0.0.1")
	renewed := func(at time.Time, want bool) {
		t.Helper()
		why, err := i.Renew(at)
		if err != nil || (why != "") != want {
			t.Fatalf("renewed: %q, %v; want %v", why, err, want)
		}
		if good, err := i.Good(at); !good || err != nil {
			t.Errorf("not good after it: %v", err)
		}
	}
	renewed(now, true)
	renewed(now, false)
	if st, err := os.Stat(i.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(i.File), ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	first := i.serial(t)
	i.Names = append(i.Names, "cloud.example.org")
	renewed(now, true)
	if i.serial(t) == first {
		t.Error("another name, the same certificate")
	}
	renewed(now.Add(pki.LeafLifetime/3*2+time.Hour), true) // long before it expires
	require.NoError(t, os.WriteFile(i.File, []byte("damaged"), 0o600))
	renewed(now, true)
	i.CACert, i.CAKey = func() (string, string) { o := issuerIn(t, authority(t)); return o.CACert, o.CAKey }()
	renewed(now, true)
}

// If the CA key is elsewhere, a good certificate is used until it expires; then the finding names what is missing.
func TestIssuerWithoutKey(t *testing.T) {
	now := time.Now()
	i := issuerIn(t, authority(t), "node1")
	require.NoError(t, os.Rename(i.CAKey, i.CAKey+".away"))
	if _, err := i.Renew(now); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != CodeNoIssuer {
		t.Errorf("without a certificate: %v", err)
	}
	with := i
	with.CAKey += ".away"
	if _, err := with.Renew(now); err != nil {
		t.Fatal(err)
	}
	if why, err := i.Renew(now.Add(pki.LeafLifetime - 48*time.Hour)); why != "" || err != nil {
		t.Errorf("before its end: %q, %v", why, err)
	}
	if _, err := i.Renew(now.Add(pki.LeafLifetime + time.Hour)); err == nil {
		t.Error("an expired certificate is good")
	}
}

// A running server presents the renewed certificate, which clients of the CA accept; clients of another CA accept neither.
func TestKeep(t *testing.T) {
	ca := authority(t)
	i := issuerIn(t, ca, "127.0.0.1")
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan struct{})
	keep := func(ctx context.Context) {
		defer close(kept)
		i.Keep(ctx, time.Millisecond)
	}
	once, done := context.WithCancel(t.Context())
	done()
	keep(once) // the first round runs immediately
	kept = make(chan struct{})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	raw := ca.CertPEM()
	go func() {
		ended <- Listen(ctx, l, ServerTLS(CertificateFiles(i.File, i.File), pool(ca)), Handler(newStore(t), &Access{Authority: raw}))
	}()
	ask := func(of pki.Pair) (serial string, err error) {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(of), MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+AuthorityPath, nil)
		require.NoError(t, err)
		res, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", AuthorityPath, res.Status)
		}
		return res.TLS.PeerCertificates[0].SerialNumber.String(), nil
	}
	first := i.serial(t)
	if got, err := ask(ca); err != nil || got != first {
		t.Errorf("shows %s, %v; want %s", got, err, first)
	}
	if _, err := ask(authority(t)); err == nil {
		t.Error("a client of another authority accepts the server")
	}
	i.Names = append(i.Names, "localhost") // any reason to renew
	go keep(ctx)
	for deadline := time.Now().Add(time.Minute); ; {
		if got, err := ask(ca); err != nil {
			t.Fatal(err)
		} else if got != first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the certificate was not renewed")
		}
	}
	if _, err := ask(authority(t)); err == nil {
		t.Error("a client of another authority accepts the renewed certificate")
	}
	stop()
	<-kept
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Anybody may read the CA certificate if it is configured, and nothing else.
func TestAuthorityPath(t *testing.T) {
	s := listen(t, filled(t), nil)
	if res, _ := s.ask(t, s.browser(nil), http.MethodGet, AuthorityPath, ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without one it answers %s", res.Status)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca := authority(t)
	require.NoError(t, os.WriteFile(file, append([]byte("a comment\n"), ca.CertPEM()...), 0o600))
	if raw, err := AuthorityPEM(file); err != nil || string(raw) != string(ca.CertPEM()) {
		t.Errorf("%s, %v", raw, err)
	}
}

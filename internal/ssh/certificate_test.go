// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"yunion.io/x/ocadm/test/require"
)

// signed starts a server with a host key that also has a certificate. Each connection gets a certificate of its own, as if it had been renewed.
func signed(t *testing.T, authority gossh.Signer, key crypto.Signer) (Target, gossh.PublicKey) {
	t.Helper()
	host, err := gossh.NewSignerFromSigner(key)
	require.NoError(t, err)
	return listen(t, func(c net.Conn) {
		cert := &gossh.Certificate{Key: host.PublicKey(), CertType: gossh.HostCert, ValidPrincipals: []string{"127.0.0.1"},
			ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
		if err := cert.SignCert(rand.Reader, authority); err != nil {
			t.Error(err)
		}
		with, err := gossh.NewCertSigner(cert, host)
		if err != nil {
			t.Error(err)
		}
		cfg := &gossh.ServerConfig{NoClientAuth: true}
		cfg.AddHostKey(host)
		cfg.AddHostKey(with)
		logIn(c, cfg)
	}), host.PublicKey()
}

// TestHostCertificate checks that the key of a certificate is pinned, not the certificate, which is renewed.
func TestHostCertificate(t *testing.T) {
	_, ca, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	authority, err := gossh.NewSignerFromKey(ca)
	require.NoError(t, err)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for name, key := range map[string]crypto.Signer{"rsa": long, "ed25519": ed} {
		target, public := signed(t, authority, key)
		for _, pin := range []string{"", "", gossh.FingerprintSHA256(public)} {
			if pin != "" {
				target.HostKey = pin
			}
			c, err := Dial(t.Context(), target, nil)
			if err != nil {
				t.Errorf("%s, pinned %q: %v", name, target.HostKey, err)
				continue
			}
			c.Close()
			if target.HostKey = c.HostKey(); Fingerprint(target.HostKey) != gossh.FingerprintSHA256(public) {
				t.Errorf("%s: pinned %s", name, target.HostKey)
			}
		}
		// The key of the authority is not that of a machine.
		file := filepath.Join(t.TempDir(), "known_hosts")
		line := "# keys\n@cert-authority " + knownhosts.Line([]string{target.hostPort()}, authority.PublicKey()) + "\n"
		require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
		for range 2 {
			if target.HostKey, err = KnownHosts(file).Key(target); err != nil {
				t.Fatal(err)
			}
			c, err := Dial(t.Context(), target, nil)
			if err != nil {
				t.Errorf("%s, with an authority in known_hosts: %v", name, err)
				break
			}
			c.Close()
			require.NoError(t, KnownHosts(file).Add(target, c.HostKey()))
		}
	}
}

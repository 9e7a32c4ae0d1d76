// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/test/require"
)

// listen passes each connection to serve until the test ends. It returns the address, with a password.
func listen(t *testing.T, serve func(net.Conn)) Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return Target{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Credentials: Credentials{Password: "x"}}
}

// logIn serves a login, after which every channel is refused.
func logIn(c net.Conn, cfg *gossh.ServerConfig) {
	_, chans, reqs, err := gossh.NewServerConn(c, cfg)
	if err != nil {
		return
	}
	go gossh.DiscardRequests(reqs)
	for ch := range chans {
		_ = ch.Reject(gossh.Prohibited, "")
	}
}

// A machine has host keys of several types, and the pinned fingerprint may be that of any of them. No other key is accepted.
func TestFingerprintOfAnyKey(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	_, unknown, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	var passwords int
	var mu sync.Mutex
	cfg := &gossh.ServerConfig{PasswordCallback: func(gossh.ConnMetadata, []byte) (*gossh.Permissions, error) {
		mu.Lock()
		defer mu.Unlock()
		passwords++
		return nil, nil
	}}
	prints := map[string]string{}
	for name, key := range map[string]any{"ecdsa": ec, "ed25519": ed, "rsa": long, "": unknown} {
		signer, err := gossh.NewSignerFromKey(key)
		require.NoError(t, err)
		if prints[name] = gossh.FingerprintSHA256(signer.PublicKey()); name != "" {
			cfg.AddHostKey(signer)
		}
	}
	target := listen(t, func(c net.Conn) { logIn(c, cfg) })
	for name, fingerprint := range prints {
		target.HostKey = fingerprint
		c, err := Dial(t.Context(), target, nil)
		if name == "" {
			wantCode(t, err, "OCA-7602", "pinned is "+fingerprint)
			continue
		}
		if err != nil {
			t.Errorf("fingerprint of its %s key: %v", name, err)
			continue
		}
		if got := Fingerprint(c.HostKey()); got != fingerprint {
			t.Errorf("%s: %s", name, got)
		}
		c.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if passwords != len(prints)-1 {
		t.Errorf("sent the password %d times", passwords)
	}
}

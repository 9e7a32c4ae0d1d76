// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// authority returns a CA, and the server arguments for a certificate that it issued.
func authority(t *testing.T, ip string) (ca string, args []string) {
	t.Helper()
	now := time.Now()
	a, err := pki.NewCA(now, "database", nil)
	require.NoError(t, err)
	server, err := pki.Issue(a, pki.Request{CommonName: "Server_Auto_Generated", NotBefore: now, Names: []string{ip}})
	require.NoError(t, err)
	key, err := server.KeyPEM()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string][]byte{"ca.pem": a.CertPEM(), "cert.pem": server.CertPEM(), "key.pem": key} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		args = append(args, "--ssl-"+map[string]string{"ca.pem": "ca", "cert.pem": "cert", "key.pem": "key"}[name]+"="+file)
	}
	return string(a.CertPEM()), args
}

// encrypted reports whether the connection is encrypted, as the server sees it.
func encrypted(t *testing.T, a *Admin) bool {
	t.Helper()
	var name, cipher string
	require.NoError(t, a.db.QueryRow("SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
	return cipher != ""
}

// Each mode works as documented with a server that requires TLS, with one whose certificate has another name, and with one without TLS.
func TestTLS(t *testing.T) {
	ca, args := authority(t, "127.0.0.1")
	otherCA, otherArgs := authority(t, "192.0.2.1")
	only := mariadb.Require(t, mariadb.Options{Args: append(args, "--require-secure-transport=ON")})
	elsewhere := mariadb.Require(t, mariadb.Options{Args: otherArgs})
	plain, insecureTransport := root(t), AccessDenied // MariaDB 10.11's answer
	if server.MySQL {
		without := mariadb.Require(t, mariadb.Options{Args: []string{"--tls-version="}}) // MySQL generates its own certificates
		plain.Port, plain.Password, insecureTransport = without.Port, without.RootPassword, TLSFailed
	}
	for _, c := range []struct {
		name   string
		server *mariadb.Server
		mode   TLSMode
		ca     string
		want   Class
		clear  bool
	}{
		{"the default", only, "", "", "", false},
		{"preferred", only, TLSPreferred, "", "", false},
		{"required", only, TLSRequired, "", "", false},
		{"verify-ca", only, TLSVerifyCA, ca, "", false},
		{"verify-identity", only, TLSVerifyIdentity, ca, "", false},
		{"disabled", only, TLSDisabled, "", insecureTransport, false},
		{"an unknown CA", only, TLSVerifyCA, otherCA, TLSFailed, false},
		{"the system's CAs", only, TLSVerifyCA, "", TLSFailed, false},
		{"identity, an unknown CA", only, TLSVerifyIdentity, otherCA, TLSFailed, false},
		{"another name, verify-ca", elsewhere, TLSVerifyCA, otherCA, "", false},
		{"another name, verify-identity", elsewhere, TLSVerifyIdentity, otherCA, TLSFailed, false},
		{"disabled where it is offered", elsewhere, TLSDisabled, "", "", true},
		{"preferred without TLS", nil, TLSPreferred, "", "", true},
		{"required without TLS", nil, TLSRequired, "", TLSFailed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := plain
			if c.server != nil {
				cfg = Config{Host: c.server.Host, Port: c.server.Port, User: "root", Password: c.server.RootPassword}
			}
			cfg.TLS, cfg.CA = c.mode, c.ca
			a, err := Open(t.Context(), cfg)
			if ClassOf(err) != c.want {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if e, ok := errors.AsType[*Error](err); ok {
				if !strings.Contains(e.Remedy(), "--mysql-tls") {
					t.Errorf("the remedy does not mention TLS: %s", e.Remedy())
				}
				return
			}
			defer a.Close()
			if encrypted(t, a) == c.clear {
				t.Errorf("in clear: %v", !c.clear)
			}
			if _, err := Probe(t.Context(), cfg); err != nil { // logs in again, with another account
				t.Error(err)
			}
		})
	}
}

func TestCheckTLS(t *testing.T) {
	ca, _ := authority(t, "127.0.0.1")
	for _, c := range []struct {
		mode TLSMode
		ca   string
		ok   bool
	}{
		{"", "", true}, {TLSVerifyCA, "", true}, {TLSVerifyCA, ca, true}, {TLSVerifyIdentity, ca, true},
		{"true", "", false}, {TLSPreferred, ca, false}, {TLSVerifyCA, "nonsense", false},
	} {
		if err := CheckTLS(c.mode, c.ca); (err == nil) != c.ok {
			t.Errorf("%q with %d bytes of CA: %v", c.mode, len(c.ca), err)
		}
	}
}

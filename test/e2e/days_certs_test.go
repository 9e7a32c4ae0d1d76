// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/scenario"
)

// leaves are the certificates of a control-plane node, by the authority that signs them.
var leaves = map[string][]string{
	"pki/ca": {"pki/apiserver.crt", "pki/apiserver-kubelet-client.crt", "admin.conf", "controller-manager.conf", "scheduler.conf",
		"/var/lib/kubelet/pki/kubelet-client-current.pem"},
	"pki/etcd/ca":        {"pki/etcd/server.crt", "pki/etcd/peer.crt", "pki/etcd/healthcheck-client.crt", "pki/apiserver-etcd-client.crt"},
	"pki/front-proxy-ca": {"pki/front-proxy-client.crt"},
}

// sleptPastExpiry lets every certificate of all control-plane nodes end an hour ago, as if they had been off for a year. One command on each revives them.
func (s *suite) sleptPastExpiry(t *testing.T) {
	ctx := t.Context()
	for _, node := range controlPlanes {
		s.expire(t, node)
	}
	for _, node := range controlPlanes {
		if _, err := s.On(ctx, node, "sh", "-c", "systemctl stop kubelet; pkill -9 -x kube-apiserver; pkill -9 -x etcd; systemctl start kubelet; true"); err != nil {
			t.Fatal(err)
		}
	}
	s.refused(t, 1, "exit status 43", "certs", "check")
	err := s.Timed("certs renew on three control planes", func() error {
		for _, node := range controlPlanes {
			if _, err := s.On(ctx, node, scenario.Ocadm, "certs", "renew", "--yes", "-o", "json"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.whole(t, 1)
	s.mark(t, "renewed")
	for _, node := range controlPlanes {
		if _, err := s.On(ctx, node, scenario.Ocadm, "certs", "check", "-o", "json"); err != nil {
			t.Errorf("certs check: %v", err)
		}
	}
	// Renewed again, of which nothing has expired: each static pod is restarted behind a gate.
	if err := s.Timed("certs renew --all on one control plane", func() error {
		_, err := s.On(ctx, 2, scenario.Ocadm, "certs", "renew", "--all", "--yes", "-o", "json")
		return err
	}); err != nil {
		t.Error(err)
	}
	s.whole(t, 1)
}

// expire replaces the certificates of a machine with equal ones that have ended.
func (s *suite) expire(t *testing.T, node int) {
	t.Helper()
	dir := t.TempDir()
	get := func(name string) (from, to string, raw []byte) {
		from, to = name, filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if !strings.HasPrefix(name, "/") {
			from = "/etc/kubernetes/" + name
		}
		err := s.Lab.Node(node).CopyOut(t.Context(), from, to)
		if err == nil {
			raw, err = os.ReadFile(to)
		}
		if err != nil {
			t.Fatal(err)
		}
		return from, to, raw
	}
	for ca, files := range leaves {
		_, _, crt := get(ca + ".crt")
		_, _, key := get(ca + ".key")
		authority, err := pki.ParsePair(crt, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			from, to, raw := get(name)
			if strings.HasSuffix(name, ".conf") {
				raw = expiredKubeconfig(t, raw, authority)
			} else {
				raw = expired(t, raw, authority)
			}
			if err := os.WriteFile(to, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := s.Lab.Node(node).CopyIn(t.Context(), to, from); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// expired is a PEM file whose first certificate has ended; what follows, such as its key, stays.
func expired(t *testing.T, raw []byte, ca pki.Pair) []byte {
	t.Helper()
	block, rest := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.Cert, cert.PublicKey, crypto.PrivateKey(ca.Key))
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), rest...)
}

func expiredKubeconfig(t *testing.T, raw []byte, ca pki.Pair) []byte {
	t.Helper()
	c, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range c.AuthInfos {
		u.ClientCertificateData = expired(t, u.ClientCertificateData, ca)
	}
	out, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

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
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

const kubeletCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// leaves lists the certificates of a control-plane node, by the CA that signs them.
var leaves = map[string][]string{
	"pki/ca": {"pki/apiserver.crt", "pki/apiserver-kubelet-client.crt", "admin.conf", "controller-manager.conf", "scheduler.conf",
		kubeletCertificate},
	"pki/etcd/ca":        {"pki/etcd/server.crt", "pki/etcd/peer.crt", "pki/etcd/healthcheck-client.crt", "pki/apiserver-etcd-client.crt"},
	"pki/front-proxy-ca": {"pki/front-proxy-client.crt"},
}

// sleeper is the worker whose kubelet's certificate expires.
const sleeper = 4

// sleptPastExpiry makes all certificates of all control-plane nodes, and that of a worker, expire an hour ago, as if they had been off for a year.
// One command on each control-plane node revives it, and the worker joins again without a reset.
func (s *suite) sleptPastExpiry(t *testing.T) {
	ctx := t.Context()
	s.joinSleeper(t)
	for _, node := range controlPlanes {
		s.expire(t, node)
	}
	s.expireKubelet(t, sleeper)
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
	require.NoError(t, err)
	s.whole(t, 1)
	s.mark(t, "renewed")
	for _, node := range controlPlanes {
		if _, err := s.On(ctx, node, scenario.Ocadm, "certs", "check", "-o", "json"); err != nil {
			t.Errorf("certs check: %v", err)
		}
	}
	// Renew them again, although none has expired: each static pod restarts in turn.
	if err := s.Timed("certs renew --all on one control plane", func() error {
		_, err := s.On(ctx, 2, scenario.Ocadm, "certs", "renew", "--all", "--yes", "-o", "json")
		return err
	}); err != nil {
		t.Error(err)
	}
	s.whole(t, 1)
	s.wakeSleeper(t)
}

// emptied leaves empty certificate files, a key and a kubeconfig on two nodes, as after a power cut. The static pods that read them fail. One command
// creates the files again.
func (s *suite) emptied(t *testing.T) {
	ctx := t.Context()
	for node, files := range map[int]string{2: "pki/apiserver.crt admin.conf", 3: "pki/etcd/peer.key pki/apiserver-etcd-client.crt scheduler.conf"} {
		script := "cd /etc/kubernetes; for f in " + files + "; do : >$f; done; systemctl stop kubelet; pkill -9 -x kube-apiserver; pkill -9 -x etcd; systemctl start kubelet; true"
		if _, err := s.On(ctx, node, "sh", "-c", script); err != nil {
			t.Fatal(err)
		}
		out, err := s.On(ctx, node, scenario.Ocadm, "certs", "check")
		if err == nil || !strings.Contains(out, "damaged") {
			t.Errorf("certs check on node %d: %s, %v", node, out, err)
		}
		require.NoError(t, s.Timed("certs renew with empty files", func() error {
			_, err := s.On(ctx, node, scenario.Ocadm, "certs", "renew", "--yes", "-o", "json")
			return err
		}))
		s.whole(t, 1)
		if _, err := s.On(ctx, node, scenario.Ocadm, "certs", "check"); err != nil {
			t.Errorf("certs check on node %d: %v", node, err)
		}
		if _, err := s.On(ctx, node, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes"); err != nil {
			t.Errorf("node %d: %v", node, err)
		}
	}
}

// joinSleeper joins the worker, for the first time or again, with little disk space, because the machines share one disk.
func (s *suite) joinSleeper(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Join(t.Context(), sleeper, "--enable-host-agent=false", "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"))
	if _, err := s.Kubectl(t.Context(), "wait", "node/node4", "--for=condition=Ready", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
}

// expireKubelet makes the certificate of a worker's kubelet expire, so that the kubelet cannot renew it.
func (s *suite) expireKubelet(t *testing.T, node int) {
	t.Helper()
	if _, err := s.On(t.Context(), node, "systemctl", "stop", "kubelet"); err != nil {
		t.Fatal(err)
	}
	file, err := s.On(t.Context(), node, "readlink", "-f", kubeletCertificate) // it must stay a link, or the kubelet stores no other certificate
	require.NoError(t, err)
	s.expireFiles(t, node, 1, map[string][]string{"pki/ca": {strings.TrimSpace(file)}})
	if _, err := s.On(t.Context(), node, "systemctl", "start", "kubelet", "--no-block"); err != nil {
		t.Fatal(err)
	}
}

// wakeSleeper joins the worker again with a new token, without a reset. Its pods keep running: their containers are the same afterwards.
func (s *suite) wakeSleeper(t *testing.T) {
	ctx := t.Context()
	if _, err := s.Kubectl(ctx, "wait", "node/node4", "--for=condition=Ready=Unknown", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	shims := func() string {
		t.Helper()
		out, err := s.On(ctx, sleeper, "sh", "-c", "pgrep -x kube-proxy; pgrep -x flanneld; true")
		require.NoError(t, err)
		return out
	}
	before := shims()
	s.joinSleeper(t)
	if after := shims(); before == "" || after != before {
		t.Errorf("the processes of pods were %q and are %q", before, after)
	}
	if _, err := s.On(ctx, sleeper, "openssl", "x509", "-checkend", "0", "-noout", "-in", kubeletCertificate); err != nil {
		t.Errorf("the certificate of the kubelet: %v", err)
	}
}

// expire replaces the certificates of a machine with equal but expired ones.
func (s *suite) expire(t *testing.T, node int) {
	t.Helper()
	s.expireFiles(t, node, node, leaves)
}

// expireFiles replaces certificates of a machine, given by the CAs that sign them, which may be on another machine.
func (s *suite) expireFiles(t *testing.T, node, authorities int, leaves map[string][]string) {
	t.Helper()
	dir := t.TempDir()
	get := func(node int, name string) (from, to string, raw []byte) {
		from, to = name, filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if !strings.HasPrefix(name, "/") {
			from = "/etc/kubernetes/" + name
		}
		err := s.Lab.Node(node).CopyOut(t.Context(), from, to)
		if err == nil {
			raw, err = os.ReadFile(to)
		}
		require.NoError(t, err)
		return from, to, raw
	}
	for ca, files := range leaves {
		_, _, crt := get(authorities, ca+".crt")
		_, _, key := get(authorities, ca+".key")
		authority, err := pki.ParsePair(crt, key)
		require.NoError(t, err)
		for _, name := range files {
			from, to, raw := get(node, name)
			if strings.HasSuffix(name, ".conf") {
				raw = expiredKubeconfig(t, raw, authority)
			} else {
				raw = expired(t, raw, authority)
			}
			require.NoError(t, os.WriteFile(to, raw, 0o600))
			require.NoError(t, s.Lab.Node(node).CopyIn(t.Context(), to, from))
		}
	}
}

// expired replaces the first certificate of a PEM file with an expired one. What follows, such as its key, stays.
func expired(t *testing.T, raw []byte, ca pki.Pair) []byte {
	t.Helper()
	block, rest := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	cert.NotBefore, cert.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.Cert, cert.PublicKey, crypto.PrivateKey(ca.Key))
	require.NoError(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), rest...)
}

func expiredKubeconfig(t *testing.T, raw []byte, ca pki.Pair) []byte {
	t.Helper()
	c, err := clientcmd.Load(raw)
	require.NoError(t, err)
	for _, u := range c.AuthInfos {
		u.ClientCertificateData = expired(t, u.ClientCertificateData, ca)
	}
	out, err := clientcmd.Write(*c)
	require.NoError(t, err)
	return out
}

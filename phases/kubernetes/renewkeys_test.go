// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// A self-signed serving certificate is recreated with its names.
func TestKubeletServing(t *testing.T) {
	h := controlPlaneEnding(t, 90*day)
	old, key, err := certutil.GenerateSelfSignedCertKey("node1", nil, []string{"node1.example"})
	require.NoError(t, err)
	write(t, h, kubeletServing, string(old))
	write(t, h, kubeletServingKey, string(key))
	before, err := readCertificate(h, kubeletServing)
	require.NoError(t, err)
	require.NoError(t, signKubeletServing(h, time.Now()))
	after, err := readCertificate(h, kubeletServing)
	require.NoError(t, err)
	if after.Equal(before) || !slices.Equal(after.DNSNames, before.DNSNames) || after.CheckSignature(after.SignatureAlgorithm, after.RawTBSCertificate, after.Signature) != nil {
		t.Errorf("%v became %v", before.DNSNames, after.DNSNames)
	}
	if _, err := tls.LoadX509KeyPair(h.Files.Path(kubeletServing), h.Files.Path(kubeletServingKey)); err != nil {
		t.Error(err)
	}
}

// The served certificate is compared with the file, although the server wants a client certificate and gets none.
func TestServesWith(t *testing.T) {
	h := controlPlaneEnding(t, 90*day)
	pair, err := tls.LoadX509KeyPair(h.Files.Path(pkiDir+"/apiserver.crt"), h.Files.Path(pkiDir+"/apiserver.key"))
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake() //nolint:forcetypeassert // the listener returns this type; the client ends it
			_ = c.Close()
		}
	}()
	if why := servesWith(t.Context(), h, l.Addr().String(), pkiDir+"/apiserver.crt"); why != "" {
		t.Error(why)
	}
	if why := servesWith(t.Context(), h, l.Addr().String(), pkiDir+"/front-proxy-client.crt"); !strings.Contains(why, "it still shows") {
		t.Errorf("another certificate: %q", why)
	}
}

// The kubelet does not start with one file of the pair, or with two that do not match, as after a power cut. A renewal changes one file only.
func TestKubeletServingPair(t *testing.T) {
	h := controlPlaneEnding(t, 300*day)
	crt, key, err := certutil.GenerateSelfSignedCertKey("node1", nil, nil)
	require.NoError(t, err)
	_, other, err := certutil.GenerateSelfSignedCertKey("node1", nil, nil)
	require.NoError(t, err)
	write(t, h, kubeletServing, string(crt))
	write(t, h, kubeletServingKey, string(key))
	require.NoError(t, signKubeletServing(h, time.Now()))
	if h.Files.Text(kubeletServingKey) != string(key) || h.Files.Text(kubeletServing) == string(crt) {
		t.Error("a renewal changes the key or keeps the certificate")
	}
	for name, c := range map[string]struct{ crt, key, state string }{
		"a pair":                   {string(crt), string(key), CertificateValid},
		"another key":              {string(crt), string(other), CertificateDamaged},
		"no key":                   {string(crt), "", CertificateDamaged},
		"an unreadable key":        {string(crt), "x", CertificateDamaged},
		"no certificate":           {"", string(key), CertificateDamaged},
		"an unreadable one":        {"x", string(key), CertificateDamaged},
		"an unreadable one, alone": {"x", "", CertificateDamaged},
		"nothing":                  {},
	} {
		for file, text := range map[string]string{kubeletServing: c.crt, kubeletServingKey: c.key} {
			require.NoError(t, h.Files.RemoveAll(file))
			if text != "" {
				write(t, h, file, text)
			}
		}
		list, err := Certificates(h, time.Now(), 30*day)
		require.NoError(t, err)
		state := ""
		for _, k := range list {
			if k.File == kubeletServing {
				state = k.State
			}
		}
		if state != c.state {
			t.Errorf("%s: %q", name, state)
		}
		n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
		require.NoError(t, err)
		if lines, err := n.lines(kindKubelet); err != nil || len(lines) > 0 != (c.state == CertificateDamaged) {
			t.Errorf("%s: %v, %v", name, lines, err)
		}
		if err := dropKubeletServing(h, time.Now()); err != nil || h.Files.Exists(kubeletServing) || h.Files.Exists(kubeletServingKey) {
			t.Errorf("%s: it cannot be removed: %v", name, err)
		}
	}
}

// A renewal replaces one file as a whole, also without a user: a power cut leaves a pair that matches.
func TestRenewalKeepsKeys(t *testing.T) {
	h := controlPlaneEnding(t, 10*day)
	file := h.Files.Path(pkiDir + "/apiserver.crt")
	key, before := h.Files.Text(pkiDir+"/apiserver.key"), h.Files.Text(pkiDir+"/apiserver.crt")
	open, err := os.Open(file) // so that its inode is not reused
	require.NoError(t, err)
	defer open.Close()
	was, err := open.Stat()
	require.NoError(t, err)
	n, err := PlanUnattended(h, time.Now(), time.Time{})
	require.NoError(t, err)
	require.NoError(t, renewControlPlane(t.Context(), n, workflow.Discard{}))
	is, err := os.Stat(file)
	if err != nil || os.SameFile(was, is) || h.Files.Text(pkiDir+"/apiserver.crt") == before || h.Files.Text(pkiDir+"/apiserver.key") != key {
		t.Errorf("%v", err)
	}
	// A key that does not match is replaced.
	write(t, h, pkiDir+"/apiserver.key", h.Files.Text(pkiDir+"/front-proxy-client.key"))
	require.NoError(t, renewControlPlane(t.Context(), n, workflow.Discard{}))
	if pair, err := tls.LoadX509KeyPair(file, h.Files.Path(pkiDir+"/apiserver.key")); err != nil || !slices.Equal(pair.Leaf.DNSNames, []string{"node1"}) {
		t.Errorf("after a power cut: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/test/require"
)

// cluster gives a machine a certificate authority and an API server with its own names.
func cluster(t *testing.T, h *host.Host) pki.Pair {
	t.Helper()
	ca := newCA(t)
	key, err := ca.KeyPEM()
	require.NoError(t, err)
	server, err := pki.Issue(ca, pki.Request{CommonName: "kube-apiserver", NotBefore: time.Now(), Small: true,
		Names: []string{"kubernetes", "kubernetes.default.svc", "cloud.example.org", "10.3.0.1", "127.0.0.1"}})
	require.NoError(t, err)
	put(t, h, authority, string(ca.CertPEM()))
	put(t, h, authorityKey, string(key))
	put(t, h, pkiDir+"/apiserver.crt", string(server.CertPEM()))
	put(t, h, kubernetes.ConfigFile, "kind: ClusterConfiguration\nnetworking: {serviceSubnet: 10.3.0.0/16}\n")
	return ca
}

func newCA(t *testing.T) pki.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := pki.NewCA(time.Now(), "kubernetes", key)
	require.NoError(t, err)
	return ca
}

// The certificate has the names by which nodes reach the depot, but not the API server's service. A depot of an earlier release gets one as well.
func TestCertificate(t *testing.T) {
	h, _ := machine(t)
	if plan, err := certificatePhase().Plan(t.Context(), h); err != nil || len(plan) != 1 {
		t.Errorf("before there is an authority: %q, %v", plan, err)
	}
	cluster(t, h)
	h.Config.Cluster.APIServerCertExtraSANs = []string{"vip.example.org"}
	p := certificatePhase()
	for range 2 {
		require.NoError(t, p.Run(t.Context(), h, workflow.Discard{}))
	}
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("not done: %v", err)
	}
	st, err := h.Files.Stat(CertificateFile)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	certs, err := pki.ParseCerts([]byte(h.Files.Text(CertificateFile)))
	require.NoError(t, err)
	if missing := pki.Covers(certs[0], []string{"node", "192.0.2.7", "cloud.example.org", "vip.example.org", "127.0.0.1"}); len(missing) > 0 {
		t.Errorf("lacks %q", missing)
	}
	for _, n := range []string{"kubernetes", "kubernetes.default.svc", "10.3.0.1"} {
		if certs[0].VerifyHostname(n) == nil {
			t.Errorf("it names %s", n)
		}
	}
	// A later run without the name keeps it.
	h.Config.Cluster.APIServerCertExtraSANs = nil
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("issued again: %v", err)
	}
}

// A joined node authenticates with its certificate. Without a depot at the address, the finding comes immediately.
func TestConnect(t *testing.T) {
	h, _ := machine(t)
	useBundle(t, h)
	run(t, h, "ocadm-", "bundle-")
	h.Bundle = nil
	store, err := Open(h)
	require.NoError(t, err)
	ca := newCA(t)
	issue := func(r pki.Request) pki.Pair {
		r.NotBefore, r.Small = time.Now(), true
		p, err := pki.Issue(ca, r)
		require.NoError(t, err)
		return p
	}
	server := issue(pki.Request{CommonName: "apiserver", Names: []string{"127.0.0.1"}})
	client := issue(pki.Request{CommonName: "system:node:node", Usage: pki.Client})
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	shown := &tls.Certificate{Certificate: [][]byte{server.Cert.Raw}, PrivateKey: server.Key}
	go func() {
		ended <- depot.Listen(ctx, l, depot.ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown, nil }, pool), depot.Handler(store, &depot.Access{}))
	}()
	der, err := x509.MarshalPKCS8PrivateKey(client.Key)
	require.NoError(t, err)
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: client.Cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	put(t, h, node.Certificate, string(both))
	put(t, h, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})))
	h.Config.Join.Endpoint, h.Config.Node.Depot = "127.0.0.1:6443", l.Addr().String()
	if !Wanted(h.Config) {
		t.Fatal("the depot is not wanted")
	}
	if h.Depot, err = Connect(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if c := h.Source().Contents(); len(c.Files) != 2 || len(c.Images) != 2 {
		t.Errorf("contents %+v", c)
	}
	// A machine with a discovery file uses the certificate in it, and trusts the CA in it.
	joining, _ := machine(t)
	joining.Config.Join = config.Join{Endpoint: "127.0.0.1:6443", DiscoveryFile: filepath.Join(t.TempDir(), "discovery.conf")}
	joining.Config.Node.Depot = l.Addr().String()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443", CertificateAuthorityData: ca.CertPEM()}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: both, ClientKeyData: both}
	kubeconfig.Contexts["x"], kubeconfig.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, joining.Config.Join.DiscoveryFile))
	if r, err := Connect(t.Context(), joining); err != nil || !Wanted(joining.Config) || len(r.Contents().Images) != 2 {
		t.Errorf("with a discovery file: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Connect(t.Context(), h); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != depot.CodeUnreachable {
		t.Errorf("without a depot: %v", err)
	}
	for name, change := range map[string]func(*config.Config){
		"a bundle":     func(c *config.Config) { c.Node.Bundle = "x" },
		"--depot none": func(c *config.Config) { c.Node.Depot = config.None },
	} {
		c := *h.Config
		if change(&c); Wanted(&c) {
			t.Errorf("with %s the depot is wanted", name)
		}
	}
}

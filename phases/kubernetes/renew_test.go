// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const day = 24 * time.Hour

// controlPlaneEnding creates the certificates of a control plane; its leaves are valid for at most a year, and expire after lasts.
func controlPlaneEnding(t *testing.T, lasts time.Duration) *host.Host {
	t.Helper()
	h := fakeHost(t, nil)
	dir := h.Files.Path(pkiDir)
	for _, ca := range []string{"ca", "etcd/ca", "front-proxy-ca"} {
		cert, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{Config: certutil.Config{CommonName: ca}, NotAfter: time.Now().Add(10 * 365 * day)})
		if err == nil {
			err = pkiutil.WriteCertAndKey(dir, ca, cert, key)
		}
		require.NoError(t, err)
	}
	leafEnding(t, h, "apiserver", "ca", lasts)
	leafEnding(t, h, "front-proxy-client", "front-proxy-ca", lasts)
	kubeletEnding(t, h, lasts)
	return h
}

// leafEnding creates a certificate signed by a CA of the control plane.
func leafEnding(t *testing.T, h *host.Host, file, authority string, lasts time.Duration) {
	t.Helper()
	dir := h.Files.Path(pkiDir)
	c, err := internalCluster(h.Config)
	require.NoError(t, err)
	ca, key, err := certs.LoadCertificateAuthority(dir, authority)
	require.NoError(t, err)
	cert, private, err := pkiutil.NewCertAndKey(ca, key, &pkiutil.CertConfig{EncryptionAlgorithm: c.EncryptionAlgorithmType(), NotAfter: time.Now().Add(lasts), Config: certutil.Config{
		CommonName: file, NotBefore: time.Now().Add(max(-30*day, lasts-365*day)), Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, AltNames: certutil.AltNames{DNSNames: []string{"node1"}}}})
	if err == nil {
		err = pkiutil.WriteCertAndKey(dir, file, cert, private)
	}
	require.NoError(t, err)
}

// kubeletEnding creates the kubelet's certificate.
func kubeletEnding(t *testing.T, h *host.Host, lasts time.Duration) {
	t.Helper()
	ca, key, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), "ca")
	require.NoError(t, err)
	cert, private, err := pkiutil.NewCertAndKey(ca, key, &pkiutil.CertConfig{NotAfter: time.Now().Add(lasts), Config: certutil.Config{
		CommonName: "system:node:node1", Organization: []string{"system:nodes"}, NotBefore: time.Now().Add(max(-30*day, lasts-365*day)), Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}})
	require.NoError(t, err)
	raw, err := keyutil.MarshalPrivateKeyToPEM(private)
	require.NoError(t, err)
	write(t, h, kubeletDir+"/pki/kubelet-client-old.pem", string(pkiutil.EncodeCertPEM(cert))+string(raw))
	require.NoError(t, os.Symlink("kubelet-client-old.pem", h.Files.Path(kubeletClientPEM)))
	write(t, h, KubeletKubeconfig, "client-certificate: "+kubeletClientPEM)
}

// Certificates that have expired, or that a clock has dated ahead, are renewed with their names, and their files are private; the second time there is nothing to do.
func TestRenew(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"expired": -time.Hour, "not valid yet": 373 * day} {
		t.Run(name, func(t *testing.T) { renews(t, controlPlaneEnding(t, lasts)) })
	}
}

func renews(t *testing.T, h *host.Host) {
	t.Helper()
	n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
	if err != nil || !n.expired || !n.Alone {
		t.Fatalf("%+v, %v", n, err)
	}
	steps := slices.DeleteFunc(RenewSteps(), func(s RenewStep) bool { return strings.HasPrefix(s.Name, "restart-") }) // they need a container runtime
	for round, want := range []workflow.State{workflow.Done, workflow.Unchanged} {
		res, err := workflow.Runner[*Renewal]{Plan: "certs renew", Phases: steps}.Run(t.Context(), n, workflow.Options{})
		require.NoError(t, err)
		for _, s := range res.Steps {
			if (s.Name == "certificates" || s.Name == "kubelet") && s.State != want {
				t.Errorf("round %d: %s is %s", round, s.Name, s.State)
			}
		}
	}
	list, err := Certificates(h, time.Now(), 300*day)
	if err := Expiry(list, "node1"); err != nil {
		t.Error(err)
	}
	require.NoError(t, err)
	cert, err := readCertificate(h, pkiDir+"/apiserver.crt")
	if err != nil || !slices.Equal(cert.DNSNames, []string{"node1"}) {
		t.Errorf("the names of the API server's certificate: %v, %v", cert.DNSNames, err)
	}
	cert, err = readCertificate(h, kubeletClientPEM)
	if err != nil || cert.Subject.CommonName != "system:node:node1" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the kubelet's: %v, %v", cert.Subject, err)
	}
	to, err := os.Readlink(h.Files.Path(kubeletClientPEM))
	if err != nil || !strings.HasPrefix(to, "kubelet-client-2") {
		t.Errorf("the kubelet's certificate leads to %q, %v", to, err)
	}
	if st, err := os.Stat(filepath.Join(filepath.Dir(h.Files.Path(kubeletClientPEM)), to)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the kubelet's key: %v, %v", st.Mode(), err)
	}
}

// An upgrade renews a certificate in one file: its key stays, so that a power loss leaves a matching pair, with the old or the new certificate.
func TestRenewForKeepsKeys(t *testing.T) {
	h := controlPlaneEnding(t, day)
	ca, key, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), "ca")
	require.NoError(t, err)
	cert, private, err := pkiutil.NewCertAndKey(ca, key, &pkiutil.CertConfig{NotAfter: time.Now().Add(day), Config: certutil.Config{
		CommonName: "system:kube-scheduler", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}})
	require.NoError(t, err)
	raw, err := keyutil.MarshalPrivateKeyToPEM(private)
	require.NoError(t, err)
	kc := clientcmdapi.NewConfig()
	kc.Clusters["x"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443"}
	kc.AuthInfos["x"] = &clientcmdapi.AuthInfo{ClientCertificateData: pkiutil.EncodeCertPEM(cert), ClientKeyData: raw}
	kc.Contexts["x"], kc.CurrentContext = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}, "x"
	text, err := clientcmd.Write(*kc)
	require.NoError(t, err)
	const scheduler = kubernetesDir + "/scheduler.conf"
	write(t, h, scheduler, string(text))
	before := h.Files.Text(pkiDir + "/apiserver.key")
	for _, pod := range []string{"kube-apiserver", "kube-scheduler"} {
		require.NoError(t, renewFor(t.Context(), h, &reporter{}, pod))
	}
	pair, err := tls.LoadX509KeyPair(h.Files.Path(pkiDir+"/apiserver.crt"), h.Files.Path(pkiDir+"/apiserver.key"))
	if err != nil || before != h.Files.Text(pkiDir+"/apiserver.key") || time.Until(pair.Leaf.NotAfter) < 300*day || !slices.Equal(pair.Leaf.DNSNames, []string{"node1"}) {
		t.Errorf("the API server's certificate: %v", err)
	}
	_, user, err := loadKubeconfig(h, scheduler)
	require.NoError(t, err)
	pair, err = tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil || !bytes.Equal(user.ClientKeyData, raw) || time.Until(pair.Leaf.NotAfter) < 300*day || pair.Leaf.Subject.CommonName != "system:kube-scheduler" {
		t.Errorf("the scheduler's: %v", err)
	}
}

// The first control-plane node is not alone, although its etcd manifest names no other member.
func TestRenewNotAlone(t *testing.T) {
	h := controlPlaneEnding(t, -time.Hour)
	write(t, h, manifest("etcd"), `spec: {containers: [{command: [etcd, --name=a, "--initial-advertise-peer-urls=https://10.0.0.1:2380",
  "--advertise-client-urls=https://10.0.0.1:2379", --data-dir=/var/lib/etcd, "--initial-cluster=a=https://10.0.0.1:2380"]}]}`)
	file := h.Files.Path("/var/lib/etcd/member/snap/db")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	db, err := bolt.Open(file, 0o600, nil)
	require.NoError(t, err)
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("members"))
		for _, m := range []string{"1", "2"} {
			err = errors.Join(err, b.Put([]byte(m), []byte(`{"peerURLs":["https://10.0.0.`+m+`:2380"]}`)))
		}
		return err
	})
	require.NoError(t, errors.Join(err, db.Close()))
	if n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false); err != nil || n.Alone {
		t.Errorf("%+v, %v", n, err)
	}
}

// All of them are renewed once, even if the command is interrupted.
func TestRenewAll(t *testing.T) {
	h := controlPlaneEnding(t, 200*day)
	// No matter how late in the life of the process.
	begun := time.Now().Add(10 * time.Minute)
	n, err := PlanRenewal(t.Context(), h, begun, 30*day, true)
	require.NoError(t, err)
	if left, err := n.lines(kindControlPlane); err != nil || len(left) != 2 {
		t.Errorf("to renew: %v, %v", left, err)
	}
	require.NoError(t, RenewSteps()[0].Run(t.Context(), n, &reporter{}))
	require.NoError(t, renewControlPlane(t.Context(), n, &reporter{}))
	again, err := PlanRenewal(t.Context(), h, begun.Add(time.Hour), 30*day, true)
	if err != nil || !again.Since.Equal(n.Since) {
		t.Errorf("a continued renewal began at %s, %v", again.Since, err)
	}
	if left, err := again.lines(kindControlPlane); err != nil || len(left) != 0 {
		t.Errorf("left to renew: %v, %v", left, err)
	}
}

// An interrupted renewal of expired certificates continues as one: etcd still waits for the other nodes, although the certificates here are new.
func TestRenewExpiredAgain(t *testing.T) {
	h := controlPlaneEnding(t, -time.Hour)
	steps := RenewSteps()
	for round := range 3 {
		n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
		if err != nil || n.expired != (round < 2) {
			t.Fatalf("round %d: expired %t, %v", round, n.expired, err)
		}
		if (steps[0].Skip(n) == "") != n.expired {
			t.Errorf("round %d: it is not noted what it began with", round)
		}
		last := steps[len(steps)-1].Run
		if round == 0 {
			last = steps[0].Run // killed after the next step
		}
		for _, run := range []func(context.Context, *Renewal, workflow.Reporter) error{last, renewControlPlane} {
			require.NoError(t, run(t.Context(), n, &reporter{}))
		}
	}
}

func TestRenewRefuses(t *testing.T) {
	if _, err := PlanRenewal(t.Context(), fakeHost(t, nil), time.Now(), 30*day, false); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4402" {
		t.Errorf("a machine that is not a node: %v", err)
	}
	h := controlPlaneEnding(t, -time.Hour)
	worker := fakeHost(t, nil)
	write(t, worker, pkiDir+"/ca.crt", h.Files.Text(pkiDir+"/ca.crt"))
	write(t, worker, kubeletClientPEM, h.Files.Text(kubeletClientPEM))
	if _, err := PlanRenewal(t.Context(), worker, time.Now(), 30*day, false); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4402" {
		t.Errorf("a worker: %v", err)
	}
	if _, err := PlanRenewal(t.Context(), h, time.Now().Add(-day), 30*day, false); len(finding.Of(err)) != 1 || !strings.Contains(finding.Of(err)[0].Cause, "ca.crt is not valid before 2") {
		t.Errorf("an authority that is not valid yet: %v", err)
	}
	require.NoError(t, os.Remove(h.Files.Path(pkiDir+"/front-proxy-ca.key")))
	if _, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4404" {
		t.Errorf("an authority elsewhere: %v", err)
	}
}

// The operator renews by lifetime, leaves the kubelet's client certificate to the kubelet, and reports what it cannot renew.
func TestUnattended(t *testing.T) {
	h := controlPlaneEnding(t, 10*day)
	n, err := PlanUnattended(h, time.Now(), time.Time{})
	require.NoError(t, err)
	lines, err := n.lines(kindControlPlane, kindKubeconfig, kindKubelet)
	if err != nil || len(lines) != 2 {
		t.Errorf("%v, %v", lines, err)
	}
	require.NoError(t, os.Remove(h.Files.Path(pkiDir+"/front-proxy-ca.key")))
	if n, err = PlanUnattended(h, time.Now(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if lines, err = n.lines(kindControlPlane); err != nil || len(lines) != 1 || !strings.Contains(lines[0], "apiserver.crt") {
		t.Errorf("without the key of an authority: %v, %v", lines, err)
	}
	r, err := ReportCertificates(h, time.Now())
	require.NoError(t, err)
	if due, unable := r.Due(time.Now()), r.Unable(); len(due) != 1 || due[0].Name != "apiserver" || len(unable) != 1 || unable[0].Name != "front-proxy-client" {
		t.Errorf("due %v, unable %v", due, unable)
	}
	h = controlPlaneEnding(t, 373*day) // they are not valid yet
	n, err = PlanUnattended(h, time.Now(), time.Time{})
	require.NoError(t, err)
	if lines, err = n.lines(kindControlPlane, kindKubeconfig, kindKubelet); err != nil || len(lines) != 2 || !strings.Contains(lines[0], "is not valid before 2") {
		t.Errorf("not valid yet: %v, %v", lines, err)
	}
	if r, err = ReportCertificates(h, time.Now()); err != nil || len(r.Due(time.Now())) != 2 {
		t.Errorf("not valid yet: due %v, %v", r.Due(time.Now()), err)
	}
}

// kubeadm truncates a certificate before it writes the new one. If that would not fit, nothing is changed.
func TestRenewalNeedsRoom(t *testing.T) {
	h := controlPlaneEnding(t, 10*day)
	before := h.Files.Text(pkiDir+"/apiserver.crt") + h.Files.Text(pkiDir+"/apiserver.key")
	c := Certificate{Name: "apiserver", File: pkiDir + "/apiserver.crt", cert: &x509.Certificate{}}
	if err := os.MkdirAll(h.Files.Path(pkiDir+"/.ocadm-room/in-the-way"), 0o700); err != nil { // a file cannot be written there
		t.Fatal(err)
	}
	if err := renewOne(t.Context(), h, c); err == nil {
		t.Error("it is renewed without room")
	}
	if h.Files.Text(pkiDir+"/apiserver.crt")+h.Files.Text(pkiDir+"/apiserver.key") != before {
		t.Error("the certificate was touched")
	}
	require.NoError(t, os.RemoveAll(h.Files.Path(pkiDir+"/.ocadm-room")))
	if err := renewOne(t.Context(), h, c); err != nil || h.Files.Exists(pkiDir+"/.ocadm-room") {
		t.Errorf("%v", err)
	}
}

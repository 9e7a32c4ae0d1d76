// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const managerManifest = "spec:\n  containers:\n  - command:\n    - kube-controller-manager\n    - --client-ca-file=/etc/kubernetes/pki/ca.crt\n" +
	"    - --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt\n    - --cluster-signing-key-file=/etc/kubernetes/pki/ca.key\n"

// rotating returns a control-plane node and the Trust of each stage. The node has an administrator's kubeconfig and one of another cluster.
func rotating(t *testing.T) (*host.Host, map[string]Trust) {
	t.Helper()
	h := controlPlaneEnding(t, 90*day)
	leafEnding(t, h, "etcd/server", EtcdAuthority, 90*day)
	write(t, h, manifest(constants.KubeAPIServer), "x")
	write(t, h, manifest(constants.KubeControllerManager), managerManifest)
	stages := map[string]Trust{"trust": {}, "sign": {}, "drop": {}}
	for stage := range stages {
		stages[stage] = Trust{Certs: map[string][]byte{}, Keys: map[string][]byte{}}
	}
	for _, name := range []string{ClusterAuthority, FrontProxyAuthority, EtcdAuthority} {
		before, beforeKey, err := Authority(h, name)
		require.NoError(t, err)
		after, afterKey, err := NewAuthority(h, name, "1", time.Now())
		require.NoError(t, err)
		stages["trust"].Certs[name], stages["trust"].Keys[name] = slices.Concat(before, after), beforeKey
		stages["sign"].Certs[name], stages["sign"].Keys[name] = slices.Concat(after, before), afterKey
		stages["drop"].Certs[name], stages["drop"].Keys[name] = after, afterKey
		if name == ClusterAuthority {
			kubeconfigOf(t, h, "/etc/kubernetes/kept.conf", before)
			kubeconfigOf(t, h, "/etc/kubernetes/other.conf", stages["drop"].Certs[FrontProxyAuthority])
		}
	}
	other, _, err := NewAuthority(h, FrontProxyAuthority, "another cluster", time.Now())
	require.NoError(t, err)
	kubeconfigOf(t, h, "/etc/kubernetes/other.conf", other)
	return h, stages
}

func kubeconfigOf(t *testing.T, h *host.Host, file string, authority []byte) {
	t.Helper()
	kc, err := clientcmd.Load([]byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: https://h}}]\n" +
		"users: [{name: u, user: {token: t}}]\n"))
	require.NoError(t, err)
	kc.Clusters["k"].CertificateAuthorityData = authority
	raw, err := clientcmd.Write(*kc)
	require.NoError(t, err)
	write(t, h, file, string(raw))
}

// silent drops the reports of a step.
type silent struct{ workflow.Reporter }

func (silent) Changed(string, ...any) {}

// take does what a node does with its files in a stage, and checks that nothing is left to do.
func take(t *testing.T, h *host.Host, tr Trust) {
	t.Helper()
	for range 2 {
		for _, do := range []func() error{
			func() error { return WriteAuthorities(h, silent{}, tr) }, func() error { return WriteKubeconfigs(h, silent{}, tr) },
			func() error { return SignAgain(t.Context(), h, silent{}, tr) }, func() error { return WriteSigner(h, silent{}, tr) }, func() error { return RemoveSigner(h, silent{}, tr) },
		} {
			require.NoError(t, do())
		}
		files, err := AuthoritiesTodo(h, tr)
		configs := KubeconfigsTodo(h, tr)
		certs, serr := SignTodo(h, tr)
		if err != nil || serr != nil || len(files)+len(configs)+len(certs) > 0 || SignerTodo(h, tr) != "" || SignerLeft(h, tr) {
			t.Fatalf("left to do: %v %v %v %q, %v %v", files, configs, certs, SignerTodo(h, tr), err, serr)
		}
	}
}

func count(t *testing.T, h *host.Host, file string) int {
	t.Helper()
	list, err := certutil.ParseCertsPEM([]byte(h.Files.Text(file)))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return len(list)
}

// A node goes through the stages: in each, the first CA in the file signs its certificates, and the controller manager signs with a file that holds one CA.
func TestAuthorities(t *testing.T) {
	h, stages := rotating(t)
	other := h.Files.Text("/etc/kubernetes/other.conf")
	before := h.Files.Text(pkiDir + "/apiserver.crt")
	for _, c := range []struct {
		stage       string
		trusts      int
		signer      string
		signedAgain bool
		underway    bool
		authorities []string
	}{{"trust", 2, signerFile, false, true, nil}, {"sign", 2, signerFile, true, true, nil}, {"drop", 1, pkiDir + "/ca.crt", true, false, nil}} {
		take(t, h, stages[c.stage])
		cluster, _, err := loadKubeconfig(h, "/etc/kubernetes/kept.conf")
		if err != nil || string(cluster.CertificateAuthorityData) != string(stages[c.stage].Certs[ClusterAuthority]) {
			t.Errorf("%s: the kubeconfig trusts others, %v", c.stage, err)
		}
		if got := count(t, h, pkiDir+"/ca.crt"); got != c.trusts || TwoAuthorities(h) != c.underway || (NoRotation(h, "an upgrade") != nil) != c.underway {
			t.Errorf("%s: %d authorities", c.stage, got)
		}
		if signerIn(h) != c.signer || count(t, h, c.signer) != 1 {
			t.Errorf("%s: the controller manager signs with %s", c.stage, signerIn(h))
		}
		if again := h.Files.Text(pkiDir+"/apiserver.crt") != before; again != c.signedAgain {
			t.Errorf("%s: signed again: %v", c.stage, again)
		}
		for file, authority := range map[string]string{pkiDir + "/apiserver.crt": "ca", pkiDir + "/front-proxy-client.crt": "front-proxy-ca", pkiDir + "/etcd/server.crt": "etcd/ca",
			kubeletClientPEM: "ca"} {
			cert, err := readCertificate(h, file)
			require.NoError(t, err)
			if good, err := signedByFirst(h, cert, authority); err != nil || !good {
				t.Errorf("%s: %s is signed by another authority, %v", c.stage, file, err)
			}
		}
	}
	if h.Files.Text(manifest(constants.KubeControllerManager)) != managerManifest || h.Files.Exists(signerFile) {
		t.Error("the manifest of the controller manager is not what it was")
	}
	if h.Files.Text("/etc/kubernetes/other.conf") != other {
		t.Error("the kubeconfig of another cluster was changed")
	}
	for _, key := range []string{"ca.key", "front-proxy-ca.key", "etcd/ca.key"} {
		if st, err := h.Files.Stat(pkiDir + "/" + key); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, st.Mode(), err)
		}
	}
	var kept []string
	_ = filepath.WalkDir(h.Files.Path("/"), func(p string, _ os.DirEntry, _ error) error {
		if strings.Contains(p, "ca.key") && !strings.HasPrefix(p, h.Files.Path(pkiDir)) {
			kept = append(kept, p)
		}
		return nil
	})
	if len(kept) > 0 {
		t.Errorf("keys are kept: %v", kept)
	}
}

// etcd's files only change on request.
func TestAuthoritiesWithoutEtcd(t *testing.T) {
	h, stages := rotating(t)
	files := []string{"/etcd/ca.crt", "/etcd/ca.key", "/etcd/server.crt", "/etcd/server.key"}
	read := func() (out []string) {
		for _, f := range files {
			out = append(out, h.Files.Text(pkiDir+f))
		}
		return out
	}
	before := read()
	for _, stage := range []string{"trust", "sign", "drop"} {
		delete(stages[stage].Certs, EtcdAuthority)
		delete(stages[stage].Keys, EtcdAuthority)
		take(t, h, stages[stage])
		if !slices.Equal(read(), before) {
			t.Errorf("%s changed files of etcd", stage)
		}
	}
}

// A rollback restores the initial state: the old CA takes the place of the new one.
func TestAuthoritiesBack(t *testing.T) {
	h, stages := rotating(t)
	before, _ := h.Files.ReadFile(pkiDir + "/ca.crt")
	old, key, err := Authority(h, ClusterAuthority)
	require.NoError(t, err)
	oldProxy, proxyKey, err := Authority(h, FrontProxyAuthority)
	require.NoError(t, err)
	take(t, h, stages["trust"])
	take(t, h, stages["sign"])
	take(t, h, stages["trust"]) // the old one signs again
	take(t, h, Trust{Certs: map[string][]byte{ClusterAuthority: old, FrontProxyAuthority: oldProxy}, Keys: map[string][]byte{ClusterAuthority: key, FrontProxyAuthority: proxyKey}})
	if now, _ := h.Files.ReadFile(pkiDir + "/ca.crt"); string(now) != string(before) {
		t.Error("the authority is not what it was")
	}
}

// A copy of an administrator's kubeconfig signed by the old CA is found.
func TestLeft(t *testing.T) {
	h, stages := rotating(t)
	old, _, err := Authority(h, ClusterAuthority)
	require.NoError(t, err)
	pem := h.Files.Text(pkiDir + "/apiserver.crt") // any certificate that it signed
	config := func(file, cert string) {
		write(t, h, file, "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {client-certificate: "+cert+"}}]\n")
	}
	write(t, h, "/root/.kube/old.crt", pem)
	config("/root/.kube/config", "old.crt")
	config("/home/a/.kube/config", "missing.crt")
	config(kubernetesDir+"/backup.conf", "/root/.kube/old.crt") // an administrator's own
	take(t, h, stages["trust"])
	take(t, h, stages["sign"])
	if left, err := Left(h, old); err != nil || !slices.Equal(left, []string{"/root/.kube/config", kubernetesDir + "/backup.conf"}) {
		t.Errorf("%v, %v", left, err)
	}
	write(t, h, "/root/.kube/old.crt", h.Files.Text(pkiDir+"/apiserver.crt"))
	if left, err := Left(h, old); err != nil || len(left) > 0 {
		t.Errorf("after it was replaced: %v, %v", left, err)
	}
}

// Two CAs have different names, so that a server shows which it accepts.
func TestNewAuthority(t *testing.T) {
	h, stages := rotating(t)
	list, err := certutil.ParseCertsPEM(stages["trust"].Certs[ClusterAuthority])
	if err != nil || len(list) != 2 || string(list[0].RawSubject) == string(list[1].RawSubject) || !list[1].IsCA || list[1].KeyUsage&x509.KeyUsageCertSign == 0 ||
		list[1].Subject.CommonName != list[0].Subject.CommonName || time.Until(list[1].NotAfter) < 9*365*day {
		t.Errorf("%v, %v", list, err)
	}
	if sealedText, err := Seal([]byte("secret"), []byte("key")); err != nil || strings.Contains(string(sealedText), "secret") {
		t.Errorf("%v", err)
	} else if _, err := Unseal(sealedText, []byte("other")); err == nil {
		t.Error("another key decrypts")
	}
	_ = h
}

// If a rotation lost its record in any stage, a new rotation completes it: it only needs the signing CA, and its new pair replaces both.
func TestStagesOfAuthorities(t *testing.T) {
	for _, lost := range []string{"trust", "sign"} {
		h, stages := rotating(t)
		take(t, h, stages["trust"])
		if lost == "sign" {
			take(t, h, stages["sign"])
		}
		renewed := map[string]Trust{}
		for _, stage := range []string{"trust", "sign", "drop"} {
			renewed[stage] = Trust{Certs: map[string][]byte{}, Keys: map[string][]byte{}}
		}
		for _, name := range []string{ClusterAuthority, FrontProxyAuthority, EtcdAuthority} {
			signs, key, err := Authority(h, name)
			require.NoError(t, err)
			next, nextKey, err := NewAuthority(h, name, "2", time.Now())
			require.NoError(t, err)
			renewed["trust"].Certs[name], renewed["trust"].Keys[name] = slices.Concat(signs, next), key
			renewed["sign"].Certs[name], renewed["sign"].Keys[name] = slices.Concat(next, signs), nextKey
			renewed["drop"].Certs[name], renewed["drop"].Keys[name] = next, nextKey
		}
		for _, stage := range []string{"trust", "sign", "drop"} {
			take(t, h, renewed[stage])
		}
		if Rotating(h) || RotatingEtcd(h) || count(t, h, pkiDir+"/ca.crt") != 1 || h.Files.Exists(signerFile) {
			t.Errorf("lost in stage %s: %d authorities", lost, count(t, h, pkiDir+"/ca.crt"))
		}
		cluster, _, err := loadKubeconfig(h, "/etc/kubernetes/kept.conf")
		if err != nil || string(cluster.CertificateAuthorityData) != string(renewed["drop"].Certs[ClusterAuthority]) {
			t.Errorf("lost in stage %s: the kubeconfig trusts others, %v", lost, err)
		}
	}
}

// A power cut between a new key and its new certificate leaves files that do not match, whichever of them reached the disk. The next run signs them again.
func TestSignAgainAfterPowerCut(t *testing.T) {
	h, stages := rotating(t)
	take(t, h, stages["trust"])
	const crt, key = pkiDir + "/apiserver.crt", pkiDir + "/apiserver.key"
	before := map[string]string{crt: h.Files.Text(crt), key: h.Files.Text(key)}
	for _, former := range []string{crt, key} {
		take(t, h, stages["sign"])
		write(t, h, former, before[former])
		if todo, err := SignTodo(h, stages["sign"]); err != nil || len(todo) != 1 {
			t.Errorf("with the former %s: %v, %v", former, todo, err)
		}
		take(t, h, stages["sign"])
		if _, err := tls.LoadX509KeyPair(h.Files.Path(crt), h.Files.Path(key)); err != nil {
			t.Errorf("with the former %s: %v", former, err)
		}
	}
}

// While its static pods are stopped, as during etcd rejoin --after-restore, a machine stays a control-plane node: the others serve the cluster, and a
// rotation that took it for a worker would leave it with keys and certificates of the old authorities.
func TestAuthoritiesOfAStoppedControlPlane(t *testing.T) {
	h, stages := rotating(t)
	write(t, h, stopped(constants.KubeAPIServer), "x")
	require.NoError(t, h.Files.Remove(manifest(constants.KubeAPIServer)))
	todo, err := AuthoritiesTodo(h, stages["sign"])
	if err != nil || !slices.Contains(todo, "write "+pkiDir+"/ca.key") {
		t.Errorf("%v, %v", todo, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const apiserverManifest = "spec: {containers: [{command: [kube-apiserver, --service-cluster-ip-range=10.120.0.0/16]}]}"

// soleControlPlane is the only control-plane node of a cluster, as later commands see it while no API server answers: its settings come from its files.
func soleControlPlane(t *testing.T) *host.Host {
	t.Helper()
	h := controlPlaneEnding(t, 90*day)
	for file, authority := range map[string]string{"apiserver-kubelet-client": "ca", "apiserver-etcd-client": "etcd/ca", "etcd/server": "etcd/ca",
		"etcd/peer": "etcd/ca", "etcd/healthcheck-client": "etcd/ca"} {
		leafEnding(t, h, file, authority, 90*day)
	}
	init := *h.Config
	init.Cluster.ServiceCIDR, init.Cluster.ServiceDNSDomain = "10.120.0.0/16", "cloud.test"
	init.Cluster.ControlPlaneEndpoint, init.Cluster.APIServerCertExtraSANs = "127.0.0.1:1", []string{"api.example.org", "192.0.2.7"}
	doc, err := RenderInit(&init)
	require.NoError(t, err)
	write(t, h, ConfigFile, string(doc))
	require.NoError(t, noteFinished(h, storeConfiguration().key(), ControlPlane))
	here := config.Default()
	here.Node.Name, here.Node.AdvertiseAddress, here.Node.BindPort = "node-1", "10.77.0.11", 6443
	h.Config = &here
	return h
}

func recreatesKubeconfigs(t *testing.T, h *host.Host, files ...string) {
	t.Helper()
	for _, f := range files {
		write(t, h, f, "")
	}
	n := &Renewal{Host: h, Within: 30 * day}
	require.NoError(t, renewControlPlane(t.Context(), n, workflow.Discard{}))
}

// Each control-plane certificate or key that a power cut emptied is recreated with the names from init; the others stay.
func TestEmptyCertificatesAreRecreated(t *testing.T) {
	for _, c := range leaves() {
		for _, end := range []string{".crt", ".key"} {
			h := soleControlPlane(t)
			file := c.path() + end
			write(t, h, file, "")
			list, err := Certificates(h, time.Now(), 30*day)
			if err != nil || len(list) != 11 {
				t.Fatalf("%s: %d certificates, %v", file, len(list), err)
			}
			f := finding.Of(Expiry(list, "node-1"))
			if len(f) != 1 || f[0].Code != "OCA-4422" || !strings.HasPrefix(f[0].Remedy, "ocadm certs renew") || len(f[0].Evidence) != 1 || !strings.Contains(f[0].Evidence[0], c.path()) {
				t.Errorf("%s: %+v", file, f)
			}
			n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if lines, err := n.lines(kindControlPlane); err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], "recreate "+c.path()+".crt") {
				t.Errorf("%s: %q, %v", file, lines, err)
			}
			if err := renewControlPlane(t.Context(), n, workflow.Discard{}); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			pair, err := tls.LoadX509KeyPair(h.Files.Path(c.path()+".crt"), h.Files.Path(c.path()+".key"))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if problem, err := c.problem(h, time.Now()); problem != "" || err != nil {
				t.Errorf("%s: %s, %v", file, problem, err)
			}
			if end == ".crt" {
				likeInit(t, h, c, pair.Leaf)
			} else if !slices.Equal(pair.Leaf.DNSNames, []string{"node1"}) || n.recreated {
				t.Errorf("%s: a new key changed the names to %v", file, pair.Leaf.DNSNames)
			}
			if left, err := n.dueOf(kindControlPlane); err != nil || len(left) != 0 {
				t.Errorf("%s: left %v, %v", file, left, err)
			}
		}
	}
}

// likeInit compares a certificate with the one from kubeadm.
func likeInit(t *testing.T, h *host.Host, c certificate, made *x509.Certificate) {
	t.Helper()
	n := clusterNames{endpoint: "127.0.0.1:1", services: "10.120.0.0/16", domain: "cloud.test", sans: []string{"api.example.org", "192.0.2.7"}}
	want, err := n.asInternal(h)
	require.NoError(t, err)
	list := certs.GetDefaultCertList()
	like, err := list[slices.IndexFunc(list, func(k *certs.KubeadmCert) bool { return k.Name == c.name })].GetConfig(want)
	require.NoError(t, err)
	if made.Subject.CommonName != like.CommonName || !slices.Equal(made.Subject.Organization, like.Organization) || !slices.Equal(made.ExtKeyUsage, like.Usages) {
		t.Errorf("%s: %v, %v", c.name, made.Subject, made.ExtKeyUsage)
	}
	if c.name != APIServerCertificate {
		return
	}
	for _, name := range []string{"node-1", "10.77.0.11", "10.120.0.1", "kubernetes.default.svc.cloud.test", "api.example.org", "192.0.2.7", "localhost"} {
		if err := made.VerifyHostname(name); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Emptied kubeconfigs are recreated as init and join would make them.
func TestEmptyKubeconfigsAreRecreated(t *testing.T) {
	h := soleControlPlane(t)
	want := map[string][3]string{ // server, user, group
		AdminKubeconfig:                            {"https://127.0.0.1:1", "kubernetes-admin", "kubeadm:cluster-admins"},
		SuperAdminKubeconfig:                       {"https://127.0.0.1:1", "kubernetes-super-admin", "system:masters"},
		kubernetesDir + "/controller-manager.conf": {"https://10.77.0.11:6443", "system:kube-controller-manager", ""},
		kubernetesDir + "/scheduler.conf":          {"https://10.77.0.11:6443", "system:kube-scheduler", ""},
	}
	for f := range want {
		recreatesKubeconfigs(t, h, f)
	}
	for f, w := range want {
		cluster, user, err := loadKubeconfig(h, f)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		cert, err := clientCertificate(h, user)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if got := [3]string{cluster.Server, cert.Subject.CommonName, strings.Join(cert.Subject.Organization, ",")}; got != w {
			t.Errorf("%s: %q", f, got)
		}
		if problem := kubeconfigProblem(h, f, time.Now()); problem != "" {
			t.Errorf("%s: %s", f, problem)
		}
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// A node that has joined has the cluster's address only in its kubeconfigs, and the service network only in its API server's manifest.
func TestEmptyFilesOfAJoinedNode(t *testing.T) {
	h := soleControlPlane(t)
	write(t, h, ConfigFile, "kind: JoinConfiguration\n")
	write(t, h, AdminKubeconfig, "")
	n := &Renewal{Host: h, Within: 30 * day}
	err := renewControlPlane(t.Context(), n, workflow.Discard{})
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4422" || !strings.Contains(f[0].Remedy, "from another control-plane node") {
		t.Errorf("the address of the cluster is not known: %v", err)
	}
	write(t, h, SuperAdminKubeconfig, "")
	require.NoError(t, errors.Join(h.Files.Remove(AdminKubeconfig), h.Files.Remove(SuperAdminKubeconfig)))
	write(t, h, pkiDir+"/apiserver.crt", "")
	if err := renewControlPlane(t.Context(), n, workflow.Discard{}); err == nil || !strings.Contains(err.Error(), "network of the services") {
		t.Errorf("without the manifest: %v", err)
	}
	write(t, h, manifest(constants.KubeAPIServer), apiserverManifest)
	write(t, h, KubeletConfigFile, "clusterDomain: cloud.test\n")
	require.NoError(t, renewControlPlane(t.Context(), n, workflow.Discard{}))
	cert, err := readCertificate(h, pkiDir+"/apiserver.crt")
	if err != nil || lacks(cert, []string{"node-1", "10.77.0.11", "10.120.0.1", "kubernetes.default.svc.cloud.test"}) || !n.recreated {
		t.Errorf("%v %v, %v", cert.DNSNames, cert.IPAddresses, err)
	}
	if done, err := nameStep().Check(t.Context(), n); done || err != nil {
		t.Errorf("the names of the cluster are not added: %v", err)
	}
	if err := nameStep().Run(t.Context(), n, workflow.Discard{}); err != nil {
		t.Errorf("no API server answers: %v", err)
	}
}

// Nothing is created if the CA is damaged too: the finding names the CA's file.
func TestNothingIsIssuedByADamagedCA(t *testing.T) {
	for _, broken := range []string{"/etcd/ca.crt", "/etcd/ca.key"} {
		h := soleControlPlane(t)
		write(t, h, pkiDir+"/etcd/server.crt", "")
		write(t, h, pkiDir+broken, "")
		_, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
		if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4422" || !strings.Contains(f[0].Remedy, "restore "+pkiDir+broken) {
			t.Errorf("%s: %v", broken, err)
		}
	}
	h := soleControlPlane(t)
	leafEnding(t, h, "etcd/server", "etcd/ca", day)
	write(t, h, pkiDir+"/etcd/ca.key", "")
	if _, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4422" {
		t.Errorf("one that ends soon: %v", err)
	}
}

// The operator recreates them too, but restarts no kubelet. A CA rotation re-signs what it cannot read.
func TestDamagedForTheOperatorAndRotations(t *testing.T) {
	h := soleControlPlane(t)
	write(t, h, pkiDir+"/front-proxy-client.crt", "")
	write(t, h, kubeletDir+"/pki/kubelet-client-old.pem", "")
	n, err := PlanUnattended(h, time.Now(), time.Time{})
	require.NoError(t, err)
	if due, err := n.dueOf(kindControlPlane, kindKubeconfig, kindKubelet); err != nil || len(due) != 1 || due[0].Name != "front-proxy-client" {
		t.Errorf("%+v, %v", due, err)
	}
	r, err := ReportCertificates(h, time.Now())
	require.NoError(t, err)
	if due, unable := r.Due(time.Now()), r.Unable(); len(due) != 1 || due[0].Name != "front-proxy-client" || len(unable) != 1 || unable[0].Name != "kubelet-client" {
		t.Errorf("due %v, unable %v", due, unable)
	}
	write(t, h, manifest(constants.KubeAPIServer), apiserverManifest)
	trust := Trust{Certs: map[string][]byte{}}
	for _, a := range []string{ClusterAuthority, FrontProxyAuthority} {
		trust.Certs[a] = []byte(h.Files.Text(pkiDir + "/" + a + ".crt"))
	}
	todo, err := SignTodo(h, trust)
	if err != nil || !slices.Contains(todo, "sign "+pkiDir+"/front-proxy-client.crt") || !slices.Contains(todo, "sign "+kubeletClientPEM) {
		t.Errorf("%q, %v", todo, err)
	}
}

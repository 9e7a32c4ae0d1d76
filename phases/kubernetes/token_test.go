// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

func TestTokens(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	short, err := CreateToken(t.Context(), c, TokenOptions{TTL: time.Hour}, now)
	require.NoError(t, err)
	if _, err := CreateToken(t.Context(), c, TokenOptions{Token: "abcdef.0123456789abcdef", TTL: 2 * time.Hour}, now); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateToken(t.Context(), c, TokenOptions{Token: "fedcba.0123456789abcdef", Forever: true, Usages: []string{"signing"}}, now); err != nil {
		t.Fatal(err)
	}
	_, err = CreateToken(t.Context(), c, TokenOptions{Token: "abcdef.ffffffffffffffff"}, now)
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-4120" || strings.Contains(err.Error(), "ffff") {
		t.Errorf("a second token of the same ID gives %v", err)
	}
	for _, bad := range []TokenOptions{{Usages: []string{"sign"}}, {Groups: []string{"system:masters"}}, {Usages: []string{"signing", "signing "}}} {
		if _, err := CreateToken(t.Context(), c, bad, now); len(finding.Of(err)) != 1 || finding.Of(err)[0].ExitCode() != finding.ExitConfig {
			t.Errorf("%+v gives %v", bad, err)
		}
	}
	list, err := ListTokens(t.Context(), c)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d tokens, %v", len(list), err)
	}
	for at, want := range map[time.Duration]string{
		0:             "abcdef",
		3 * time.Hour: "", // the one without an expiry only signs
	} {
		got, ok := usableToken(list, now.Add(at))
		if ok != (want != "") || got.ID != want {
			t.Errorf("after %s the usable token is %q", at, got.ID)
		}
	}
	require.NoError(t, DeleteToken(t.Context(), c, short.String()))
	if l := finding.Of(DeleteToken(t.Context(), c, short.ID)); len(l) != 1 || l[0].Code != "OCA-4121" {
		t.Errorf("deleting it again gives %v", l)
	}
	for _, bad := range []string{"x", "ABCDEF.0123456789abcdef", ""} {
		if l := finding.Of(DeleteToken(t.Context(), c, bad)); len(l) != 1 || l[0].ExitCode() != finding.ExitConfig {
			t.Errorf("deleting %q gives %v", bad, l)
		}
	}
}

func TestJoinCommand(t *testing.T) {
	h := fakeHost(t, nil)
	ca := issue(t, nil, time.Now().Add(time.Hour))
	write(t, h, pkiDir+"/ca.crt", ca.pem)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: cloud.example.org:6443\n"}}
	c := fake.NewClientBuilder().WithObjects(cm).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	got, err := JoinCommand(t.Context(), h, JoinRoles{})
	require.NoError(t, err)
	tokens, _ := ListTokens(t.Context(), c)
	want := fmt.Sprintf("ocadm join cloud.example.org:6443 --token %s --discovery-token-ca-cert-hash %s", tokens[0], pubkeypin.Hash(ca.cert))
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// For a machine without ocadm: the line contains the CA's digest, and curl does not get the token as an argument. Package depot runs it.
	line, err := DownloadCommand(t.Context(), h, "abcdef.0123456789abcdef", "ocadm join x")
	for _, curl := range strings.Split(line, "curl ")[1:] {
		if curl, _, _ = strings.Cut(curl, " && "); strings.Contains(strings.TrimSuffix(curl, "| "), "abcdef.") {
			t.Errorf("curl %s", curl)
		}
	}
	if digest := sha256.Sum256(pki.EncodeCerts(ca.cert)); err != nil || !strings.Contains(line, fmt.Sprintf(`echo "%x  $d/ca.crt" | sha256sum -c`, digest)) ||
		!strings.Contains(line, ` https://cloud.example.org:6444/ca.crt `) || !strings.Contains(line, `"https://cloud.example.org:6444/v1/files/linux/$(`) ||
		!strings.HasSuffix(line, " && mv -f /usr/local/bin/ocadm.new /usr/local/bin/ocadm && /usr/local/bin/ocadm join x") {
		t.Errorf("download %s, %v", line, err)
	}
	// The same token again, with the node's roles.
	if again, _ := JoinCommand(t.Context(), h, JoinRoles{Host: true, Controller: true}); again != got+" --enable-host-agent --as-onecloud-controller" {
		t.Errorf("with roles: %s", again)
	}
	// A worker uses the cluster's image source and version.
	for _, tt := range []struct{ kubernetes, all, want string }{
		{"registry.k8s.io", "", ""},
		{"10.0.0.9:5000/k8s", "", " --kubernetes-image-repository 10.0.0.9:5000/k8s"},
		{"10.0.0.9:5000/m", "10.0.0.9:5000/m", " --image-repository 10.0.0.9:5000/m"},
		{"registry.k8s.io", "10.0.0.9:5000/m", " --image-repository 10.0.0.9:5000/m --kubernetes-image-repository registry.k8s.io"},
		{"registry.k8s.io\nkubernetesVersion: v1.35.8", "", " --kubernetes-version v1.35.8"},
		{"registry.k8s.io\nkubernetesVersion: " + config.Default().Cluster.KubernetesVersion, "", ""},
	} {
		cm := cm.DeepCopy()
		cm.ResourceVersion = ""
		cm.Data["ClusterConfiguration"] += "imageRepository: " + tt.kubernetes + "\n"
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: cluster.SettingsName},
			Data: map[string]string{"cloud.yaml": "imageRepository: " + tt.all + "\n"}}
		c := fake.NewClientBuilder().WithObjects(cm, settings).Build()
		h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
		got, err := JoinCommandFor(t.Context(), h, "abcdef.0123456789abcdef", JoinRoles{})
		if err != nil || !strings.HasSuffix(got, pubkeypin.Hash(ca.cert)+tt.want) {
			t.Errorf("%+v: %s, %v", tt, got, err)
		}
	}
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	// If the cluster uses no registry, neither does a worker.
	for text, want := range map[string]bool{"server = \"https://10.0.0.1:6444\"\n": true, "[host.\"https://10.0.0.1:6444\"]\n": false} {
		require.NoError(t, h.Files.WriteFile("/etc/containerd/certs.d/_default/hosts.toml", []byte("# ours\n"+text), 0o644))
		if got, err := JoinCommandFor(t.Context(), h, "abcdef.0123456789abcdef", JoinRoles{}); err != nil || strings.HasSuffix(got, " --offline") != want {
			t.Errorf("with %s: %s, %v", text, got, err)
		}
	}
	// With another cluster's kubeconfig, its CA counts, not this machine's.
	other := issue(t, nil, time.Now().Add(time.Hour))
	h.Config.Run.Kubeconfig = "other.conf"
	h.REST = func(context.Context) (*rest.Config, error) {
		return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte(other.pem)}}, nil
	}
	if got, err := JoinCommand(t.Context(), h, JoinRoles{}); err != nil || !strings.HasSuffix(got, pubkeypin.Hash(other.cert)) {
		t.Errorf("for another cluster: %s, %v", got, err)
	}
}

// controlPlane answers like the API server of a cluster that nodes may join.
type controlPlane struct {
	info       map[string]string
	authorised bool
	readyNode  string
	proxy      string // the configuration of kube-proxy
	date       time.Time
	certs      map[string][]byte // the result of upload-certs
}

func (c controlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.date.IsZero() {
		w.Header().Set("Date", c.date.UTC().Format(http.TimeFormat))
	}
	answer := func(o any) { _ = json.NewEncoder(w).Encode(o) }
	switch {
	case strings.HasSuffix(r.URL.Path, "/cluster-info") && c.info != nil:
		answer(corev1.ConfigMap{Data: c.info})
	case r.Header.Get("Authorization") != "Bearer abcdef.0123456789abcdef" || !c.authorised:
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/kubeadm-config"):
		answer(corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": "kubernetesVersion: v1.36.3\nnetworking: {podSubnet: 10.1.0.0/16, serviceSubnet: 10.2.0.0/16, dnsDomain: example.internal}\n"}})
	case c.proxy != "" && strings.HasSuffix(r.URL.Path, "/kube-system/configmaps/kube-proxy"):
		answer(corev1.ConfigMap{Data: map[string]string{"config.conf": c.proxy}})
	case c.certs != nil && strings.HasSuffix(r.URL.Path, "/kube-system/secrets/kubeadm-certs"):
		answer(corev1.Secret{Data: c.certs})
	case c.readyNode != "" && strings.HasSuffix(r.URL.Path, "/nodes/"+c.readyNode):
		answer(corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestDiscover(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ca, other := issue(t, nil, later), issue(t, nil, later)
	server := issue(t, &ca, later, "127.0.0.1")
	kubeconfig := func(ca pair) string {
		raw, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: "https://127.0.0.1", CertificateAuthorityData: []byte(ca.pem)}}})
		require.NoError(t, err)
		return string(raw)
	}
	signed := func(ca pair, secret string) map[string]string {
		sig, err := jws.ComputeDetachedSignature(kubeconfig(ca), "abcdef", secret)
		require.NoError(t, err)
		return map[string]string{"kubeconfig": kubeconfig(ca), "jws-kubeconfig-abcdef": sig}
	}
	good := signed(ca, "0123456789abcdef")
	tests := map[string]struct {
		cp   controlPlane
		set  func(*config.Join)
		code string
	}{
		"good":              {controlPlane{info: good, authorised: true}, nil, ""},
		"no such token":     {controlPlane{info: map[string]string{"kubeconfig": kubeconfig(ca)}}, nil, "OCA-4102"},
		"other secret":      {controlPlane{info: signed(ca, "ffffffffffffffff")}, nil, "OCA-4103"},
		"expired just now":  {controlPlane{info: good}, nil, "OCA-4102"},
		"other hash":        {controlPlane{info: signed(other, "0123456789abcdef")}, nil, "OCA-4104"},
		"no control plane":  {controlPlane{}, nil, "OCA-4105"},
		"same name":         {controlPlane{info: good, authorised: true, readyNode: "node-1"}, nil, "OCA-4106"},
		"malformed token":   {controlPlane{info: good}, func(j *config.Join) { j.Token = "nonsense" }, "OCA-0302"},
		"malformed hash":    {controlPlane{info: good}, func(j *config.Join) { j.CACertHashes = []string{"md5:00"} }, "OCA-0303"},
		"no hash":           {controlPlane{info: good}, func(j *config.Join) { j.CACertHashes = nil }, "OCA-0304"},
		"no hash, accepted": {controlPlane{info: good, authorised: true}, func(j *config.Join) { j.CACertHashes, j.UnsafeSkipCAVerification = nil, true }, ""},
		"nftables":          {controlPlane{info: good, authorised: true, proxy: "kind: KubeProxyConfiguration\nmode: nftables\n"}, nil, ""},
		"no server":         {controlPlane{}, func(j *config.Join) { j.Endpoint = "127.0.0.1:1" }, "OCA-4101"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(tt.cp)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{server.cert.Raw}, PrivateKey: server.key}}}
			s.StartTLS()
			defer s.Close()
			c := testConfig()
			c.Join = config.Join{Endpoint: s.Listener.Addr().String(), Token: "abcdef.0123456789abcdef", CACertHashes: []string{pubkeypin.Hash(ca.cert)}}
			if tt.set != nil {
				tt.set(&c.Join)
			}
			d, err := Discover(t.Context(), c)
			l := finding.Of(err)
			if tt.code == "" {
				if err != nil || string(d.CA) != ca.pem || d.Cluster.KubernetesVersion != "v1.36.3" {
					t.Fatalf("discovered %+v, %v", d.Cluster, err)
				}
				if want := proxyModeIn([]byte(tt.cp.proxy)); d.ProxyMode != want {
					t.Errorf("the mode of kube-proxy is %q, want %q", d.ProxyMode, want)
				}
				return
			}
			if len(l) != 1 || l[0].Code != tt.code || l[0].Remedy == "" || l[0].Check != "" {
				t.Fatalf("got %v, want %s", err, tt.code)
			}
			if strings.Contains(fmt.Sprintf("%+v", l[0]), "0123456789abcdef") {
				t.Error("the finding shows the token")
			}
		})
	}
}

func TestDiscoverReportsClocks(t *testing.T) {
	s := httptest.NewTLSServer(controlPlane{info: map[string]string{"kubeconfig": "x"}, date: time.Now().Add(10 * time.Minute)})
	defer s.Close()
	c := testConfig()
	c.Join = config.Join{Endpoint: s.Listener.Addr().String(), Token: "abcdef.0123456789abcdef", UnsafeSkipCAVerification: true}
	_, err := Discover(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "behind the control plane's") {
		t.Errorf("got %v", err)
	}
}

func TestVersionFits(t *testing.T) {
	for pair, fits := range map[[2]string]bool{
		{"v1.36.3", "v1.36.0"}: true, {"v1.36.3", "v1.39.0"}: true, {"v1.36.3", "v1.40.0"}: false, {"v1.36.3", "v1.35.9"}: false,
	} {
		if err := VersionFits(pair[0], pair[1]); (err == nil) != fits {
			t.Errorf("kubelet %s, control plane %s: %v", pair[0], pair[1], err)
		}
	}
}

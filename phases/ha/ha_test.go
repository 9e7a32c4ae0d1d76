// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	group "yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/move"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/vip"
	"yunion.io/x/ocadm/test/require"
)

func at(begun, ended int, ok bool) ask {
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return ask{zero.Add(time.Duration(begun) * time.Second), zero.Add(time.Duration(ended) * time.Second), ok}
}

func TestOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		asks []ask
		want time.Duration
	}{
		"none":                   {[]ask{at(0, 1, true), at(1, 5, true)}, 0},
		"one request":            {[]ask{at(0, 1, true), at(1, 3, false), at(2, 4, true)}, 3 * time.Second},
		"the longest counts":     {[]ask{at(0, 1, false), at(1, 2, true), at(3, 4, false), at(4, 5, false), at(5, 9, true)}, 6 * time.Second},
		"it has not ended":       {[]ask{at(0, 1, true), at(1, 2, false), at(3, 8, false)}, 7 * time.Second},
		"answers out of order":   {[]ask{at(4, 5, true), at(0, 9, false), at(1, 2, true)}, 2 * time.Second},
		"some hang on":           {[]ask{at(0, 5, false), at(4, 9, false), at(5, 6, true), at(6, 7, true)}, 6 * time.Second},
		"nothing was asked ever": {nil, 0},
	} {
		if got := outage(tt.asks); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// What init left to the user with --firewall manual, "ha enable" does not open. It prints what is missing.
func TestFirewallStaysManual(t *testing.T) {
	for name, opened := range map[string]bool{"manual": false, "auto": true} {
		h, err := host.Fake(t.Context(), t.TempDir(), &config.Config{Cluster: config.Cluster{ControlPlaneEndpoint: "192.0.2.1:6443"}}, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
			switch line := strings.Join(append([]string{c.Path}, c.Args...), " "); line {
			case "firewall-cmd --state":
				return exec.Result{Stdout: "running\n"}, nil
			case "ufw status":
				return exec.Result{}, errors.New("not installed")
			}
			return exec.Result{}, nil
		}})
		require.NoError(t, err)
		if opened {
			require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindFirewall, Name: "--zone=public --add-port=6443/tcp", Op: host.Created}))
		}
		leaveFirewall(h)
		former := *h.Config
		h.Config.Cluster.VirtualAddress = "192.0.2.100"
		list := preflight.MoreFirewall(t.Context(), h, &former)
		if (len(list) == 0) != opened || !opened && (list[0].Code != "OCA-2007" || !strings.Contains(list[0].Remedy, "vrrp")) {
			t.Errorf("%s: %+v", name, list)
		}
		if skipped := node.Firewall(true).Skip(h); (skipped == "") != opened {
			t.Errorf("%s: %q", name, skipped)
		}
	}
}

// What init did not open, because it had --cni none, --ingress none or --depot none, "ha enable" does not open either.
func TestFirewallAsInitDid(t *testing.T) {
	ports := []string{"8472/udp", "80/tcp", fmt.Sprintf("%d/tcp", config.DepotPort)}
	for name, opened := range map[string]bool{"none": false, "default": true} {
		c := config.Default()
		c.Cluster.ControlPlaneEndpoint = "192.0.2.100:6443"
		h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
			if len(c.Args) > 0 && c.Args[0] == "--state" {
				return exec.Result{Stdout: "running\n"}, nil
			}
			return exec.Result{}, nil
		}})
		require.NoError(t, err)
		if opened {
			require.NoError(t, h.Files.WriteFile("/etc/kubernetes/manifests/ocadm-depot.yaml", []byte("x"), 0o600))
		}
		for _, p := range append(ports, "6443/tcp") {
			if opened || p == "6443/tcp" {
				require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindFirewall, Name: "--zone=public --add-port=" + p, Op: host.Created}))
			}
		}
		leaveFirewall(h)
		lines, err := node.FirewallMissing(t.Context(), h, true)
		require.NoError(t, err)
		all := strings.Join(lines, " ") + " "
		for _, p := range append(ports, "cni0") {
			if strings.Contains(all, "="+p+" ") != opened {
				t.Errorf("%s: %s in %s", name, p, all)
			}
		}
		if !strings.Contains(all, "2380/tcp") {
			t.Errorf("%s: %s", name, all)
		}
	}
}

// The virtual address can be removed until the cluster's settings contain it: from then on, clients may use it.
func TestDissolve(t *testing.T) {
	h, err := host.Fake(t.Context(), t.TempDir(), &config.Config{}, &host.Recorder{})
	require.NoError(t, err)
	m := move.Endpoint(h, "192.0.2.1", "192.0.2.100", 6443)
	for text, stays := range map[string]bool{"server: https://192.0.2.1:6443": false, "server: https://192.0.2.100:6443": true} {
		info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": text}}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: group.SecretNamespace, Name: group.SecretName}}
		k := fake.NewClientBuilder().WithObjects(info, secret).Build()
		require.NoError(t, h.Files.WriteFile(vip.ManifestFile, []byte("x"), 0o600))
		require.NoError(t, dissolve(t.Context(), m, k, workflow.Discard{}))
		err := k.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
		if h.Files.Exists(vip.ManifestFile) != stays || (err == nil) != stays {
			t.Errorf("%s: the manifest is there: %t, the settings: %v", text, h.Files.Exists(vip.ManifestFile), err)
		}
	}
}

// A test after a killed one waits until the API server answers. Any answer is final.
func TestPatiently(t *testing.T) {
	silent := errors.New("no answer")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "kubeadm-config", nil)
	for name, tt := range map[string]struct {
		answers []error
		want    error
		said    int
	}{
		"at once":         {[]error{nil}, nil, 0},
		"after a silence": {[]error{silent, nil}, nil, 1},
		"refused":         {[]error{silent, forbidden}, forbidden, 1},
	} {
		asked, said := 0, 0
		got := patiently(t.Context(), func(context.Context) error {
			asked++
			return tt.answers[asked-1]
		}, func(string) { said++ })
		if !errors.Is(got, tt.want) || asked != len(tt.answers) || said != tt.said {
			t.Errorf("%s: %v after %d questions, %d lines", name, got, asked, said)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := patiently(gone, func(context.Context) error { return silent }, func(string) {}); !errors.Is(err, silent) {
		t.Error(err)
	}
}

// An acknowledged write that is missing is counted; an unanswered one is not expected.
func TestLostWrites(t *testing.T) {
	refuse := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/kube-system/configmaps/ocadm-ha-test") {
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}))
	defer server.Close()
	w, err := newWriter(&rest.Config{}, "unused")
	require.NoError(t, err)
	w.url = server.URL + "/api/v1/namespaces/kube-system/configmaps/ocadm-ha-test"
	for n := range 3 {
		refuse = n == 1
		if ok := w.write(t.Context(), n); ok == refuse {
			t.Errorf("write %d: %v", n, ok)
		}
	}
	if got := w.lost(map[string]string{"k0": ""}); len(w.keys) != 2 || got != 1 {
		t.Errorf("%q, %d lost", w.keys, got)
	}
}

func TestGoals(t *testing.T) {
	slow := 31.0
	for want, list := range map[bool][]Outcome{
		true:  {{API: 10}, {API: 3, Console: new(30.0)}},
		false: {{API: 10.1}, {Console: &slow}, {Lost: 1}},
	} {
		for _, o := range list {
			if o.judge(); o.Met != want {
				t.Errorf("%+v", o)
			}
		}
	}
}

// Only a control plane that can lose a node now is tested.
func TestSurvives(t *testing.T) {
	if err := survives(vip.Status{Tolerates: 1}); err != nil {
		t.Error(err)
	}
	for _, s := range []vip.Status{{}, {Tolerates: 1, Problems: []string{"node b is not Ready"}}} {
		if l := finding.Of(survives(s)); len(l) != 1 || l[0].Code != "OCA-4170" {
			t.Errorf("%+v: %v", s, l)
		}
	}
}

type quiet struct{ workflow.Reporter }

func (quiet) Waiting(string, string) {}

// The objects of a killed test are deleted.
func TestClean(t *testing.T) {
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	k := fake.NewClientBuilder().WithObjects(&corev1.Pod{ObjectMeta: object}, &corev1.ConfigMap{ObjectMeta: object}).Build()
	x := &Test{K: k}
	if left, err := x.left(t.Context()); !left || err != nil {
		t.Fatal(left, err)
	}
	require.NoError(t, x.clean(t.Context(), quiet{}))
	if left, err := x.left(t.Context()); left || err != nil {
		t.Error(left, err)
	}
	if err := k.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ConfigMap{}); err == nil {
		t.Error("the ConfigMap is there")
	}
}

// controlPlane returns a machine with an etcd member and the given cluster endpoint.
func controlPlane(t *testing.T, endpoint string) *host.Host {
	t.Helper()
	cfg := config.Default()
	cfg.Node.Name, cfg.Node.AdvertiseAddress, cfg.Node.IP = "node1", "10.0.0.1", "10.0.0.1"
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	const etcd = "spec:\n  containers:\n  - name: etcd\n    command: [etcd, --name=node1, --data-dir=/var/lib/etcd, --advertise-client-urls=https://10.0.0.1:2379," +
		" --initial-advertise-peer-urls=https://10.0.0.1:2380]\n"
	require.NoError(t, h.Files.WriteFile("/etc/kubernetes/manifests/etcd.yaml", []byte(etcd), 0o600))
	k := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: " + endpoint + "\n"}}).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	return h
}

func TestEnableRefusals(t *testing.T) {
	for name, tt := range map[string]struct{ now, address, endpoint, code string }{
		"the address of the node":     {"10.0.0.1:6443", "10.0.0.1", "", "OCA-4174"},
		"another port":                {"10.0.0.1:6443", "", "lb.example.org:8443", "OCA-4174"},
		"it has an endpoint":          {"lb.example.org:6443", "10.0.0.100", "", "OCA-4174"},
		"a virtual address":           {"10.0.0.1:6443", "10.0.0.100", "", ""},
		"a load balancer":             {"10.0.0.1:6443", "", "lb.example.org", ""},
		"a name of a virtual address": {"10.0.0.1:6443", "10.0.0.100", "api.example.org:6443", ""},
		"again":                       {"10.0.0.100:6443", "10.0.0.100", "", ""},
	} {
		m, err := BeginEnable(t.Context(), controlPlane(t, tt.now), tt.address, tt.endpoint)
		l := finding.Of(err)
		if tt.code == "" && (err != nil || m.From != "10.0.0.1") || tt.code != "" && (len(l) != 1 || l[0].Code != tt.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The only control-plane node accepts no connections to its etcd, and hears no VRRP. With ufw, ocadm cannot change that: another node could not join, and would
// hold the virtual address as well.
func TestEnableBehindUFW(t *testing.T) {
	const open = "2379/tcp ALLOW Anywhere\n2380/tcp ALLOW Anywhere\n"
	for name, tt := range map[string]struct{ status, address, endpoint, lacks string }{
		"inactive":                      {"Status: inactive\n", "10.0.0.100", "", ""},
		"as init wanted it":             {"Status: active\n", "10.0.0.100", "", "ufw allow 2379/tcp\nufw allow 2380/tcp\nufw allow proto vrrp from any to any"},
		"etcd is open":                  {"Status: active\n" + open, "10.0.0.100", "", "ufw allow proto vrrp from any to any"},
		"etcd is open, a load balancer": {"Status: active\n" + open, "", "lb.example.org", ""},
	} {
		h := controlPlane(t, "10.0.0.1:6443")
		h.Exec = &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
			if c.Path == "ufw" {
				return exec.Result{Stdout: tt.status}, nil
			}
			return exec.Result{}, nil
		}}
		_, err := BeginEnable(t.Context(), h, tt.address, tt.endpoint)
		l := finding.Of(err)
		if tt.lacks == "" && err != nil || tt.lacks != "" && (len(l) != 1 || l[0].Code != "OCA-2008" || !strings.HasPrefix(l[0].Remedy, tt.lacks)) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

// An administrator's kubeconfig gets the endpoint; the kubelet keeps using its own API server.
func TestEnabledFiles(t *testing.T) {
	h := controlPlane(t, "10.0.0.1:6443")
	for _, f := range []string{"admin.conf", "super-admin.conf", "kubelet.conf"} {
		require.NoError(t, h.Files.WriteFile("/etc/kubernetes/"+f, []byte("server: https://10.0.0.1:6443\nother: 10.0.0.1:2379 10.0.0.1:64430\n"), 0o600))
	}
	m, err := BeginEnable(t.Context(), h, "10.0.0.100", "")
	require.NoError(t, err)
	files := m.Kubeconfigs()
	if len(files) != 2 || string(files[0].Data) != "server: https://10.0.0.100:6443\nother: 10.0.0.1:2379 10.0.0.1:64430\n" {
		t.Errorf("%s", files[0].Data)
	}
	if err := workflow.Validate(EnableSteps()); err != nil {
		t.Error(err)
	}
	if err := workflow.Validate(Steps()); err != nil {
		t.Error(err)
	}
}

// Without internet access, keepalived comes from the same repository as the cluster's other images.
func TestEnableUsesImagesOfTheCluster(t *testing.T) {
	h := controlPlane(t, "10.0.0.1:6443")
	k, err := h.Kube(t.Context())
	require.NoError(t, err)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.SettingsName},
		Data: map[string]string{"cloud.yaml": "imageRepository: registry.example.org/onecloud\n"}}
	require.NoError(t, k.Create(t.Context(), settings))
	if _, err := BeginEnable(t.Context(), h, "10.0.0.100", ""); err != nil {
		t.Fatal(err)
	}
	if image, err := vip.Image(h.Config); err != nil || !strings.HasPrefix(image, "registry.example.org/onecloud/keepalived:") {
		t.Errorf("%s, %v", image, err)
	}
}

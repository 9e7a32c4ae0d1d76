// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"context"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/nodepod"
	"yunion.io/x/ocadm/test/require"
)

type reporter struct {
	workflow.Discard
	changed []string
}

func (r *reporter) Changed(f string, _ ...any) { r.changed = append(r.changed, f) }

// machine returns a host with an address of this machine, so that its interface is found.
func machine(t *testing.T, objects ...client.Object) (*host.Host, client.WithWatch) {
	t.Helper()
	c := config.Default()
	c.Node.Name, c.Node.AdvertiseAddress, c.Node.IP = "node1", net.IPv4(127, 0, 0, 1).String(), "127.0.0.1"
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	k := fake.NewClientBuilder().WithObjects(objects...).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	return h, k
}

func settings() vip.Settings {
	return vip.Settings{Address: "10.0.0.100", RouterID: 77, Password: "canary88"}.With("10.0.0.9")
}

// The others learn about a joining node before its keepalived can start, files with the password are private, and no manifest contains the password.
// A second run changes nothing; reset removes the node.
func TestJoinAndLeave(t *testing.T) {
	h, k := machine(t, settings().Secret())
	h.Config.Join.ControlPlane = true
	p := JoinPhase()
	if done, err := p.Check(t.Context(), h); done || err != nil {
		t.Fatalf("before: %v, %v", done, err)
	}
	require.NoError(t, p.Run(t.Context(), h, &reporter{}))
	s, found, err := Load(t.Context(), k)
	if err != nil || !found || !slices.Equal(s.Peers, []string{"10.0.0.9", "127.0.0.1"}) || s.Password != "canary88" {
		t.Fatalf("%+v, %v, %v", s, found, err)
	}
	for _, f := range []string{vip.SettingsFile, vip.ConfigFile, ManifestFile} {
		if st, err := h.Files.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", f, err)
		}
	}
	if text := h.Files.Text(ManifestFile); strings.Contains(text, "canary88") || nodepod.Argument(text, addressFlag) != "127.0.0.1" {
		t.Errorf("the manifest has the password, or not the address:\n%s", text)
	}
	if text := h.Files.Text(vip.ConfigFile); !strings.Contains(text, "auth_pass canary88") || !strings.Contains(text, "10.0.0.9") {
		t.Errorf("keepalived's configuration:\n%s", text)
	}
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("after: %v, %v", done, err)
	}
	require.NoError(t, LeavePhase().Run(t.Context(), h, &reporter{}))
	if s, _, err := Load(t.Context(), k); err != nil || slices.Contains(s.Peers, "127.0.0.1") || h.Files.Exists(ManifestFile) {
		t.Errorf("after leaving: %v, %v", s.Peers, err)
	}
}

func TestClusterWithoutAVirtualAddress(t *testing.T) {
	h, k := machine(t)
	h.Config.Join.ControlPlane = true
	if err := JoinPhase().Run(t.Context(), h, &reporter{}); err != nil || h.Files.Exists(ManifestFile) {
		t.Errorf("a node of a cluster without one: %v", err)
	}
	if err := RemovePeer(t.Context(), k, "10.0.0.1"); err != nil {
		t.Errorf("taking a node out: %v", err)
	}
	if why := Phase().Skip(h); why == "" {
		t.Error("init would start keepalived without an address")
	}
}

// A repeated init keeps the router ID and the password, and refuses another address.
func TestInitAgain(t *testing.T) {
	h, k := machine(t)
	h.Config.Cluster.VirtualAddress = "10.0.0.100"
	if err := StorePhase().Run(t.Context(), h, &reporter{}); err == nil {
		t.Error("settings that this machine does not have are stored")
	}
	require.NoError(t, install(h, settings(), &reporter{}))
	r := &reporter{}
	if err := Phase().Run(t.Context(), h, r); err != nil || len(r.changed) > 0 {
		t.Errorf("the second run changes %q, %v", r.changed, err)
	}
	require.NoError(t, StorePhase().Run(t.Context(), h, &reporter{}))
	if s, found, err := Load(t.Context(), k); err != nil || !found || s.RouterID != 77 {
		t.Errorf("stored: %v, %v, %v", s.RouterID, found, err)
	}
	h.Config.Cluster.VirtualAddress = "10.0.0.101"
	if err := Phase().Run(t.Context(), h, &reporter{}); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4138" {
		t.Errorf("another address: %v", err)
	}
}

func TestJudge(t *testing.T) {
	node := func(name string, up bool) NodeStatus { return NodeStatus{Name: name, Ready: up, APIServer: up} }
	member := func(name string) etcd.Listed { return etcd.Listed{Name: name} }
	for name, tt := range map[string]struct {
		nodes     []NodeStatus
		members   []etcd.Listed
		tolerates int
		problem   string
	}{
		"one":           {[]NodeStatus{node("a", true)}, []etcd.Listed{member("a")}, 0, "three survive it"},
		"three":         {[]NodeStatus{node("a", true), node("b", true), node("c", true)}, []etcd.Listed{member("a"), member("b"), member("c")}, 1, ""},
		"one lost":      {[]NodeStatus{node("a", true), node("b", false), node("c", true)}, []etcd.Listed{member("a"), member("b"), member("c")}, 0, "node b is not Ready"},
		"node deleted":  {[]NodeStatus{node("a", true), node("b", true)}, []etcd.Listed{member("a"), member("b"), member("c")}, 0, "if it is lost: ocadm node remove c"},
		"join not over": {[]NodeStatus{node("a", true)}, []etcd.Listed{member("a"), {PeerURLs: []string{"https://x:2380"}, Learner: true}}, 0, "https://x:2380"},
	} {
		s := Status{Nodes: tt.nodes}
		s.judge(tt.members)
		if all := strings.Join(s.Problems, "; "); s.Tolerates != tt.tolerates || !strings.Contains(all, tt.problem) || tt.problem == "" && all != "" {
			t.Errorf("%s: %d more, %q", name, s.Tolerates, s.Problems)
		}
	}
}

// A node's API server is queried at its own port.
func TestAPIServerPort(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}}}
	if s := statusOf(t.Context(), n, []etcd.Listed{{Name: "node1"}}, "node1", port); !s.APIServer || s.Etcd != "voter" || !s.Holds {
		t.Errorf("%+v", s)
	}
	n.Status.Addresses = nil
	if s := statusOf(t.Context(), n, nil, "", port); s.APIServer {
		t.Errorf("this machine answers for a node without an address: %+v", s)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	server.Close()
	if s := statusOf(t.Context(), n, nil, "", port); s.APIServer {
		t.Errorf("without an API server: %+v", s)
	}
}

func TestNodeOfACertificate(t *testing.T) {
	if got := nodeIn([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "node2"}); got != "node2" {
		t.Errorf("%q", got)
	}
}

// The image is the published one, or that of a private registry.
func TestImage(t *testing.T) {
	h, _ := machine(t)
	for repository, want := range map[string]string{"": "registry.cn-beijing.aliyuncs.com/yunionio/keepalived:v2.0.25", "r.example.org/m": "r.example.org/m/keepalived:v2.0.25"} {
		h.Config.Cluster.ImageRepository = repository
		if got, err := Image(h.Config); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
}

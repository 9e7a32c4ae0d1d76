// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	vipgroup "yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

const (
	kubelet = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {cluster: x, user: x}\nclusters:\n- name: x\n  cluster:\n" +
		"    server: https://10.0.0.1:6443\nusers:\n- name: x\n  user: {}\n"
	flags = "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.7 --pod-infra-container-image=x\"\n"
)

var since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// worker returns a node at 10.0.0.7, with a second address, whose control plane is at 10.0.0.1.
func worker(t *testing.T) *host.Host {
	t.Helper()
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	h.Facts.Interfaces = []host.Interface{{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("10.0.0.8/24")}}}
	for name, text := range map[string]string{
		"/etc/kubernetes/kubelet.conf": kubelet, "/var/lib/kubelet/kubeadm-flags.env": flags, "/etc/yunion/host.conf": "networks: [eth0/br0/10.0.0.7]\n",
		"/etc/ocadm/kubeadm.yaml": "value: 10.0.0.7\n", "/opt/near.txt": "10.0.0.77\n",
	} {
		require.NoError(t, h.Files.WriteFile(name, []byte(text), 0o600))
	}
	return h
}

func begun(t *testing.T, h *host.Host, to string, follow bool) *Move {
	t.Helper()
	m, err := Begin(t.Context(), h, to, follow, since)
	require.NoError(t, err)
	return m
}

// quiet is a reporter for steps.
type quiet struct{ workflow.Reporter }

func (quiet) Changed(string, ...any) {}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		to, code string
		follow   bool
		prepare  func(*host.Host) error
	}{
		"no node":             {"10.0.0.8", "OCA-4160", false, func(h *host.Host) error { return h.Files.Remove("/etc/kubernetes/kubelet.conf") }},
		"no address is known": {"10.0.0.8", "OCA-4160", false, func(h *host.Host) error { return h.Files.Remove("/var/lib/kubelet/kubeadm-flags.env") }},
		"not on the machine":  {"10.0.0.9", "OCA-4164", false, nil},
		"another family":      {"fd00::1", "OCA-4162", false, nil},
		"another is under way": {"10.0.0.8", "OCA-4161", false, func(h *host.Host) error {
			return h.Files.WriteFile(recordFile, []byte(`{"from":"10.0.0.7","to":"10.0.0.9","since":"2026-01-01T00:00:00Z"}`), 0o600)
		}},
		"a control plane does not follow": {"10.0.0.2", "OCA-4165", true, func(h *host.Host) error {
			return h.Files.WriteFile("/etc/kubernetes/admin.conf", []byte(kubelet), 0o600)
		}},
		"a name": {"10.0.0.2", "OCA-4163", true, func(h *host.Host) error {
			return h.Files.WriteFile("/etc/kubernetes/kubelet.conf", []byte(strings.ReplaceAll(kubelet, "10.0.0.1", "cloud.example")), 0o600)
		}},
		"nothing answers": {"127.0.0.9", "OCA-4166", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := worker(t)
			if c.prepare != nil {
				require.NoError(t, c.prepare(h))
			}
			_, err := Begin(t.Context(), h, c.to, c.follow, since)
			if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
		})
	}
}

const etcdPod = "spec: {containers: [{name: etcd, command: [etcd, --name=node1, \"--initial-advertise-peer-urls=https://10.0.0.7:2380\", " +
	"\"--advertise-client-urls=https://10.0.0.7:2379\", --data-dir=/var/lib/etcd, \"--initial-cluster=node1=https://10.0.0.7:2380\"]}]}"

// The etcd manifest on the first control-plane node names only itself, however many there are. If etcd does not answer, the endpoint decides.
func TestControlPlanesAreSeveral(t *testing.T) {
	for server, code := range map[string]string{"10.0.0.7": "", "10.0.0.100": "OCA-4165"} {
		h := worker(t)
		apiServer := "metadata: {annotations: {kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: \"10.0.0.7:6443\"}}\n" +
			"spec: {containers: [{name: kube-apiserver, command: [kube-apiserver, --advertise-address=10.0.0.7, --secure-port=6443]}]}"
		for name, text := range map[string]string{
			"/etc/kubernetes/admin.conf":                    strings.ReplaceAll(kubelet, "10.0.0.1:6443", server+":1"),
			"/etc/kubernetes/manifests/etcd.yaml":           etcdPod,
			"/etc/kubernetes/manifests/kube-apiserver.yaml": apiServer,
		} {
			require.NoError(t, h.Files.WriteFile(name, []byte(text), 0o600))
		}
		m, err := Begin(t.Context(), h, "10.0.0.8", false, since)
		if l := finding.Of(err); code == "" && (err != nil || !m.Endpoint) || code != "" && (len(l) != 1 || l[0].Code != code) {
			t.Errorf("reached at %s: %+v, %v", server, m, err)
		}
	}
}

// Resetting the only control-plane node ends its cluster: that is suggested only if there is another.
func TestInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		members       int
		virtual, here bool
		first         string // the start of the remedy, "" if the node can be moved
	}{
		"alone":                             {1, false, true, ""},
		"alone behind a load balancer":      {1, false, false, ""},
		"alone, and etcd is silent":         {0, false, true, ""},
		"alone with a virtual address":      {1, true, false, "do not reset it now"},
		"one of three":                      {3, false, false, "remove it"},
		"one of three, reached here":        {3, false, true, "remove it"},
		"one of three, a virtual address":   {3, true, false, "remove it"},
		"one of two":                        {2, true, false, "remove it"},
		"not known, a virtual address":      {0, true, false, "ocadm etcd status"},
		"not known, and it has the address": {0, true, true, "ocadm etcd status"},
		"not known, a load balancer":        {0, false, false, "ocadm etcd status"},
	} {
		l := finding.Of(inPlace(c.members, c.virtual, c.here, ""))
		if c.first == "" {
			if len(l) != 0 {
				t.Errorf("%s: %v", name, l)
			}
			continue
		}
		if len(l) != 1 || l[0].Code != "OCA-4165" || !strings.HasPrefix(l[0].Remedy, c.first) {
			t.Errorf("%s: %v", name, l)
			continue
		}
		r := l[0].Remedy
		another, reset := strings.Index(r, "first join another control-plane node"), strings.Index(r, "ocadm reset; then ocadm join --control-plane")
		if c.members < 2 && (another < 0 || reset < another) || c.members > 1 && another >= 0 || reset < 0 || strings.Contains(r, "--virtual-address") != c.virtual {
			t.Errorf("%s: %s", name, r)
		}
	}
}

// An API server that answers is not necessarily the cluster's endpoint.
func TestReachedThere(t *testing.T) {
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": "clusters:\n- name: \"\"\n  cluster: {server: \"https://10.0.0.100:6443\"}\n"}}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: cloud.example:6443\n"}}
	for name, c := range map[string]struct {
		has  []client.Object
		to   string
		code string
	}{
		"there":              {[]client.Object{info}, "10.0.0.100", ""},
		"a node behind it":   {[]client.Object{info}, "10.0.0.7", "OCA-4166"},
		"a name":             {[]client.Object{info, settings}, "cloud.example", ""},
		"behind a name":      {[]client.Object{info, settings}, "10.0.0.100", "OCA-4166"},
		"it does not say it": {nil, "10.0.0.7", ""},
	} {
		m := &Move{record: record{To: c.to}}
		err := m.reachedThere(t.Context(), fake.NewClientBuilder().WithObjects(c.has...).Build())
		if l := finding.Of(err); c.code == "" && err != nil || c.code != "" && (len(l) != 1 || l[0].Code != c.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesChangeThereAndBack(t *testing.T) {
	h := worker(t)
	m := begun(t, h, "10.0.0.8", false)
	files, err := changes(h, m.From, m.To)
	require.NoError(t, err)
	want := []string{"change /etc/ocadm/kubeadm.yaml", "change /etc/yunion/host.conf", "change /var/lib/kubelet/kubeadm-flags.env"}
	if diff := cmp.Diff(want, files.Todo(h)); diff != "" {
		t.Error(diff)
	}
	if _, err := files[:1].Write(h, quiet{}); err != nil { // then it was killed
		t.Fatal(err)
	}
	require.NoError(t, m.save())
	if again := begun(t, h, "10.0.0.8", false); again.From != m.From || !again.noted() {
		t.Errorf("again: %+v", again)
	}
	back := begun(t, h, "10.0.0.7", false)
	if back.From != m.To || back.To != m.From || back.noted() {
		t.Errorf("back: %+v", back)
	}
	if files, err = changes(h, back.From, back.To); err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files.Todo(h), err)
	}
	if _, err := files.Write(h, quiet{}); err != nil {
		t.Fatal(err)
	}
	if text := h.Files.Text("/etc/ocadm/kubeadm.yaml"); text != "value: 10.0.0.7\n" {
		t.Errorf("%q", text)
	}
}

func TestNothingToMove(t *testing.T) {
	if m := begun(t, worker(t), "10.0.0.7", false); !m.Moved() {
		t.Errorf("%+v", m)
	}
}

// A clock that was ahead when the kubelet was restarted would keep the next step waiting until that time: the kubelet is restarted again.
func TestKubeletRestartedWhileAClockWasAhead(t *testing.T) {
	steps := Steps()
	kubelet := steps[slices.IndexFunc(steps, func(s Step) bool { return s.Name == "kubelet" })]
	for after, want := range map[time.Duration]bool{-time.Second: true, time.Hour: false} {
		m := &Move{record: record{From: "10.0.0.7", To: "10.0.0.8", Restarted: time.Now().Add(after)}}
		if done, err := kubelet.Check(t.Context(), m); err != nil || done != want {
			t.Errorf("restarted in %s: %t, %v", after, done, err)
		}
	}
}

func TestStepsAreAPlan(t *testing.T) {
	if err := workflow.Validate(Steps()); err != nil {
		t.Error(err)
	}
}

// The cluster's settings determine whether a move of the virtual address starts, continues or is reversed.
func TestDirection(t *testing.T) {
	const a, b, c = "10.0.0.100", "10.0.0.200", "10.0.0.300"
	only := vipgroup.Settings{Address: a, Peers: []string{"10.0.0.1"}}
	both := vipgroup.Settings{Address: a, Other: vipgroup.Group{Address: b, RouterID: 7}}
	for name, tt := range map[string]struct {
		s              vipgroup.Settings
		to, from, code string
	}{
		"begins":              {only, b, a, ""},
		"nothing to do":       {only, a, a, ""},
		"goes on":             {both, b, a, ""},
		"goes back":           {both, a, b, ""},
		"to a third":          {both, "10.0.0.50", "", "OCA-4161"},
		"no address":          {only, c, "", "OCA-4167"},
		"of a node":           {only, "10.0.0.1", "", "OCA-4167"},
		"of the other family": {only, "fd00::1", "", "OCA-4167"},
	} {
		r, err := direction(tt.s, tt.to)
		if code := codeOf(err); code != tt.code || err == nil && (r.From != tt.from || r.To != tt.to) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func codeOf(err error) string {
	for _, f := range finding.Of(err) {
		return f.Code
	}
	return ""
}

// Workers that still use the former address keep it up. Control-plane nodes do not count.
func TestLeft(t *testing.T) {
	node := func(name, at string, labels map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{ofEndpoint: at}}}
	}
	m := &Move{record: record{From: "10.0.0.100", To: "10.0.0.200"}, virtual: &virtual{nodes: []corev1.Node{
		node("control", "10.0.0.100", map[string]string{v1alpha1.LabelControlPlane: ""}), node("follows", "10.0.0.200", nil), node("stays", "10.0.0.100", nil), {ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}}}
	if left := m.Left(); !slices.Equal(left, []string{"stays", "new"}) {
		t.Errorf("%q", left)
	}
	next := m.Followers()
	if len(next) != 3 || next[0] != "on stays: ocadm move --follow 10.0.0.200" || !strings.Contains(next[2], "ocadm move --virtual-address 10.0.0.200") {
		t.Errorf("%q", next)
	}
	if why := formerStep().Skip(m); !strings.Contains(why, "stays, new") {
		t.Errorf("%q", why)
	}
	m.virtual.nodes = m.virtual.nodes[:2]
	if why := formerStep().Skip(m); why != "" || len(m.Followers()) > 0 {
		t.Errorf("all have followed: %q", why)
	}
	if err := workflow.Validate(VirtualSteps()); err != nil {
		t.Error(err)
	}
}

// A node updates the address in its files, but not in static pods, which would restart.
func TestFilesOfAVirtualAddress(t *testing.T) {
	h := worker(t)
	for file, text := range map[string]string{kubernetes.AdminKubeconfig: "server: https://10.0.0.100:6443\n", "/etc/kubernetes/manifests/depot.yaml": "10.0.0.100\n"} {
		require.NoError(t, h.Files.WriteFile(file, []byte(text), 0o600))
	}
	require.NoError(t, PartSteps(Files, "10.0.0.100", "10.0.0.200")[0].Run(t.Context(), h, quiet{}))
	if a, b := h.Files.Text(kubernetes.AdminKubeconfig), h.Files.Text("/etc/kubernetes/manifests/depot.yaml"); a != "server: https://10.0.0.200:6443\n" || b != "10.0.0.100\n" {
		t.Errorf("%q, %q", a, b)
	}
	if err := PartSteps("x", "10.0.0.100", "10.0.0.200")[0].Run(t.Context(), h, quiet{}); err == nil {
		t.Error("an unknown part is done")
	}
}

// Existing clouds, and the settings for later ones, get the new address if they contain the former one.
func TestMoveClouds(t *testing.T) {
	const from, to, other = "10.0.0.1", "10.0.0.2", "cloud.example"
	objects := []client.Object{
		&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "a"}, Spec: v1alpha1.OnecloudClusterSpec{LoadBalancerEndpoint: from}},
		&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "b"}, Spec: v1alpha1.OnecloudClusterSpec{LoadBalancerEndpoint: other}},
	}
	for namespace, endpoint := range map[string]string{"onecloud": from, "elsewhere": other} {
		kept, err := cluster.Settings(cluster.Options{Name: "default", Namespace: namespace, Region: "r1", LoadBalancerEndpoint: endpoint}, "")
		require.NoError(t, err)
		for _, o := range kept {
			objects = append(objects, o)
		}
	}
	named := func(o client.Object) []string { return []string{o.GetName()} }
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithIndex(&corev1.ConfigMap{}, "metadata.name", named).WithObjects(objects...).Build()
	m := &Move{ControlPlane: true, record: record{From: from, To: to}}
	todo, err := m.cloudsToMove(t.Context(), c)
	if want := []string{"change spec.loadBalancerEndpoint of cloud onecloud/a", "change ConfigMap onecloud/ocadm-cloud"}; err != nil || !slices.Equal(todo, want) {
		t.Errorf("to do: %q, %v", todo, err)
	}
	require.NoError(t, m.moveClouds(t.Context(), c, quiet{}))
	for namespace, want := range map[string]string{"onecloud": to, "elsewhere": other} {
		o, err := cluster.LoadSettings(t.Context(), c, namespace)
		if err != nil || o.LoadBalancerEndpoint != want || o.Region != "r1" {
			t.Errorf("settings in %s: %+v, %v", namespace, o, err)
		}
	}
	list, err := cluster.All(t.Context(), c)
	if err != nil || len(list) != 2 || list[0].Spec.LoadBalancerEndpoint != other || list[1].Spec.LoadBalancerEndpoint != to {
		t.Errorf("clouds: %+v, %v", list, err)
	}
	if todo, err := m.cloudsToMove(t.Context(), c); err != nil || len(todo) > 0 {
		t.Errorf("left to do: %q, %v", todo, err)
	}
}

// A move that stops half-way reports how to continue and how to go back. Nothing is added if it has not begun, if a finding explains the error, or if it was interrupted.
func TestExplain(t *testing.T) {
	failed := errors.New("giving up after 5m0s, still waiting for etcd")
	other := finding.New("OCA-3010", "x", "", "y")
	h := worker(t)
	own, follow := Move{Host: h, record: record{From: "10.0.0.7", To: "10.0.0.8"}}, Move{Host: h, Follow: true, record: record{From: "10.0.0.1", To: "10.0.0.2"}}
	address := own
	address.virtual = &virtual{settings: vipgroup.Settings{Address: "10.0.0.7"}}
	if err := own.Explain(failed); !errors.Is(err, failed) || len(finding.Of(err)) > 0 {
		t.Errorf("before it began: %v", err)
	}
	require.NoError(t, own.save())
	if err := address.Explain(failed); len(finding.Of(err)) > 0 {
		t.Errorf("the virtual address, before it began: %v", err)
	}
	address.virtual.settings.Other.Address = "10.0.0.8"
	for on, m := range map[string]Move{"": own, "--follow ": follow, "--virtual-address ": address} {
		l := finding.Of(m.Explain(failed))
		if len(l) != 1 || l[0].Code != "OCA-4169" || !strings.Contains(l[0].Remedy, "ocadm move "+on+m.To) || !strings.Contains(l[0].Remedy, "ocadm move "+on+m.From) {
			t.Errorf("%q: %+v", on, l)
		}
	}
	if l := finding.Of(own.Explain(fmt.Errorf("phase x: %w", other))); len(l) != 1 || l[0].Code != other.Code {
		t.Errorf("a finding: %+v", l)
	}
	if err := own.Explain(context.Canceled); len(finding.Of(err)) > 0 {
		t.Errorf("interrupted: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// podServer is an API server with nothing but pods. A deleted pod is replaced immediately, like that of a DaemonSet; the clock of its node was set back.
type podServer struct {
	mu      sync.Mutex
	pods    []corev1.Pod
	deleted []string
	failed  error
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch {
	case r.URL.Path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case r.URL.Path == "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case r.URL.Path == "/api/v1":
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"list", "delete"}}}}
	case r.Method == http.MethodDelete:
		raw, err := io.ReadAll(r.Body)
		var o metav1.DeleteOptions
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(raw, nil, &o)
		}
		i := slices.IndexFunc(s.pods, func(p corev1.Pod) bool { return p.Name == path.Base(r.URL.Path) })
		if err != nil || i < 0 || o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID != s.pods[i].UID {
			s.failed = err
			http.Error(w, "{}", http.StatusConflict)
			return
		}
		s.deleted = append(s.deleted, s.pods[i].Name)
		s.pods[i].UID += "-again"
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	default:
		answer = corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.pods}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.failed = err
	}
}

// ask points the kubelet of a machine to a server.
func ask(t *testing.T, h *host.Host, server string) {
	t.Helper()
	require.NoError(t, h.Files.WriteFile("/etc/kubernetes/kubelet.conf", []byte(strings.ReplaceAll(kubelet, "https://10.0.0.1:6443", server)), 0o600))
}

// The API server of the only control-plane node does not answer at an address that the machine has lost. Pods started with that address are found
// once it answers at the new one, even by a repeated command; they are restarted once.
func TestPodsOfALostAddress(t *testing.T) {
	restarted := since.Add(time.Minute)
	pod := func(name string, started time.Time, hostNetwork bool, annotations map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID(name), Annotations: annotations},
			Spec: corev1.PodSpec{HostNetwork: hostNetwork}, Status: corev1.PodStatus{StartTime: &metav1.Time{Time: started}}}
	}
	waits := pod("waits", since, true, nil)
	waits.Status.StartTime = nil
	api := &podServer{pods: []corev1.Pod{
		pod("flannel", since.Add(-time.Hour), true, nil), pod("begun-meanwhile", since.Add(time.Second), true, nil),
		pod("kube-proxy", restarted.Add(time.Second), true, nil), waits, pod("coredns", since.Add(-time.Hour), false, nil),
		pod("etcd", since.Add(-time.Hour), true, map[string]string{corev1.MirrorPodAnnotationKey: "x"}),
	}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	silent := httptest.NewServer(api)
	silent.Close()
	h := worker(t)
	ask(t, h, silent.URL)
	m := begun(t, h, "10.0.0.8", false)
	require.NoError(t, begin(t.Context(), m, workflow.Discard{}))
	m.Restarted = restarted
	require.NoError(t, m.save())
	ask(t, h, server.URL)
	m = begun(t, h, "10.0.0.8", false) // the command is repeated
	want := []string{"restart pod kube-system/flannel", "restart pod kube-system/begun-meanwhile"}
	if todo, err := podsStep().Plan(t.Context(), m); err != nil || !slices.Equal(todo, want) {
		t.Errorf("to do: %q, %v", todo, err)
	}
	for range 2 {
		require.NoError(t, podsStep().Run(t.Context(), m, workflow.Discard{}))
		m = begun(t, h, "10.0.0.8", false)
	}
	if done, err := podsStep().Check(t.Context(), m); err != nil || !done {
		t.Errorf("done: %v, %v", done, err)
	}
	if !slices.Equal(api.deleted, []string{"flannel", "begun-meanwhile"}) || api.failed != nil {
		t.Errorf("deleted %q, %v", api.deleted, api.failed)
	}
}

// A node that follows restarts the agent that keeps the addresses of the control-plane nodes from its start: with former ones only, it would take the
// next outage of etcd for one of the node's network, and stop the node's servers (OnKeepaliveFailure in pkg/hostman/host_health of Cloudpods, v4.0.3).
func TestFollowingRestartsTheHealthAgent(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"host", "host-health"} {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{StartTime: &metav1.Time{Time: since.Add(-time.Hour)}},
		})
	}
	api := &podServer{pods: pods}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	h := worker(t)
	ask(t, h, server.URL)
	m := &Move{Host: h, Follow: true, record: record{From: "10.0.0.1", To: "10.0.0.2", Follow: true, Since: since}}
	if s := podsStep().Skip; s != nil && s(m) != "" {
		t.Fatalf("skipped: %s", s(m))
	}
	require.NoError(t, begin(t.Context(), m, workflow.Discard{}))
	for range 2 {
		require.NoError(t, podsStep().Run(t.Context(), m, workflow.Discard{}))
	}
	if !slices.Equal(api.deleted, []string{"host-health"}) || api.failed != nil {
		t.Errorf("deleted %q, %v", api.deleted, api.failed)
	}
}

// A control-plane node whose etcd does not answer cannot be moved in place: it gets its lost address back, on the interface and in the network of the new one.
func TestLostAddressIsReassigned(t *testing.T) {
	const command = "ip address add 10.0.0.7/23 dev eth1"
	for name, c := range map[string]struct {
		prefixes []string
		lost     bool
	}{
		"it has the new one": {[]string{"10.0.0.8/23"}, true},
		"it has both":        {[]string{"10.0.0.7/23", "10.0.0.8/23"}, false},
	} {
		h := worker(t)
		var has []netip.Prefix
		for _, p := range c.prefixes {
			has = append(has, netip.MustParsePrefix(p))
		}
		h.Facts.Interfaces = []host.Interface{{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")}}, {Name: "eth1", Prefixes: has}}
		for file, text := range map[string]string{
			"/etc/kubernetes/admin.conf": strings.ReplaceAll(kubelet, "10.0.0.1:6443", "cloud.example:1"), "/etc/kubernetes/manifests/etcd.yaml": etcdPod,
		} {
			require.NoError(t, h.Files.WriteFile(file, []byte(text), 0o600))
		}
		_, err := Begin(t.Context(), h, "10.0.0.8", false, since)
		l := finding.Of(err)
		if len(l) != 1 || l[0].Code != "OCA-4165" || strings.Contains(l[0].Remedy, command+"; then run the same command again") != c.lost {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, several := range []int{1, 3} {
		l := finding.Of(inPlace(several, true, false, command))
		if len(l) != 1 || !strings.Contains(l[0].Remedy, command+"; then ") || strings.Contains(l[0].Remedy, "run the same command again") {
			t.Errorf("%d members: %+v", several, l)
		}
	}
}

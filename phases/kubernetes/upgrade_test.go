// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestKubeletFits(t *testing.T) {
	for _, c := range []struct {
		kubelet, server string
		fits            bool
	}{
		{"v1.36.3", "v1.36.0", true}, {"v1.35.8", "v1.36.3", true}, {"v1.33.0", "v1.36.3", true},
		{"v1.32.9", "v1.36.3", false}, {"v1.37.0", "v1.36.3", false}, {"", "v1.36.3", false},
	} {
		if why := KubeletFits(c.kubelet, c.server); (why == "") != c.fits {
			t.Errorf("kubelet %q with %s: %q", c.kubelet, c.server, why)
		}
	}
}

const apiServerManifest = `{apiVersion: v1, kind: Pod, metadata: {name: kube-apiserver, annotations: {
 kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: "10.0.0.1:7443"}},
 spec: {containers: [{name: kube-apiserver, image: "registry.k8s.io/kube-apiserver:v1.35.8", command: [kube-apiserver, --a=1, --b=2]}]}}`

func TestOwnEndpoint(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	if _, _, ok := OwnEndpoint(h); ok || IsControlPlane(h) {
		t.Error("a machine without an API server has one")
	}
	write(t, h, manifest("kube-apiserver"), apiServerManifest)
	if a, p, ok := OwnEndpoint(h); !ok || a != "10.0.0.1" || p != 7443 {
		t.Errorf("%s %d %v", a, p, ok)
	}
	if got := StaticVersions(h)["kube-apiserver"]; got != "v1.35.8" {
		t.Errorf("version %q", got)
	}
}

// API servers may use ports other than 6443, and different ones from each other.
func TestAPIPorts(t *testing.T) {
	pod := func(component, node, endpoint string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: component + "-" + node,
			Labels:      map[string]string{"component": component, "tier": "control-plane"},
			Annotations: map[string]string{"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": endpoint}}, Spec: corev1.PodSpec{NodeName: node}}
	}
	c := fake.NewClientBuilder().WithObjects(pod("kube-apiserver", "node1", "10.0.0.1:7443"), pod("kube-apiserver", "node2", "[fd00::2]:6443"),
		pod("kube-apiserver", "node3", ""), pod("etcd", "node4", "10.0.0.4:1")).Build()
	got, err := APIPorts(t.Context(), c)
	if err != nil || len(got) != 2 || got["node1"] != 7443 || got["node2"] != 6443 {
		t.Errorf("%v, %v", got, err)
	}
}

// A static pod is replaced only if its new manifest differs in meaning, and can be restored.
func TestExchangePlan(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	const name = "kube-apiserver"
	write(t, h, manifest(name), apiServerManifest)
	for _, c := range []struct{ from, to, want string }{
		{"--a=1, --b=2", "--b=2, --a=1", ""},
		{"--b=2", "--b=3", "restart kube-apiserver with other settings"},
		{"v1.35.8", "v1.36.3", "replace kube-apiserver v1.35.8 with v1.36.3"},
	} {
		write(t, h, stagedDir+"/"+name+".yaml", strings.Replace(apiServerManifest, c.from, c.to, 1))
		if got, err := ExchangePlan(h, name); got != c.want || err != nil {
			t.Errorf("%s to %s: %q, %v", c.from, c.to, got, err)
		}
	}
	if images, err := StagedImages(h); err != nil || len(images) != 1 || Tag(images[0]) != "v1.36.3" {
		t.Errorf("%q, %v", images, err)
	}
	if !IsBack(h, name) {
		t.Error("nothing was replaced, and it is not back")
	}
	write(t, h, beforeDir+"/"+name+".yaml", apiServerManifest)
	require.NoError(t, h.Files.Copy(stagedDir+"/"+name+".yaml", manifest(name)))
	if StaticVersions(h)[name] != "v1.36.3" || IsBack(h, name) {
		t.Errorf("after the exchange: %v", StaticVersions(h))
	}
	if err := h.Files.Copy(beforeDir+"/"+name+".yaml", manifest(name)); err != nil || !IsBack(h, name) {
		t.Errorf("back: %v", err)
	}
	left, err := h.Files.ReadDir(manifestsDir)
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The member list that etcd was started with stays in its manifest: otherwise etcd would restart needlessly.
func TestKeepInitialCluster(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	pod := func(args string) string {
		return `{apiVersion: v1, kind: Pod, spec: {containers: [{name: etcd, image: "registry.k8s.io/etcd:3.6.8-0", command: [etcd, --name=node2, ` + args + `]}]}}`
	}
	write(t, h, manifest("etcd"), pod(`"--initial-cluster=node1=https://10.0.0.1:2380,node2=https://10.0.0.2:2380", --initial-cluster-state=existing`))
	write(t, h, stagedDir+"/etcd.yaml", pod(`"--initial-cluster=node2=https://10.0.0.2:2380"`))
	require.NoError(t, keepInitialCluster(h))
	if got, err := ExchangePlan(h, "etcd"); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The node's release and version are recorded for init and join.
func TestNoteUpgrade(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	write(t, h, ConfigFile, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.8\n")
	for _, e := range []host.Entry{{Kind: host.KindFile, Name: ConfigFile, Op: host.Created}, {Kind: host.KindRelease, Name: ocadmRelease, Op: host.Found, Detail: "v0.0.1"}} {
		require.NoError(t, h.Ledger.Record(e))
	}
	if OtherRelease(h) == nil {
		t.Error("an earlier release is this one")
	}
	require.NoError(t, NoteUpgrade(h, version.Kubernetes))
	if err := OtherRelease(h); err != nil || EarlierConfig(h).KubernetesVersion != version.Kubernetes {
		t.Errorf("%v, %s", err, EarlierConfig(h).KubernetesVersion)
	}
}

func TestVolumesIn(t *testing.T) {
	wanted, found := volumesIn(`# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="actual_state_of_world"} 12
volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="desired_state_of_world"} 19
volume_manager_total_volumes{plugin_name="kubernetes.io/projected",state="actual_state_of_world"} 2
volume_manager_selinux_volumes_admitted_total{plugin_name="x",state="actual_state_of_world"} 7
`)
	if wanted != 19 || found != 14 {
		t.Errorf("%d wanted, %d found", wanted, found)
	}
}

// While nothing is healthy, all manifests that a static pod depends on are restored before the first wait, which would never end otherwise.
func TestPutBack(t *testing.T) {
	pod := func(name, version string) string {
		return "spec: {containers: [{name: " + name + ", image: \"registry/" + name + ":" + version + "\"}]}"
	}
	for name, c := range map[string]struct {
		back func(context.Context, *host.Host) error
		want []string
	}{
		"the scheduler, at the rollback of a run": {func(ctx context.Context, h *host.Host) error {
			return PutBack(ctx, h, workflow.Discard{}, "kube-scheduler")
		}, []string{"etcd", "kube-apiserver", "kube-scheduler"}},
		"the API server": {func(ctx context.Context, h *host.Host) error {
			return PutBack(ctx, h, workflow.Discard{}, "kube-apiserver")
		}, []string{"etcd", "kube-apiserver"}},
		"all": {func(ctx context.Context, h *host.Host) error {
			return PutAllBack(ctx, h, workflow.Discard{}, StaticPods()...)
		}, StaticPods()},
	} {
		h := fakeHost(t, &host.Recorder{})
		for _, p := range StaticPods() {
			write(t, h, beforeDir+"/"+p+".yaml", pod(p, "v1"))
			write(t, h, manifest(p), pod(p, "v2"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := c.back(ctx, h); err == nil {
			t.Errorf("%s: it did not wait", name)
		}
		cancel()
		var got []string
		for _, p := range StaticPods() {
			if IsBack(h, p) {
				got = append(got, p)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q are back, want %q", name, got, c.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func plainConfig() *config.Config {
	c := &config.Config{}
	c.Cluster.PodNetworkCIDR = "10.40.0.0/16"
	c.Cluster.ProxyMode = "nftables"
	c.Node.Name = "node1"
	c.Cloud.Namespace = "onecloud"
	c.Addons = config.Addons{CNI: "flannel", Storage: "local-path", StoragePath: "/opt/local-path-provisioner", Ingress: "traefik"}
	return c
}

func cases() map[string]*config.Config {
	private := plainConfig()
	private.Cluster.ImageRepository = "10.0.0.1:5000/mirror"
	private.Cluster.ProxyMode = "iptables"
	private.Cluster.PodNetworkCIDR = "172.20.0.0/14"
	private.Addons.StoragePath = "/data/volumes"
	private.Database.StorageSize = "200Gi"
	return map[string]*config.Config{"plain": plainConfig(), "private-registry": private}
}

// TestPairGolden renders the embedded database with a replica.
func TestPairGolden(t *testing.T) {
	objs, err := database().Objects(plainConfig(), Prepared{Password: placeholder, Pair: &Pair{Image: "ocadm:v1", Password: placeholder}})
	require.NoError(t, err)
	golden(t, filepath.Join("testdata", "pair", "database.yaml"), objs)
}

const placeholder = "PLACEHOLDER"

func TestGolden(t *testing.T) {
	for name, c := range cases() {
		for _, a := range All() {
			t.Run(name+"/"+a.Name, func(t *testing.T) {
				objs, err := a.Objects(c, Prepared{Password: placeholder})
				require.NoError(t, err)
				golden(t, filepath.Join("testdata", name, a.Name+".yaml"), objs)
			})
		}
	}
}

// golden compares objects, as YAML, with a file.
func golden(t *testing.T, file string, objs []*unstructured.Unstructured) {
	t.Helper()
	var got bytes.Buffer
	for _, o := range objs {
		doc, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		got.WriteString("---\n")
		got.Write(doc)
	}
	require.Golden(t, file, got.String())
}

// Every object must match the Go types, field by field.
func TestManifestsHaveNoUnknownField(t *testing.T) {
	s := kube.Scheme()
	strict := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	for _, o := range every(t) {
		raw, err := o.MarshalJSON()
		require.NoError(t, err)
		if _, _, err := strict.Decode(raw, nil, nil); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func every(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, c := range cases() {
		for _, a := range All() {
			objs, err := a.Objects(c, Prepared{Password: placeholder})
			require.NoError(t, err)
			out = append(out, objs...)
		}
	}
	return out
}

// podSpecs calls f for the pod template of each workload.
func podSpecs(t *testing.T, objs []*unstructured.Unstructured, f func(name string, p corev1.PodTemplateSpec)) {
	t.Helper()
	for _, o := range objs {
		if d, ok := kube.As[appsv1.DaemonSet](o); ok && o.GetKind() == "DaemonSet" {
			f(o.GetName(), d.Spec.Template)
		}
		if d, ok := kube.As[appsv1.Deployment](o); ok && o.GetKind() == "Deployment" {
			f(o.GetName(), d.Spec.Template)
		}
		if d, ok := kube.As[appsv1.StatefulSet](o); ok && o.GetKind() == "StatefulSet" {
			f(o.GetName(), d.Spec.Template)
		}
	}
}

// Each addon declares the images in its manifests; otherwise a bundle would lack them.
func TestImagesAreDeclared(t *testing.T) {
	table, err := images.Load()
	require.NoError(t, err)
	c := plainConfig()
	for _, a := range All() {
		declared := map[string]bool{}
		for _, n := range a.Images {
			ref, err := table.Ref(n, "")
			require.NoError(t, err)
			declared[ref] = true
		}
		objs, err := a.Objects(c, Prepared{Password: placeholder})
		require.NoError(t, err)
		podSpecs(t, objs, func(name string, p corev1.PodTemplateSpec) {
			for _, k := range append(p.Spec.InitContainers, p.Spec.Containers...) {
				if !declared[k.Image] {
					t.Errorf("%s: %s runs %s, which Images does not name", a.Name, name, k.Image)
				}
			}
		})
	}
	all, err := Images(c, All()...)
	if err != nil || len(all) != 6 {
		t.Errorf("Images: %q, %v", all, err)
	}
	c.Addons, c.Database.Host = config.Addons{CNI: "none", Storage: "none", Ingress: "none"}, "10.0.0.5"
	if all, err := Images(c, All()...); err != nil || len(all) != 0 {
		t.Errorf("Images with nothing wanted: %q, %v", all, err)
	}
}

// Failed workloads report the reason in their last log lines. The database does not run as root, and the ingress has only one capability.
func TestPodsAreCareful(t *testing.T) {
	podSpecs(t, every(t), func(name string, p corev1.PodTemplateSpec) {
		for _, k := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if k.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
				t.Errorf("%s/%s: terminationMessagePolicy is %q", name, k.Name, k.TerminationMessagePolicy)
			}
			if sc := k.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
				t.Errorf("%s/%s is privileged", name, k.Name)
			}
		}
		if name == "traefik" {
			want := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}
			if d := cmp.Diff(want, p.Spec.Containers[0].SecurityContext.Capabilities); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
		if name != "ocadm-mysql" {
			return
		}
		if p.Spec.SecurityContext == nil || p.Spec.SecurityContext.RunAsNonRoot == nil || !*p.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may run as root", name)
		}
	})
}

// The password is only in its Secret: not in an argument, variable, ConfigMap or annotation.
func TestPasswordStaysInItsSecret(t *testing.T) {
	objs, err := database().Objects(plainConfig(), Prepared{Password: "Very5ecret"})
	require.NoError(t, err)
	for _, o := range objs {
		raw, err := o.MarshalJSON()
		require.NoError(t, err)
		if o.GetKind() != "Secret" && strings.Contains(string(raw), "Very5ecret") {
			t.Errorf("%s %s holds the password", o.GetKind(), o.GetName())
		}
	}
}

func TestConfigRollsItsPods(t *testing.T) {
	stamp := func(c *config.Config) string {
		objs, err := flannel().Objects(c, Prepared{})
		require.NoError(t, err)
		out := ""
		podSpecs(t, objs, func(_ string, p corev1.PodTemplateSpec) { out = p.Annotations[configAnnotation] })
		return out
	}
	a, b := plainConfig(), plainConfig()
	b.Cluster.PodNetworkCIDR = "10.41.0.0/16"
	if stamp(a) == "" || stamp(a) == stamp(b) || stamp(a) != stamp(plainConfig()) {
		t.Errorf("%q, %q", stamp(a), stamp(b))
	}
}

func TestSkip(t *testing.T) {
	c := plainConfig()
	c.Addons = config.Addons{CNI: "none", Storage: "none", Ingress: "none"}
	c.Database.Host = "10.0.0.5"
	for _, a := range All() {
		if a.Skip(plainConfig()) != "" || a.Skip(c) == "" {
			t.Errorf("%s: %q, %q", a.Name, a.Skip(plainConfig()), a.Skip(c))
		}
	}
	if n := len(targets(&host.Host{Config: c})); n != 1 {
		t.Errorf("%d things are waited for where nothing was wanted, want kube-proxy", n)
	}
	if n := len(targets(&host.Host{Config: plainConfig()})); n != 7 {
		t.Errorf("%d things are waited for, want kube-proxy, node, DNS and four addons", n)
	}
	c.Run.SkipPhases = []string{"addon/kube-proxy"}
	if n := len(targets(&host.Host{Config: c})); n != 0 {
		t.Errorf("%d things are waited for where kube-proxy is left out, too", n)
	}
}

func TestPlain(t *testing.T) {
	for pw, want := range map[string]bool{"": false, "abcXYZ019-_.": true, "a'b": false, "a b": false, "ä": false, "a\nb": false} {
		if plain.MatchString(pw) != want {
			t.Errorf("plain(%q) = %t", pw, !want)
		}
	}
}

func TestFlannelNetworks(t *testing.T) {
	for pods, want := range map[string]map[string]any{
		"10.40.0.0/16":               {"Network": "10.40.0.0/16"},
		"fd00:40::/56":               {"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fd00:40::/56"},
		"10.40.0.0/16, fd00:40::/56": {"Network": "10.40.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:40::/56"},
	} {
		c := config.Default()
		c.Cluster.PodNetworkCIDR = pods
		objs, err := flannel().Objects(&c, Prepared{})
		require.NoError(t, err)
		for _, o := range objs {
			text, found, _ := unstructured.NestedString(o.Object, "data", "net-conf.json")
			if !found {
				continue
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s: %v\n%s", pods, err, text)
			}
			delete(got, "EnableNFTables")
			delete(got, "Backend")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", pods, d)
			}
		}
	}
}

// kube-proxy of another node does not count, and one that keeps exiting is explained by the last line of its log.
func TestKubeProxyThatKeepsEnding(t *testing.T) {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	ds := &appsv1.DaemonSet{ObjectMeta: named("kube-system", "kube-proxy"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	pod := func(name, node string, status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}, Status: status}
	}
	good := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	bad := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "kube-proxy", RestartCount: 5, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
	}}}
	h, err := host.Fake(t.Context(), t.TempDir(), plainConfig(), &host.Recorder{})
	require.NoError(t, err)
	with := func(a, b corev1.PodStatus) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(ds, pod("kube-proxy-a", "node1", a), pod("kube-proxy-b", "node2", b)).
			WithIndex(ds, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	}
	c := with(good, bad)
	if !kubeProxy(h).ready(t.Context(), c) {
		t.Error("kube-proxy of node1 is ready, and that of node2 is none of its business")
	}
	c = with(bad, good)
	log := "/var/log/pods/kube-system_kube-proxy-a_0b1c/kube-proxy/5.log"
	line := `2026-11-22T07:01:00.2Z stderr F E1122 07:01:00.200000 1 run.go:72] "command failed" err="kube-proxy in nftables mode requires kernel 5.13 or later"`
	require.NoError(t, h.Files.WriteFile(log, []byte(line+"\n"), 0o644))
	if kubeProxy(h).ready(t.Context(), c) {
		t.Error("it is not ready")
	}
	err = notReady(kubeProxy(h), kubeProxy(h).wait(t.Context(), c, func(string) {}))
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-5002" || !strings.Contains(l[0].Cause, "requires kernel 5.13 or later") {
		t.Errorf("got %v", err)
	}
}

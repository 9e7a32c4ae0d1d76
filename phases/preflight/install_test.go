// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func existing(name, arch string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: arch},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range change {
		f(&n)
	}
	return n
}

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
}

func labelled(n *corev1.Node) { n.Labels["onecloud.yunion.io/controller"] = "enable" }

func deployment(namespace string, change ...func(*appsv1.Deployment)) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "onecloud-operator"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "onecloud-operator", Args: []string{"operator", "run"}}}
	for _, f := range change {
		f(&d)
	}
	return d
}

func definition(revision string) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "onecloudclusters.onecloud.yunion.io"}}
	if revision != "" {
		d.Annotations = map[string]string{"onecloud.yunion.io/definition-revision": revision}
	}
	return d
}

// fine returns a cluster that leaves nothing to choose.
func fine() *host.Cluster {
	return &host.Cluster{
		Version: "v1.30.0", Nodes: []corev1.Node{existing("n1", "amd64")},
		StorageClasses: []host.Class{{Name: "ceph"}}, IngressClasses: []host.Class{{Name: "nginx"}},
	}
}

func TestClusterChecks(t *testing.T) {
	all := func(c *config.Config, k *host.Cluster) []finding.Finding {
		var out []finding.Finding
		for _, judge := range []func(*config.Config, *host.Cluster) []finding.Finding{clusterVersion, otherOperators, laterDefinition, checkStorageClass, checkIngressClass, checkNodes} {
			out = append(out, judge(c, k)...)
		}
		return out
	}
	for name, c := range map[string]struct {
		cluster func(*host.Cluster)
		config  func(*config.Config)
		// code and part of the finding; empty: no finding.
		code, says string
	}{
		"fine":           {},
		"too old":        {cluster: func(k *host.Cluster) { k.Version = "v1.29.14" }, code: "OCA-4210", says: "v1.29.14"},
		"a distribution": {cluster: func(k *host.Cluster) { k.Version = "v1.31.2+rke2r1" }},
		"nonsense":       {cluster: func(k *host.Cluster) { k.Version = "new" }, code: "OCA-4210"},
		"no storage":     {cluster: func(k *host.Cluster) { k.StorageClasses = nil }, code: "OCA-5010", says: "no storage class"},
		"two storage classes": {cluster: func(k *host.Cluster) { k.StorageClasses = []host.Class{{Name: "ssd"}, {Name: "hdd"}} },
			code: "OCA-5010", says: "choose one: --storage-class hdd"},
		"two, one default": {cluster: func(k *host.Cluster) { k.StorageClasses = []host.Class{{Name: "ssd"}, {Name: "hdd", Default: true}} }},
		"two defaults": {cluster: func(k *host.Cluster) {
			k.StorageClasses = []host.Class{{Name: "ssd", Default: true}, {Name: "hdd", Default: true}}
		},
			code: "OCA-5010", says: "hdd, ssd"},
		"two, one chosen": {cluster: func(k *host.Cluster) { k.StorageClasses = []host.Class{{Name: "ssd"}, {Name: "hdd"}} },
			config: func(c *config.Config) { c.Cloud.StorageClass = "ssd" }},
		"misspelt":       {config: func(c *config.Config) { c.Cloud.StorageClass = "cehp" }, code: "OCA-5010", says: "did you mean --storage-class ceph?"},
		"no ingress":     {cluster: func(k *host.Cluster) { k.IngressClasses = nil }, code: "OCA-5011", says: "--ingress-class none"},
		"host ports":     {cluster: func(k *host.Cluster) { k.IngressClasses = nil }, config: func(c *config.Config) { c.Cloud.IngressClass = "none" }},
		"no node":        {cluster: func(k *host.Cluster) { k.Nodes = nil }, code: "OCA-7030", says: "No node of the cluster"},
		"a tainted node": {cluster: func(k *host.Cluster) { k.Nodes = []corev1.Node{existing("n1", "amd64", tainted("gpu"))} }, code: "OCA-7030", says: "gpu"},
		"a control plane": {cluster: func(k *host.Cluster) {
			k.Nodes = []corev1.Node{existing("n1", "arm64", tainted("node-role.kubernetes.io/control-plane"))}
		}},
		"another processor": {cluster: func(k *host.Cluster) { k.Nodes = []corev1.Node{existing("n1", "riscv64")} }, code: "OCA-7030", says: "riscv64"},
		"two nodes": {cluster: func(k *host.Cluster) { k.Nodes = append(k.Nodes, existing("n2", "amd64")) },
			code: "OCA-7030", says: "--controller-nodes n1,n2"},
		"two nodes, one with the role": {cluster: func(k *host.Cluster) { k.Nodes = append(k.Nodes, existing("n2", "amd64", labelled)) }},
		"two nodes, one named": {cluster: func(k *host.Cluster) { k.Nodes = append(k.Nodes, existing("n2", "amd64")) },
			config: func(c *config.Config) { c.Cloud.ControllerNodes = []string{"n2"} }},
		"an unknown node": {config: func(c *config.Config) { c.Cloud.ControllerNodes = []string{"n3"} }, code: "OCA-7030", says: "no node n3"},
		"a cordoned node": {cluster: func(k *host.Cluster) { k.Nodes[0].Spec.Unschedulable = true },
			config: func(c *config.Config) { c.Cloud.ControllerNodes = []string{"n1"} }, code: "OCA-7030", says: "it is cordoned"},
		"our operator":          {cluster: func(k *host.Cluster) { k.Operators = []appsv1.Deployment{deployment("onecloud")} }},
		"an operator elsewhere": {cluster: func(k *host.Cluster) { k.Operators = []appsv1.Deployment{deployment("other")} }, code: "OCA-7031", says: "kubectl -n other delete"},
		"the earlier operator": {cluster: func(k *host.Cluster) {
			k.Operators = []appsv1.Deployment{deployment("onecloud", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = nil })}
		}, code: "OCA-7031", says: "Moving from the earlier operator"},
		"an operator of Helm": {cluster: func(k *host.Cluster) {
			k.Operators = []appsv1.Deployment{deployment("onecloud", func(d *appsv1.Deployment) {
				d.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
				d.Annotations = map[string]string{"meta.helm.sh/release-name": "cloud"}
			})}
		}, code: "OCA-7031", says: "upgrade cloud"},
		"the earlier definition": {cluster: func(k *host.Cluster) { k.Definition = definition("") }},
		"an equal definition":    {cluster: func(k *host.Cluster) { k.Definition = definition("1") }},
		"a later definition":     {cluster: func(k *host.Cluster) { k.Definition = definition("1000000") }, code: "OCA-7032", says: "1000000"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []string{"v4.0.4", ""} {
				k, cfg := fine(), config.Default()
				cfg.Cloud.Version = of
				if c.cluster != nil {
					c.cluster(k)
				}
				if c.config != nil {
					c.config(&cfg)
				}
				Choose(&cfg, k)
				found := all(&cfg, k)
				if c.code == "" {
					if len(found) > 0 {
						t.Errorf("found %v", found)
					}
					continue
				}
				if len(found) != 1 || found[0].Code != c.code || !strings.Contains(found[0].Error()+found[0].Remedy, c.says) || found[0].Remedy == "" {
					t.Fatalf("found %+v, want %s %q", found, c.code, c.says)
				}
				ofCloud := strings.HasPrefix(c.code, "OCA-5") || c.code == "OCA-7030" && !strings.Contains(found[0].What, "no node ")
				if want := of != "" || !ofCloud; want != (found[0].Severity == finding.Error) {
					t.Errorf("version %q: %s", of, found[0].Severity)
				}
			}
		})
	}
}

// Stored settings of an earlier run apply unless this run sets them, so that a repeated command changes nothing.
func TestChooseKeepsWhatWasStored(t *testing.T) {
	k := fine()
	k.StorageClasses = []host.Class{{Name: "ssd"}, {Name: "hdd"}}
	k.IngressClasses = nil
	first := config.Default()
	first.Cloud.Version, first.Cloud.StorageClass, first.Cloud.IngressClass = "v4.0.4", "ssd", config.None
	first.Cloud.Name, first.Cloud.Region, first.Cloud.Zone, first.Cloud.Edition, first.Cloud.ProductVersion, first.Cloud.Profile = "c", "r", "z", "ee", "CMP", "ha"
	first.Cloud.UseHyperImage, first.Cloud.DisableResourceManagement = true, true
	first.Cloud.LoadBalancerEndpoint, first.Database.Host, first.Database.User = "cloud.example.com", "10.0.0.5", "admin"
	Choose(&first, k)
	k.Settings = cloud.Options(&first)
	again := config.Default()
	again.Cloud.Version = "v4.0.4"
	Choose(&again, k)
	if a, b := cloud.Options(&first), cloud.Options(&again); a != b {
		t.Errorf("%+v\n%+v", a, b)
	}
	if !k.Settings.WebHostPorts || k.Settings.StorageClass != "ssd" || k.Settings.Database.Host != "10.0.0.5" {
		t.Errorf("%+v", k.Settings)
	}
	given := config.Default()
	given.Cloud.Version, given.Given = "v4.0.4", []string{"cloud.productVersion", "cloud.useHyperImage"}
	if Choose(&given, k); given.Cloud.ProductVersion != "FullStack" || given.Cloud.UseHyperImage || given.Cloud.Edition != "ee" {
		t.Errorf("a default that was given: %+v", given.Cloud)
	}
	for _, flags := range [][]string{nil, {"addons.storage", "addons.ingress"}} { // what the cluster has instead of the addons stays in use
		repeated := config.Default()
		repeated.Given = flags
		keep(&repeated, cluster.Options{Database: k.Settings.Database, StorageClass: "ceph", IngressClass: "nginx"})
		if none := repeated.Addons.Storage == config.None && repeated.Addons.Ingress == config.None; none != (flags == nil) {
			t.Errorf("with %v: %+v", flags, repeated.Addons)
		}
	}
	k.RegistryAuth = `{"auths":{}}`
	operatorOnly := config.Default()
	Choose(&operatorOnly, k)
	if operatorOnly.Node.RegistryAuth != k.RegistryAuth {
		t.Error("an update of the operator forgets the registry credentials")
	}
	if operatorOnly.AsksForCloud() {
		t.Error("an update of the operator asks for a cloud")
	}
	if len(again.Cloud.ControllerNodes) != 1 || again.Node.Name != "" || !again.Node.AsController {
		t.Errorf("%+v %+v", again.Cloud, again.Node)
	}
	embedded := config.Default()
	embedded.Cloud.Version = "v4.0.4"
	k.Settings = cluster.Options{Database: cluster.Database{Host: "ocadm-mysql.onecloud.svc", Secret: "ocadm-mysql"}}
	Choose(&embedded, k)
	if embedded.Cloud.StorageClass != config.DefaultStorageClass { // stored as ""
		t.Errorf("the storage class became %q", embedded.Cloud.StorageClass)
	}
	if embedded.Database.Host != "" {
		t.Errorf("the embedded database became %q", embedded.Database.Host)
	}
}

func image(t *testing.T, arch string) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch})
	require.NoError(t, err)
	return img
}

func TestOperatorImage(t *testing.T) {
	s := httptest.NewServer(registry.New())
	t.Cleanup(s.Close)
	at := strings.TrimPrefix(s.URL, "http://")
	push := func(tag string, put func(name.Reference) error) string {
		ref, err := name.ParseReference(at + "/you/ocadm:" + tag)
		require.NoError(t, err)
		require.NoError(t, put(ref))
		return ref.String()
	}
	single := push("amd64", func(r name.Reference) error { return remote.Write(r, image(t, "amd64")) })
	both := push("both", func(r name.Reference) error {
		var index v1.ImageIndex = empty.Index
		for _, arch := range []string{"amd64", "arm64"} {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image(t, arch), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		return remote.WriteIndex(r, index)
	})
	runs := func(image string) appsv1.Deployment {
		return deployment("onecloud", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image, d.Status.AvailableReplicas = image, 1
		})
	}
	for name, c := range map[string]struct {
		image, code string
		severity    finding.Severity
		nodes       []corev1.Node
		operators   []appsv1.Deployment
	}{
		"runs": {image: at + "/you/ocadm:none", nodes: []corev1.Node{existing("n1", "amd64")}, operators: []appsv1.Deployment{runs(at + "/you/ocadm:none")}},
		"another runs": {image: at + "/you/ocadm:none", nodes: []corev1.Node{existing("n1", "amd64")}, operators: []appsv1.Deployment{runs(single)},
			code: "OCA-7033", severity: finding.Error},
		"there":             {image: single, nodes: []corev1.Node{existing("n1", "amd64")}},
		"for both":          {image: both, nodes: []corev1.Node{existing("n1", "amd64"), existing("n2", "arm64")}},
		"for one of two":    {image: single, nodes: []corev1.Node{existing("n1", "amd64"), existing("n2", "arm64")}, code: "OCA-7034", severity: finding.Warning},
		"for no node":       {image: single, nodes: []corev1.Node{existing("n2", "arm64")}, code: "OCA-7034", severity: finding.Error},
		"not there":         {image: at + "/you/ocadm:none", nodes: []corev1.Node{existing("n1", "amd64")}, code: "OCA-7033", severity: finding.Error},
		"a silent registry": {image: "127.0.0.1:1/you/ocadm:v1", nodes: []corev1.Node{existing("n1", "amd64")}, code: "OCA-7033", severity: finding.Warning},
		"on the nodes": {image: "127.0.0.1:1/you/ocadm:v1", nodes: []corev1.Node{existing("n1", "amd64", func(n *corev1.Node) {
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"127.0.0.1:1/you/ocadm@sha256:0", "127.0.0.1:1/you/ocadm:v1"}}}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Cloud.OperatorImage = c.image
			h := host.ForCluster(&cfg)
			h.Cluster = &host.Cluster{Nodes: c.nodes, Operators: c.operators}
			found := checkOperatorImage(t.Context(), newMachine(h, Install, Limits{}))
			if c.code == "" && len(found) > 0 || c.code != "" && (len(found) != 1 || found[0].Code != c.code || found[0].Severity != c.severity || found[0].Remedy == "") {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// TestKeepNamespace checks that a repeated init finds a cloud in another namespace: otherwise it would install a second database, and a second cloud.
func TestKeepNamespace(t *testing.T) {
	first := config.Default()
	first.Cloud.Namespace, first.Cloud.Region = "prod", "here"
	objs, err := cluster.Settings(cloud.Options(&first), "")
	require.NoError(t, err)
	d := deployment("onecloud")
	d.Spec.Template.Spec.Containers[0].Args = []string{"operator", "run", cluster.NamespacesFlag + "onecloud,other,prod"}
	c := fake.NewClientBuilder().WithObjects(&d).Build()
	for _, o := range objs {
		require.NoError(t, c.Create(t.Context(), o))
	}
	for namespace, given := range map[string][]string{"prod": nil, "onecloud": {"cloud.namespace"}} {
		repeated := config.Default()
		repeated.Given = given
		KeepStored(t.Context(), &host.Host{Config: &repeated, Kube: func(context.Context) (client.WithWatch, error) { return c, nil }})
		if repeated.Cloud.Namespace != namespace || (repeated.Cloud.Region == "here") != (given == nil) {
			t.Errorf("%v: %+v", given, repeated.Cloud)
		}
	}
}

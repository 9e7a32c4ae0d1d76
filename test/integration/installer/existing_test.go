// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// existing is a cluster that others built, and a registry with images of the operator.
type existing struct {
	*testing.T
	api    *harness.Cluster
	c      client.WithWatch
	images string
}

// TestExistingCluster installs, reinstalls, updates and removes the operator on a cluster without ocadm.
func TestExistingCluster(t *testing.T) {
	api := harness.Require(t, harness.Options{})
	require.NoError(t, api.StartControllerManager(t.Context()))
	c, err := kube.New(api.Config(harness.Admin, "system:masters"))
	require.NoError(t, err)
	linux := map[string]string{"kubernetes.io/os": "linux"}
	kubelet, err := api.StartKubelet(t.Context(), []string{"Pod"}, harness.Node{Name: "node1", Labels: linux}, harness.Node{Name: "node2", Labels: linux})
	require.NoError(t, err)
	t.Cleanup(func() { _ = kubelet.Stop() })
	for _, name := range []string{"node1", "node2"} { // as in TestInstall
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, c.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))))
	}
	e := &existing{T: t, api: api, c: c, images: publish(t, "v1", "v2")}
	for _, step := range []struct {
		name string
		run  func(*existing)
	}{
		{"refusals change nothing", refusals},
		{"without permission", unauthorised},
		{"an old release", oldRelease},
		{"operator", operatorAlone},
		{"update", updateOfOperator},
		{"cloud", withCloud},
		{"uninstall", uninstall},
		{"uninstall with data", uninstallData},
		{"a namespace of others stays", foreignNamespace},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(&existing{T: t, api: e.api, c: e.c, images: e.images}) }) {
			break
		}
	}
}

// publish serves images of the operator on loopback and returns their repository.
func publish(t *testing.T, tags ...string) string {
	t.Helper()
	s := httptest.NewServer(registry.New())
	t.Cleanup(s.Close)
	repository := strings.TrimPrefix(s.URL, "http://") + "/you/ocadm"
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"})
	require.NoError(t, err)
	for _, tag := range tags {
		ref, err := name.ParseReference(repository + ":" + tag)
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, img))
	}
	return repository
}

// ocadm runs a command with a kubeconfig and returns its exit status, standard output and standard error.
func (e *existing) ocadm(kubeconfig string, args ...string) (int, string, string) {
	var out, story bytes.Buffer
	args = append([]string{"operator"}, append(args, "--kubeconfig", kubeconfig)...)
	status := cmd.Execute(e.Context(), cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &story}, args)
	e.Logf("ocadm %s: %d\n%s%s", strings.Join(args, " "), status, story.String(), out.String())
	return status, out.String(), story.String()
}

func (e *existing) install(args ...string) (int, string, string) {
	return e.ocadm(e.api.Kubeconfig, append([]string{"install", "--operator-image", e.images + ":v1"}, args...)...)
}

// want fails unless a status is as expected and the text has every word.
func (e *existing) want(status, got int, text string, words ...string) {
	e.Helper()
	if status != got {
		e.Errorf("status %d, want %d", got, status)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			e.Errorf("does not say %q", w)
		}
	}
}

func (e *existing) create(objs ...client.Object) {
	e.Helper()
	for _, o := range objs {
		require.NoError(e, e.c.Create(e.Context(), o))
	}
}

func (e *existing) get(namespace, name string, o client.Object) {
	e.Helper()
	require.NoError(e, e.c.Get(e.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
}

// seen returns the cluster's objects of an installation, by name, and all nodes, each with a value that only a real change alters. It omits what
// controllers create in every namespace.
func (e *existing) seen() map[string]string {
	e.Helper()
	out := map[string]string{}
	for version, kinds := range map[string][]string{
		"v1":                           {"Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "PersistentVolumeClaim", "Node"},
		"apps/v1":                      {"Deployment", "StatefulSet", "DaemonSet"},
		"rbac.authorization.k8s.io/v1": {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
		"scheduling.k8s.io/v1":         {"PriorityClass"},
		"apiextensions.k8s.io/v1":      {"CustomResourceDefinition"},
		"onecloud.yunion.io/v1alpha1":  {"OnecloudCluster"},
	} {
		for _, kind := range kinds {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind+"List"))
			if err := e.c.List(e.Context(), list); err != nil {
				if kind == "OnecloudCluster" {
					continue // not defined yet
				}
				e.Fatal(err)
			}
			for _, o := range list.Items {
				name, state := kind+" "+o.Namespace+"/"+o.Name, o.ResourceVersion
				switch {
				case kind == "Node":
					out[name] = ours(o.Labels) + ours(o.Annotations)
				case !strings.Contains(name, "onecloud") && !strings.Contains(name, "ocadm"), o.Name == "kube-root-ca.crt", kind == "ServiceAccount" && o.Name == "default":
				case version == "apps/v1", kind == "PersistentVolumeClaim", kind == "Namespace": // their status keeps changing
					out[name] = fmt.Sprint(o.Generation, o.Labels, ours(o.Annotations))
				default:
					out[name] = state
				}
			}
		}
	}
	return out
}

// ours returns the labels or annotations whose keys belong to OneCloud or ocadm.
func ours(of map[string]string) string {
	var out []string
	for key, value := range of {
		if strings.Contains(key, "onecloud") || strings.Contains(key, "ocadm") {
			out = append(out, key+"="+value)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func (e *existing) unchanged(before map[string]string) {
	e.Helper()
	if d := cmp.Diff(before, e.seen()); d != "" {
		e.Errorf("it changed:\n%s", d)
	}
}

func refusals(e *existing) {
	before := e.seen()
	status, _, story := e.install("--onecloud-version", "v4.0.4")
	e.want(2, status, story, "OCA-5010", "no storage class", "OCA-5011", "--ingress-class none", "OCA-7030", "--controller-nodes node1,node2")
	e.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd"}, Provisioner: "example.com/ssd"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hdd"}, Provisioner: "example.com/hdd"},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/nginx"}})
	status, _, story = e.install("--onecloud-version", "v4.0.4", "--controller-nodes", "node1")
	e.want(50, status, story, "OCA-5010", "--storage-class hdd")
	status, _, story = e.ocadm(e.api.Kubeconfig, "install", "--operator-image", e.images+":none")
	e.want(70, status, story, "OCA-7033", "--operator-image")
	e.unchanged(before)
}

func unauthorised(e *existing) {
	file := filepath.Join(e.TempDir(), "kubeconfig")
	before := e.seen()
	require.NoError(e, e.api.WriteKubeconfig(file, "nobody"))
	status, _, story := e.ocadm(file, "install", "--operator-image", e.images+":v1")
	e.want(42, status, story, "OCA-4205")
	e.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "reader"}}},
	)
	require.NoError(e, e.api.WriteKubeconfig(file, "reader", "system:authenticated"))
	status, _, story = e.ocadm(file, "install", "--operator-image", e.images+":v1")
	e.want(42, status, story, "OCA-4211", "create deployments.apps in namespace onecloud", "escalate clusterroles.rbac.authorization.k8s.io")
	e.unchanged(before)
}

// oldRelease puts a proxy that reports another version in front of the real API server.
func oldRelease(e *existing) {
	to, err := url.Parse(e.api.URL)
	require.NoError(e, err)
	transport, err := rest.TransportFor(e.api.Config(harness.Admin))
	require.NoError(e, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"major":"1","minor":"29","gitVersion":"v1.29.14"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	e.Cleanup(s.Close)
	file := filepath.Join(e.TempDir(), "kubeconfig")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"old": {Server: s.URL}},
		Contexts: map[string]*clientcmdapi.Context{"old": {Cluster: "old"}}, CurrentContext: "old",
	}
	require.NoError(e, clientcmd.WriteToFile(config, file))
	before := e.seen()
	status, _, story := e.ocadm(file, "install", "--operator-image", e.images+":v1")
	e.want(42, status, story, "OCA-4210", "v1.29.14")
	e.unchanged(before)
}

func operatorAlone(e *existing) {
	before := e.seen()
	status, out, _ := e.install("--dry-run")
	e.want(0, status, out, "create Deployment onecloud/onecloud-operator", "no cloud was requested")
	e.unchanged(before)
	status, _, story := e.install()
	e.want(0, status, story, "created Namespace onecloud", "created Deployment onecloud/onecloud-operator", "OCA-5010", "ocadm operator install --onecloud-version")
	d := &appsv1.Deployment{}
	e.get("onecloud", "onecloud-operator", d)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != e.images+":v1" || d.Status.AvailableReplicas != 1 {
		e.Errorf("%s, %d available", image, d.Status.AvailableReplicas)
	}
	after := e.seen()
	status, _, story = e.install()
	e.want(0, status, story, "already done")
	if strings.Contains(story, "Changed:") {
		e.Error("a second run reports changes")
	}
	e.unchanged(after)
}

// updateOfOperator checks that another image changes only the Deployment.
func updateOfOperator(e *existing) {
	before := e.seen()
	status, _, story := e.ocadm(e.api.Kubeconfig, "install", "--operator-image", e.images+":v2")
	e.want(0, status, story, "configured Deployment onecloud/onecloud-operator")
	d := &appsv1.Deployment{}
	e.get("onecloud", "onecloud-operator", d)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != e.images+":v2" {
		e.Error(image)
	}
	after := e.seen()
	delete(before, "Deployment onecloud/onecloud-operator")
	delete(after, "Deployment onecloud/onecloud-operator")
	if d := cmp.Diff(before, after); d != "" {
		e.Errorf("more changed than the Deployment:\n%s", d)
	}
}

func withCloud(e *existing) {
	args := []string{"--onecloud-version", "v4.0.4", "--wait=false", "--storage-class", "ssd", "--controller-nodes", "node2"}
	before := e.seen()
	status, out, _ := e.install(append(args, "--dry-run")...)
	e.want(0, status, out, "create StatefulSet onecloud/ocadm-mysql", "configure Node node2", "create OnecloudCluster onecloud/default version v4.0.4")
	e.unchanged(before)
	status, _, _ = e.install(args...)
	e.want(0, status, "")
	cr := &v1alpha1.OnecloudCluster{}
	e.get("onecloud", "default", cr)
	if cr.Spec.StorageClassName != "ssd" || cr.Spec.IngressClassName != "nginx" || cr.Spec.Web.HostPorts || cr.Spec.LoadBalancerEndpoint != "" ||
		cr.Spec.MySQL.Host != "ocadm-mysql.onecloud.svc" {
		e.Errorf("%+v", cr.Spec)
	}
	s := &appsv1.StatefulSet{}
	e.get("onecloud", "ocadm-mysql", s)
	if class := s.Spec.VolumeClaimTemplates[0].Spec.StorageClassName; class == nil || *class != "ssd" {
		e.Errorf("the database's volume has the class %v", class)
	}
	for name, want := range map[string]string{"node1": "", "node2": "enable"} {
		n := &corev1.Node{}
		if e.get("", name, n); n.Labels["onecloud.yunion.io/controller"] != want {
			e.Errorf("%s: %v", name, n.Labels)
		}
	}
	after := e.seen()
	status, _, story := e.install(args...)
	if e.want(0, status, story); strings.Contains(story, "Changed:") {
		e.Error("a second run reports changes")
	}
	// Stored settings need not be given again.
	status, _, _ = e.install("--onecloud-version", "v4.0.4", "--wait=false")
	e.want(0, status, "")
	status, _, story = e.install("--onecloud-version", "v4.0.4", "--storage-class", "hdd")
	e.want(70, status, story, "OCA-7012", "--storage-class was ssd and is now hdd")
	// The dry run reports what the run would refuse.
	for _, more := range [][]string{{}, {"--dry-run"}} {
		if status, _, story = e.install(append(more, "--onecloud-version", "v4.0.5", "--wait=false")...); strings.Contains(story, "create OnecloudCluster") {
			e.Errorf("%v: a second cloud would be created: %s", more, story)
		}
		e.want(70, status, story, "OCA-7003")
	}
	e.unchanged(after)
	// The class of a cloud cannot change: every volume would start empty.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"storageClassName":"hdd"}}`))
	if err := e.c.Patch(e.Context(), cr, patch); err == nil || !strings.Contains(err.Error(), "storageClassName cannot change") {
		e.Errorf("the class was changed: %v", err)
	}
}

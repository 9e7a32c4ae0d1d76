// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestGolden(t *testing.T) {
	objs, err := Objects("10.0.0.1:5000/mirror/ocadm:v1", "other")
	require.NoError(t, err)
	var got bytes.Buffer
	for _, o := range objs {
		if o.GetKind() == "CustomResourceDefinition" {
			continue // an unchanged file
		}
		doc, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		got.WriteString("---\n")
		got.Write(doc)
	}
	require.Golden(t, "testdata/operator.yaml", got.String())
}

// The Go types know every object, the definition is among them, and no object gives the operator all permissions.
func TestObjects(t *testing.T) {
	s := kube.Scheme()
	strict := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	objs, err := Objects("r/ocadm:v1")
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range objs {
		kinds[o.GetKind()]++
		raw, err := o.MarshalJSON()
		require.NoError(t, err)
		if _, _, err := strict.Decode(raw, nil, nil); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if b, ok := kube.As[rbacv1.ClusterRoleBinding](o); ok && o.GetKind() == "ClusterRoleBinding" && b.RoleRef.Name == "cluster-admin" {
			// Services that manage their own cluster have a separate account.
			if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name != "onecloud-cluster-admin" || s.Namespace != "onecloud" }) {
				t.Error("the operator is bound to cluster-admin")
			}
		}
		if r, ok := kube.As[rbacv1.ClusterRole](o); ok && o.GetKind() == "ClusterRole" {
			for _, rule := range r.Rules {
				if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
					t.Errorf("%s has a rule without bounds: %v", r.Name, rule)
				}
			}
		}
		if d, ok := kube.As[appsv1.Deployment](o); ok && o.GetKind() == "Deployment" {
			first := d.Spec.Template.Spec.Containers[0]
			if first.Image != "r/ocadm:v1" || first.Name != Name || !slices.Contains(first.Args, "--leader-elect") {
				t.Errorf("container 0: %s %s %q", first.Name, first.Image, first.Args)
			}
		}
	}
	for k, want := range map[string]int{"CustomResourceDefinition": 3, "Namespace": 1, "ServiceAccount": 10, "Deployment": 1, "PriorityClass": 1} {
		if kinds[k] != want {
			t.Errorf("%d objects of kind %s, want %d", kinds[k], k, want)
		}
	}
}

func TestImage(t *testing.T) {
	c := &config.Config{}
	c.Cloud.OperatorVersion = "v7"
	if got := c.OperatorImage(); got != "registry.cn-beijing.aliyuncs.com/yunionio/ocadm:v7" {
		t.Error(got)
	}
	c.Cluster.ImageRepository = "10.0.0.1:5000/m/"
	if got := c.OperatorImage(); got != "10.0.0.1:5000/m/ocadm:v7" {
		t.Error(got)
	}
	c.Cloud.OperatorImage = "zexi/ocadm:dev"
	if got := c.OperatorImage(); got != "zexi/ocadm:dev" {
		t.Error(got)
	}
}

// Region has the permissions on Kubernetes that it needs, and no more.
func TestRightsOfRegion(t *testing.T) {
	objs, err := Objects("r/ocadm:v1", "other")
	require.NoError(t, err)
	got := map[string][]rbacv1.PolicyRule{}
	bound := map[string]string{}
	for _, o := range objs {
		where := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if r, ok := kube.As[rbacv1.ClusterRole](o); ok && (o.GetKind() == "ClusterRole" || o.GetKind() == "Role") {
			got[where] = r.Rules
		}
		b, ok := kube.As[rbacv1.RoleBinding](o)
		if !ok || (o.GetKind() != "ClusterRoleBinding" && o.GetKind() != "RoleBinding") {
			continue
		}
		for _, s := range b.Subjects {
			if s.Name == "onecloud-region" {
				bound[where] = b.RoleRef.Kind + " " + b.RoleRef.Name + " to " + s.Namespace
			}
		}
	}
	want := map[string][]rbacv1.PolicyRule{
		"ClusterRole /onecloud-region": {{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "delete"}}},
		"Role kube-system/onecloud-region": {
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"kubeadm-config"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		},
	}
	for where, rules := range want {
		if d := cmp.Diff(rules, got[where]); d != "" {
			t.Errorf("%s:\n%s", where, d)
		}
	}
	wantBound := map[string]string{
		"ClusterRoleBinding /onecloud-region-onecloud":     "ClusterRole onecloud-region to onecloud",
		"ClusterRoleBinding /onecloud-region-other":        "ClusterRole onecloud-region to other",
		"RoleBinding kube-system/onecloud-region-onecloud": "Role onecloud-region to onecloud",
		"RoleBinding kube-system/onecloud-region-other":    "Role onecloud-region to other",
	}
	if d := cmp.Diff(wantBound, bound); d != "" {
		t.Error(d)
	}
}

// Manifests that are applied again, and an upgrade of the chart, keep a second copy of the operator.
func TestManifestsLeaveCopies(t *testing.T) {
	objs, err := Objects("registry.example.org/ocadm:v2")
	require.NoError(t, err)
	for _, o := range objs {
		if _, set, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); set {
			t.Errorf("%s %s has a number of copies", o.GetKind(), o.GetName())
		}
	}
}

// An update keeps the namespaces and the registry credentials of the installed operator.
func TestObjectsFor(t *testing.T) {
	live := deployment()
	live.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: cluster.PullSecret}}
	live.Spec.Template.Spec.Containers = []corev1.Container{{Name: Name, Args: []string{cluster.NamespacesFlag + Namespace + ",other"}}}
	live.Spec.Replicas = ptr.To[int32](2)
	objs, err := ObjectsFor(t.Context(), fake.NewClientBuilder().WithObjects(live).Build(), "registry.example.org/ocadm:v2", "third")
	require.NoError(t, err)
	i := slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	var d appsv1.Deployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objs[i].Object, &d))
	if got := d.Spec.Template.Spec.ImagePullSecrets; !slices.Equal(got, live.Spec.Template.Spec.ImagePullSecrets) {
		t.Errorf("credentials %v", got)
	}
	if *d.Spec.Replicas != 2 {
		t.Errorf("%d copies", *d.Spec.Replicas)
	}
	if got := cluster.WatchedBy(&d); !slices.Equal(got, []string{Namespace, "other", "third"}) {
		t.Errorf("namespaces %v", got)
	}
}

// A repeated init keeps an operator of this release in the registry to which an update has moved it, and does not replace one of another release.
func TestPresent(t *testing.T) {
	own := version.Version
	for name, c := range map[string]struct {
		is, phase, given, want, remedy string
		install                        bool
	}{
		"none yet":                        {want: "old.example.org/x/ocadm:" + own},
		"moved":                           {is: "new.example.org/y/ocadm:" + own, want: "new.example.org/y/ocadm:" + own},
		"moved, by its phase":             {is: "new.example.org/y/ocadm:" + own, phase: "operator", want: "new.example.org/y/ocadm:" + own},
		"moved back":                      {is: "new.example.org/y/ocadm:" + own, given: "cluster.imageRepository", want: "old.example.org/x/ocadm:" + own},
		"a later one":                     {is: "new.example.org/y/ocadm:v9.0.0"},
		"a later one, by its phase":       {is: "new.example.org/y/ocadm:v9.0.0", phase: "operator", remedy: "with ocadm v9.0.0"},
		"another one, by its phase":       {is: "zexi/ocadm:dev", phase: "operator", remedy: "ocadm cluster update --operator-version " + own},
		"another one, in another cluster": {is: "zexi/ocadm:dev", install: true, want: "old.example.org/x/ocadm:" + own},
	} {
		b := fake.NewClientBuilder().WithScheme(kube.Scheme())
		if c.is != "" {
			d := deployment()
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: Name, Image: c.is}}
			b = b.WithObjects(d)
		}
		cfg := config.Default()
		cfg.Cluster.ImageRepository, cfg.Run.Phase, cfg.Given = "old.example.org/x", c.phase, []string{c.given}
		got, err := present(t.Context(), &host.Host{Config: &cfg}, b.Build(), cfg.OperatorImage(), !c.install)
		if f := finding.Of(err); got != c.want || (c.remedy != "") != (len(f) == 1) || len(f) == 1 && !strings.Contains(f[0].Remedy, c.remedy) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// An operator that cannot start is reported early, with the command that provides its image if a node cannot pull it. The user may be installing the pod network.
func TestOperatorCannotStart(t *testing.T) {
	unschedulable := corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no room"}}}
	noImage := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: "no room"}}}}}
	for _, c := range []struct {
		status    corev1.PodStatus
		cni, code string
		cluster   *host.Cluster
		takes     time.Duration
	}{
		{unschedulable, "flannel", "OCA-7001", nil, kube.StartLimit},
		{unschedulable, "none", "OCA-7001", nil, rolloutPatience},
		{unschedulable, "none", "OCA-7001", &host.Cluster{}, kube.StartLimit},
		{noImage, "flannel", "OCA-4175", nil, kube.StartLimit},
		{noImage, "none", "OCA-4175", nil, rolloutPatience},
		{noImage, "none", "OCA-4175", &host.Cluster{}, kube.StartLimit},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*rolloutPatience)
			defer cancel()
			began, d := time.Now(), deployment()
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": Name}}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p", Labels: d.Spec.Selector.MatchLabels}, Status: c.status}
			p.Spec.Containers = []corev1.Container{{Name: Name, Image: "r/ocadm:v1"}}
			cfg := config.Default()
			cfg.Addons.CNI = c.cni
			err := waitReady(ctx, &host.Host{Config: &cfg, Cluster: c.cluster}, fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(d, p).
				WithIndex(d, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build(), func(string) {})
			f := finding.Of(err)
			if time.Since(began) != c.takes || len(f) != 1 || f[0].Code != c.code || !strings.Contains(f[0].Cause, "no room") || f[0].Remedy == "" {
				t.Errorf("%+v: %+v, %v", c, f, err)
			}
		})
	}
}

// Helm's next upgrade would take a namespace from the operator again, and undo another image.
func TestOperatorOfHelm(t *testing.T) {
	d := deployment()
	d.Labels, d.Annotations = map[string]string{"app.kubernetes.io/managed-by": "Helm"}, map[string]string{"meta.helm.sh/release-name": "mine"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: Name, Image: "r/ocadm:v1", Args: []string{cluster.NamespacesFlag + Namespace + ",b,c"}}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(d).Build()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	update := func(image string) error {
		_, err := cluster.Update{OperatorImage: image, OperatorOnly: true, Report: func(string, string) {}}.Apply(ctx, c)
		return err
	}
	_, serve := Serve(t.Context(), c, "d")
	_, leave := Leave(t.Context(), c, "b")
	for want, err := range map[string]error{"namespaces={b,c,d}'": serve, "namespaces={c}'": leave, "image=r/ocadm:v2'": update("r/ocadm:v2")} {
		if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7031" || !strings.Contains(f[0].Remedy, "upgrade mine ") || !strings.HasSuffix(f[0].Remedy, want) {
			t.Errorf("%s: %+v", want, f)
		}
	}
	if set, err := Serve(t.Context(), c, "b"); err != nil || len(set) > 0 {
		t.Errorf("a namespace that it has: %v, %v", set, err)
	}
	var namespaces corev1.NamespaceList
	if err := c.List(t.Context(), &namespaces); err != nil || len(namespaces.Items) > 0 {
		t.Errorf("created %v, %v", namespaces.Items, err)
	}
}

// The messages of a removal name each object where it was: some are in no namespace, or in kube-system.
func TestLeaveNamesObjects(t *testing.T) {
	d := deployment()
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: Name}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(d).Build()
	if _, err := Serve(t.Context(), c, "b"); err != nil {
		t.Fatal(err)
	}
	set, err := Leave(t.Context(), c, "b")
	var got []string
	for _, change := range set {
		got = append(got, change.String())
	}
	for _, want := range []string{"deleted ClusterRoleBinding onecloud-node-reader-b", "deleted RoleBinding kube-system/onecloud-region-b", "deleted Role b/onecloud-operator"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q, %v", want, got, err)
		}
	}
}

// A missing namespace does not hide the others.
func TestNamespacesToRemove(t *testing.T) {
	ours := &corev1.Namespace{}
	ours.Name, ours.Annotations = "ours", map[string]string{cluster.AnnotationInstalled: "v1"}
	var r Removal
	require.NoError(t, r.namespaces(t.Context(), fake.NewClientBuilder().WithObjects(ours).Build(), []string{"gone", "ours"}, true))
	if len(r.Delete) != 1 || r.Delete[0].GetName() != "ours" {
		t.Errorf("to delete: %v", r.Delete)
	}
}

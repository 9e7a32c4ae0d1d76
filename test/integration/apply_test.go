// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// appliers is a real API server with an Applier whose cache is always up to date.
type appliers struct {
	*engine.Applier
	t *testing.T
	c client.WithWatch
}

// TestApply tests changes that the API server does not allow, and changes by other clients.
func TestApply(t *testing.T) {
	cluster := harness.Require(t, harness.Options{})
	c, err := client.NewWithWatch(cluster.Config(harness.Admin), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, part := range []struct {
		name string
		do   func(*appliers)
	}{
		{"selector", (*appliers).selector},
		{"strategy", (*appliers).strategy},
		{"claim templates", (*appliers).templates},
		{"claim", (*appliers).claim},
		{"service", (*appliers).service},
		{"sealed", (*appliers).sealed},
		{"autoscaler", (*appliers).autoscaler},
		{"removed fields and shortened lists", (*appliers).removed},
		{"terminating", (*appliers).terminating},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.do(&appliers{Applier: engine.NewApplier(c, c), t: t, c: c})
		})
	}
}

// one applies an object, expects success, and expects no change the second time.
func (a *appliers) one(o client.Object) engine.Change {
	a.t.Helper()
	o = render.Kind(o)
	changes, err := a.Apply(a.t.Context(), []client.Object{o.DeepCopyObject().(client.Object)})
	require.NoError(a.t, err)
	again, err := a.Apply(a.t.Context(), []client.Object{o})
	if err != nil || again[0].Action != engine.Unchanged || !slices.Equal(again[0].Kept, changes[0].Kept) {
		a.t.Errorf("the second time: %+v %v", again[0], err)
	}
	return changes[0]
}

// refused applies an object that cannot be applied, and expects instructions in the error.
func (a *appliers) refused(o client.Object, reason string, want ...string) {
	a.t.Helper()
	_, err := a.Apply(a.t.Context(), []client.Object{render.Kind(o)})
	var r *engine.Refusal
	if !errors.As(err, &r) || r.Reason != reason {
		a.t.Fatalf("%v", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			a.t.Errorf("%q lacks %q", err, w)
		}
	}
}

func (a *appliers) kept(c engine.Change, want ...string) {
	a.t.Helper()
	var all []string
	for _, k := range c.Kept {
		all = append(all, k.Message)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(all, "; "), w) {
			a.t.Errorf("kept %q, without %q", all, w)
		}
	}
	if len(want) == 0 && len(all) > 0 {
		a.t.Errorf("kept %q", all)
	}
}

func (a *appliers) get(o client.Object, name string) {
	a.t.Helper()
	require.NoError(a.t, a.c.Get(a.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func podOf(labels map[string]string, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: image}},
	}}
}

func deployment(name, image string, labels map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: named(name), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podOf(labels, image),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
	}}
}

func (a *appliers) selector() {
	ours := map[string]string{"app": "x", "instance": "default"}
	// As another client left it: with one label missing and one more.
	theirs := deployment("other", "i:1", map[string]string{"app": "x", "extra": "1"})
	require.NoError(a.t, a.c.Create(a.t.Context(), theirs))
	a.one(deployment("other", "i:2", ours))
	d := &appsv1.Deployment{}
	a.get(d, "other")
	if !maps.Equal(d.Spec.Selector.MatchLabels, map[string]string{"app": "x", "extra": "1"}) || d.Spec.Template.Labels["instance"] != "default" ||
		d.Spec.Template.Spec.Containers[0].Image != "i:2" {
		a.t.Errorf("%v %v", d.Spec.Selector, d.Spec.Template.Labels)
	}
	for _, o := range []client.Object{
		deployment("foreign", "i:1", map[string]string{"app": "x", "instance": "random"}),
		&appsv1.DaemonSet{ObjectMeta: named("foreign"), Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}, Template: podOf(map[string]string{"app": "y"}, "i"),
		}},
		&appsv1.StatefulSet{ObjectMeta: named("foreign"), Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}, Template: podOf(map[string]string{"app": "y"}, "i"),
		}},
	} {
		require.NoError(a.t, a.c.Create(a.t.Context(), o.DeepCopyObject().(client.Object)))
		kind := render.Kind(o).GetObjectKind().GroupVersionKind().Kind
		switch t := o.(type) {
		case *appsv1.Deployment:
			t.Spec.Selector.MatchLabels, t.Spec.Template.Labels = ours, ours
		case *appsv1.DaemonSet:
			t.Spec.Selector.MatchLabels, t.Spec.Template.Labels = ours, ours
		case *appsv1.StatefulSet:
			t.Spec.Selector.MatchLabels, t.Spec.Template.Labels = ours, ours
		}
		o.SetResourceVersion("")
		a.refused(o, engine.ReasonImmutable, "it selects pods by", "kubectl -n onecloud delete "+strings.ToLower(kind)+" foreign")
		// The command works as described.
		require.NoError(a.t, a.c.Delete(a.t.Context(), o.DeepCopyObject().(client.Object)))
		a.Forget(engine.KeyOf(o), "")
		a.one(o)
	}
}

func (a *appliers) strategy() {
	labels := map[string]string{"app": "s"}
	a.one(deployment("moving", "i:1", labels))
	recreate := deployment("moving", "i:1", labels)
	recreate.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	a.one(recreate)
	a.one(deployment("moving", "i:1", labels))
	d := &appsv1.Deployment{}
	a.get(d, "moving")
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		a.t.Errorf("%+v", d.Spec.Strategy)
	}
}

func statefulSet(size, image string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "etcd"}
	return &appsv1.StatefulSet{ObjectMeta: named("etcd"), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podOf(labels, image), ServiceName: "etcd",
		PodManagementPolicy:  appsv1.ParallelPodManagement,
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claim("", "", size).Spec}},
	}}
}

func claim(name, class, size string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: named(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}}
	if class != "" {
		pvc.Spec.StorageClassName = &class
	}
	return pvc
}

func (a *appliers) templates() {
	a.kept(a.one(statefulSet("1Gi", "etcd:1")))
	a.kept(a.one(statefulSet("2Gi", "etcd:2")), "StatefulSet etcd keeps its current claims", "kubectl -n onecloud delete statefulset etcd --cascade=orphan")
	labelled := statefulSet("1Gi", "etcd:3")
	labelled.Spec.VolumeClaimTemplates[0].Labels = map[string]string{"app": "etcd"}
	labelled.Spec.ServiceName, labelled.Spec.PodManagementPolicy = "other", appsv1.OrderedReadyPodManagement
	a.kept(a.one(labelled)) // no user has chosen these
	s := &appsv1.StatefulSet{}
	a.get(s, "etcd")
	if s.Spec.Template.Spec.Containers[0].Image != "etcd:3" || s.Spec.ServiceName != "etcd" {
		a.t.Errorf("%+v", s.Spec)
	}
}

func (a *appliers) claim() {
	for _, class := range []*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "rigid"}, Provisioner: "example.com/p"},
		{ObjectMeta: metav1.ObjectMeta{Name: "elastic"}, Provisioner: "example.com/p", AllowVolumeExpansion: new(true)},
	} {
		require.NoError(a.t, a.c.Create(a.t.Context(), class))
		a.kept(a.one(claim(class.Name, class.Name, "10G")))
		bound := &corev1.PersistentVolumeClaim{}
		a.get(bound, class.Name)
		bound.Status.Phase = corev1.ClaimBound
		bound.Status.Capacity = bound.Spec.Resources.Requests
		require.NoError(a.t, a.c.Status().Update(a.t.Context(), bound))
	}
	a.kept(a.one(claim("elastic", "elastic", "20G")))
	a.kept(a.one(claim("elastic", "elastic", "15G")), "PersistentVolumeClaim elastic keeps its size 20G (15G is requested): a volume cannot shrink")
	a.kept(a.one(claim("rigid", "rigid", "20G")), "PersistentVolumeClaim rigid keeps its size 10G (20G is requested)", "allowVolumeExpansion")
	a.kept(a.one(claim("rigid", "elastic", "10G")), "keeps storageClassName rigid (elastic is requested)")
	many := claim("rigid", "rigid", "10G")
	many.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	a.kept(a.one(many), "keeps accessModes [ReadWriteOnce]")
	for name, want := range map[string]string{"elastic": "20G", "rigid": "10G"} {
		pvc := &corev1.PersistentVolumeClaim{}
		a.get(pvc, name)
		if got := pvc.Spec.Resources.Requests.Storage().String(); got != want {
			a.t.Errorf("%s has %s", name, got)
		}
	}
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(name), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, Selector: map[string]string{"app": "x"},
		Ports: []corev1.ServicePort{{Name: "api", Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP}},
	}}
}

func (a *appliers) service() {
	a.one(service("headless", "None"))
	a.refused(service("headless", ""), engine.ReasonImmutable, "it is headless", "kubectl -n onecloud delete service headless")
	a.one(service("usual", ""))
	a.refused(service("usual", "None"), engine.ReasonImmutable, "but must be headless", "kubectl -n onecloud delete service usual")
	nodes := service("usual", "")
	nodes.Spec.Type = corev1.ServiceTypeNodePort
	nodes.Spec.Ports[0].NodePort = 30123
	a.one(nodes)
	a.one(service("usual", "")) // internalOnly, set later
}

func (a *appliers) sealed() {
	cm := &corev1.ConfigMap{ObjectMeta: named("sealed"), Data: map[string]string{"a": "1"}}
	a.one(cm.DeepCopy())
	require.NoError(a.t, a.c.Patch(a.t.Context(), cm.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"immutable":true}`))))
	a.one(cm.DeepCopy())
	cm.Data["a"] = "2"
	a.refused(cm, engine.ReasonImmutable, "it is immutable", "kubectl -n onecloud get configmap sealed -o yaml | sed '/^immutable:/d' | kubectl replace --force -f -,")
	s := &corev1.Secret{ObjectMeta: named("typed"), Type: "example.com/other", Data: map[string][]byte{"a": []byte("1")}}
	require.NoError(a.t, a.c.Create(a.t.Context(), s.DeepCopy()))
	s.Type = corev1.SecretTypeOpaque
	a.refused(s, engine.ReasonImmutable, "kubectl -n onecloud delete secret typed")
}

// autoscaler checks that the number of pods belongs to whoever sets it through the scale subresource, as a HorizontalPodAutoscaler does.
func (a *appliers) autoscaler() {
	labels := map[string]string{"app": "h"}
	a.one(deployment("scaled", "i:1", labels))
	scale := func(n int32, manager string) {
		a.t.Helper()
		s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: n}}
		require.NoError(a.t, a.c.SubResource("scale").Update(a.t.Context(), deployment("scaled", "", labels), client.WithSubResourceBody(s), client.FieldOwner(manager)))
	}
	replicas := func() int32 {
		d := &appsv1.Deployment{}
		a.get(d, "scaled")
		return *d.Spec.Replicas
	}
	scale(4, "kubectl")
	a.one(deployment("scaled", "i:1", labels))
	if got := replicas(); got != 1 {
		a.t.Errorf("after kubectl scale there are %d", got)
	}
	scale(5, "kube-controller-manager")
	a.kept(a.one(deployment("scaled", "i:2", labels)), "set by kube-controller-manager")
	scale(3, "kube-controller-manager")
	a.kept(a.one(deployment("scaled", "i:3", labels)), "set by kube-controller-manager")
	if got := replicas(); got != 3 {
		a.t.Errorf("the autoscaler wants 3, there are %d", got)
	}
	scale(2, "kubectl") // back again
	a.one(deployment("scaled", "i:3", labels))
	if got := replicas(); got != 1 {
		a.t.Errorf("after the autoscaler there are %d", got)
	}
}

// removed checks that what is no longer rendered is removed, and what others added stays.
func (a *appliers) removed() {
	labels := map[string]string{"app": "r"}
	d := deployment("shrinking", "i:1", labels)
	d.Labels = map[string]string{"mine": "1", "both": "1"}
	d.Spec.Template.Annotations = map[string]string{"a": "1", "b": "2"}
	d.Spec.Template.Spec.Containers[0].Args = []string{"--a", "--b", "--c"}
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "second", Image: "s"})
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}, {Key: "y", Operator: corev1.TolerationOpExists}}
	a.one(d.DeepCopy())
	added := `{"metadata":{"labels":{"theirs":"1"}},"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"THEIRS","value":"1"}]}]}}}}`
	require.NoError(a.t, a.c.Patch(a.t.Context(), d.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(added)), client.FieldOwner("injector")))
	delete(d.Labels, "mine")
	delete(d.Spec.Template.Annotations, "b")
	main := &d.Spec.Template.Spec.Containers[0]
	main.Args, main.Env = []string{"--a"}, main.Env[:1]
	d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
	d.Spec.Template.Spec.Tolerations = d.Spec.Template.Spec.Tolerations[:1]
	a.one(d)
	live := &appsv1.Deployment{}
	a.get(live, "shrinking")
	pod := live.Spec.Template.Spec
	var env []string
	for _, e := range pod.Containers[0].Env {
		env = append(env, e.Name)
	}
	slices.Sort(env)
	if len(pod.Containers) != 1 || len(pod.Tolerations) != 1 || !slices.Equal(pod.Containers[0].Args, []string{"--a"}) || !slices.Equal(env, []string{"A", "THEIRS"}) ||
		live.Labels["mine"] != "" || live.Labels["theirs"] != "1" || live.Spec.Template.Annotations["b"] != "" {
		a.t.Errorf("labels %v, annotations %v, %+v", live.Labels, live.Spec.Template.Annotations, pod)
	}
}

func (a *appliers) terminating() {
	d := deployment("held", "i:1", map[string]string{"app": "t"})
	a.one(d.DeepCopy())
	require.NoError(a.t, a.c.Patch(a.t.Context(), d.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`))))
	require.NoError(a.t, a.c.Delete(a.t.Context(), d.DeepCopy()))
	d.Spec.Template.Spec.Containers[0].Image = "i:2"
	a.refused(d, engine.ReasonTerminating, "it is being deleted, blocked by the finalizers example.com/hold")
}

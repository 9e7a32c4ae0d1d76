// SPDX-License-Identifier: Apache-2.0

// Package render turns a resolved component into Kubernetes objects. It is pure and deterministic: the same inputs give the same bytes.
// Owner references are the engine's business.
package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// Component renders all objects of one component, whether it is enabled or not: what to apply is the caller's decision.
func Component(r component.Resolved, in component.Inputs) (component.Objects, error) {
	in.Self = r
	if r.Problem != "" {
		return component.Objects{}, errors.New(r.Problem)
	}
	conf, err := configuration(r.Component, in)
	if err != nil {
		return component.Objects{}, fmt.Errorf("configuring %s: %w", r.Name, err)
	}
	o := component.Objects{Services: serviceObjects(in), Ingresses: ingresses(in), Disruptions: disruptions(in)}
	if o.PVCs, err = claims(in); err != nil {
		return component.Objects{}, fmt.Errorf("spec.%s.requests.storage: %w", r.SpecKey, err)
	}
	if conf.public != nil {
		o.ConfigMaps = append(o.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta(in, ""), Data: conf.public})
	}
	if conf.secret != nil {
		o.Secrets = append(o.Secrets, &corev1.Secret{ObjectMeta: meta(in, ConfigSuffix), Type: corev1.SecretTypeOpaque, Data: conf.secret})
	}
	if o.Workload, err = workload(in, conf); err != nil {
		return component.Objects{}, fmt.Errorf("rendering %s: %w", r.Name, err)
	}
	if r.Adapt != nil {
		if err := r.Adapt(&o, in); err != nil {
			return component.Objects{}, fmt.Errorf("adapting %s: %w", r.Name, err)
		}
	}
	if err := readReplicas(&o, in); err != nil {
		return component.Objects{}, err
	}
	return o, zoneCopies(&o, in)
}

// List puts the objects in the order in which they are applied, each with its kind set.
func List(o component.Objects) []client.Object {
	var workloads []client.Object
	if o.Workload != nil {
		workloads = append(workloads, o.Workload)
	}
	out := slices.Concat(o.ConfigMaps, o.Secrets, o.PVCs, o.Services, o.Disruptions, workloads, o.Copies, o.Ingresses)
	for _, obj := range out {
		Kind(obj)
	}
	return out
}

// kinds are all kinds that may be rendered, in the order of their application. A type of the API has the name of its kind.
var kinds = []struct {
	version schema.GroupVersion
	object  client.Object
}{
	{corev1.SchemeGroupVersion, &corev1.ConfigMap{}},
	{corev1.SchemeGroupVersion, &corev1.Secret{}},
	{corev1.SchemeGroupVersion, &corev1.PersistentVolumeClaim{}},
	{corev1.SchemeGroupVersion, &corev1.Service{}},
	{policyv1.SchemeGroupVersion, &policyv1.PodDisruptionBudget{}},
	{appsv1.SchemeGroupVersion, &appsv1.Deployment{}},
	{appsv1.SchemeGroupVersion, &appsv1.StatefulSet{}},
	{appsv1.SchemeGroupVersion, &appsv1.DaemonSet{}},
	{batchv1.SchemeGroupVersion, &batchv1.CronJob{}},
	{networkingv1.SchemeGroupVersion, &networkingv1.Ingress{}},
}

// Kinds are an empty object of each kind that may be rendered; the operator caches, watches and prunes these.
func Kinds() []client.Object {
	var list []client.Object
	for _, k := range kinds {
		if obj, ok := k.object.DeepCopyObject().(client.Object); ok {
			list = append(list, Kind(obj))
		}
	}
	return list
}

// Kind sets the kind of an object of one of these, and returns it.
func Kind(obj client.Object) client.Object {
	for _, k := range kinds {
		if t := reflect.TypeOf(k.object); t == reflect.TypeOf(obj) {
			obj.GetObjectKind().SetGroupVersionKind(k.version.WithKind(t.Elem().Name()))
		}
	}
	return obj
}

// Labels of every object of a component; without extra pod labels they are also its selector.
func Labels(cluster, name string) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  v1alpha1.InstancePrefix + cluster,
		v1alpha1.LabelComponent: name,
		v1alpha1.LabelApp:       name,
	}
}

// ComponentLabels are those of the component that is rendered.
func ComponentLabels(in component.Inputs) map[string]string {
	l := Labels(in.Cluster.Name, in.Self.Name)
	l[v1alpha1.LabelInstance] = cmp.Or(in.Cluster.Instance, l[v1alpha1.LabelInstance])
	maps.Copy(l, in.Self.Workload.PodLabels)
	return l
}

func meta(in component.Inputs, suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: in.Cluster.Object(in.Self.Name) + suffix, Namespace: in.Cluster.Namespace, Labels: ComponentLabels(in)}
}

func workload(in component.Inputs, c conf) (client.Object, error) {
	kind := in.Self.WorkloadKind()
	if kind == component.NoWorkload {
		return nil, nil //nolint:nilnil // a component without pods has no workload, and that is no error
	}
	pod, err := podTemplate(in, c)
	if err != nil {
		return nil, err
	}
	lasting := minReady(kind, pod.Spec)
	selector := &metav1.LabelSelector{MatchLabels: ComponentLabels(in)}
	switch kind {
	case component.Deployment:
		return &appsv1.Deployment{ObjectMeta: meta(in, ""), Spec: appsv1.DeploymentSpec{
			Replicas: new(in.Self.Replicas), Selector: selector, Template: pod, Strategy: strategy(in), MinReadySeconds: lasting,
			ProgressDeadlineSeconds: progressDeadline(in.Self.Component),
		}}, nil
	case component.StatefulSet:
		templates, err := claimTemplates(in)
		return &appsv1.StatefulSet{ObjectMeta: meta(in, ""), Spec: appsv1.StatefulSetSpec{
			Replicas: new(in.Self.Replicas), Selector: selector, Template: pod, ServiceName: in.Cluster.Object(in.Self.Name),
			PodManagementPolicy: appsv1.ParallelPodManagement, VolumeClaimTemplates: templates, MinReadySeconds: lasting,
		}}, err
	case component.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: meta(in, ""), Spec: appsv1.DaemonSetSpec{
			Selector: selector, Template: pod, UpdateStrategy: daemonStrategy(in), MinReadySeconds: lasting,
		}}, nil
	case component.CronJob:
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.CronJob{ObjectMeta: meta(in, ""), Spec: batchv1.CronJobSpec{
			Schedule: in.Self.Schedule, ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ComponentLabels(in)},
				Spec:       batchv1.JobSpec{Template: pod, BackoffLimit: new(int32(2)), ActiveDeadlineSeconds: new(longestRun)},
			},
		}}, nil
	}
	return nil, fmt.Errorf("workload kind %q is unknown", kind)
}

// longestRun is how long a run of a CronJob may take, in seconds. One that hangs would keep every later one from starting, and would never be
// reported as failed.
const longestRun int64 = 24 * 60 * 60

// lastingSeconds is how long a pod must have run without a restart before it counts, where being ready means no more than having begun.
const lastingSeconds = 15

// minReady seconds make a pod Available. A container without a readiness probe is ready in the second in which it starts, so a program that
// ends at once would be Available in each round of its crash loop. The agents of a node wait as long, because the next node is next.
func minReady(kind component.WorkloadKind, pod corev1.PodSpec) int32 {
	unasked := func(c corev1.Container) bool { return c.ReadinessProbe == nil }
	if kind == component.DaemonSet || slices.ContainsFunc(pod.Containers, unasked) {
		return lastingSeconds
	}
	return 0
}

// strategy: pods that would fight over a host's ports or over a volume do not overlap.
func strategy(in component.Inputs) appsv1.DeploymentStrategy {
	remote := in.Self.Storage != nil && in.Self.StorageClass != resolve.DefaultClass
	if in.Self.Workload.Recreate || in.Self.Workload.HostNetwork || remote {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
}

func daemonStrategy(in component.Inputs) appsv1.DaemonSetUpdateStrategy {
	if in.Self.Block.UpdateStrategy == string(appsv1.OnDeleteDaemonSetStrategyType) {
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
	n := max(1, in.Self.Workload.MaxUnavailable) // one node at a time, unless the component says otherwise
	for _, m := range []*int32{in.Self.Block.MaxUnavailable, in.Self.Block.MaxUnavailableCount} {
		if m != nil && *m > 0 {
			n = int(*m) // the second name is the one that the earlier operator read
		}
	}
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(n))},
	}
}

// ReplicaSuffix is what the names of read-only replicas end with.
const ReplicaSuffix = "-slave"

// readReplicas adds the read replicas of a component: the same Deployment with another name, labels and flag, and its Service.
func readReplicas(o *component.Objects, in component.Inputs) error {
	if !in.Self.Workload.ReadReplicas || in.Self.ReadReplicas == 0 {
		return nil
	}
	d, ok := o.Workload.(*appsv1.Deployment)
	if !ok {
		return fmt.Errorf("%s: only a Deployment has read replicas", in.Self.Name)
	}
	d = d.DeepCopy()
	d.Name += ReplicaSuffix
	d.Labels = replicaLabels(d.Labels)
	d.Spec.Selector.MatchLabels = replicaLabels(d.Spec.Selector.MatchLabels)
	d.Spec.Template.Labels = replicaLabels(d.Spec.Template.Labels)
	d.Spec.Replicas = new(in.Self.ReadReplicas)
	d.Spec.Template.Spec.TopologySpreadConstraints = nil
	if in.Self.ReadReplicas > 1 {
		d.Spec.Template.Spec.TopologySpreadConstraints = spread(in)
		d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector = d.Spec.Selector.DeepCopy()
		o.Disruptions = append(o.Disruptions, disruption(*d.ObjectMeta.DeepCopy(), d.Spec.Selector.MatchLabels))
	}
	d.Spec.Template.Spec.InitContainers = nil
	main := &d.Spec.Template.Spec.Containers[0]
	main.Command = append(slices.Clone(main.Command), "--is-slave-node")
	o.Copies = append(o.Copies, d)
	for _, obj := range o.Services {
		s, ok := obj.(*corev1.Service)
		if !ok || s.Name != in.Cluster.Object(in.Self.Name) {
			continue
		}
		s = s.DeepCopy()
		s.Name += ReplicaSuffix
		s.Labels, s.Spec.Selector = replicaLabels(s.Labels), replicaLabels(s.Spec.Selector)
		s.Spec.Type = corev1.ServiceTypeClusterIP
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
		o.Copies = append(o.Copies, s)
	}
	return nil
}

func replicaLabels(l map[string]string) map[string]string {
	l = maps.Clone(l)
	l[v1alpha1.LabelComponent] += ReplicaSuffix
	l[v1alpha1.LabelApp] += ReplicaSuffix
	l["read-only"] = "true"
	return l
}

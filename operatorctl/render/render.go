// SPDX-License-Identifier: Apache-2.0

// Package render turns a resolved component into Kubernetes objects. It is pure and deterministic: the same inputs give the same bytes. The engine sets
// owner references.
package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// Component renders all objects of one component, whether it is enabled or not: the caller decides what to apply.
func Component(r component.Resolved, in component.Inputs) (component.Objects, error) {
	in.Self = r
	if r.Problem != "" {
		return component.Objects{}, errors.New(r.Problem)
	}
	conf, err := configuration(r.Component, in)
	if err != nil {
		return component.Objects{}, fmt.Errorf("configuring %s: %w", r.Name, err)
	}
	services := lists.Map(in.Self.Services(), func(s component.Service) client.Object { return service(in, s) })
	o := component.Objects{Services: services, Ingresses: ingresses(in), Disruptions: disruptions(in)}
	if o.PVCs, err = claims(in); err != nil {
		return component.Objects{}, fmt.Errorf("spec.%s.requests.storage: %w", strings.Join(r.BlockPath(), "."), err)
	}
	if conf.public != nil {
		o.ConfigMaps = append(o.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta(in, ""), Data: conf.public})
	}
	if len(conf.secret) > 0 {
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

// List returns the objects in the order in which they are applied, each with its kind set.
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

type kind struct {
	version schema.GroupVersion
	object  client.Object
}

// kinds lists all kinds that may be rendered, in the order in which they are applied. The Go type has the name of the kind.
var kinds = []kind{
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

// Kinds returns an empty object of each kind that may be rendered. The operator caches, watches and prunes these kinds.
func Kinds() []client.Object {
	return lists.Map(kinds, func(k kind) client.Object { return Kind(k.object.DeepCopyObject().(client.Object)) })
}

// Kind sets the kind of an object of one of these types and returns the object.
func Kind(obj client.Object) client.Object {
	for _, k := range kinds {
		if t := reflect.TypeOf(k.object); t == reflect.TypeOf(obj) {
			obj.GetObjectKind().SetGroupVersionKind(k.version.WithKind(t.Elem().Name()))
		}
	}
	return obj
}

// Labels returns the labels of every object of a component. Without extra pod labels they are also its selector.
func Labels(cluster, name string) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  v1alpha1.InstancePrefix + cluster,
		v1alpha1.LabelComponent: name,
		v1alpha1.LabelApp:       name,
	}
}

// ComponentLabels returns the labels of the component that is being rendered.
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
	return nil, fmt.Errorf("unknown workload kind %q", kind)
}

func podTemplate(in component.Inputs, c conf) (corev1.PodTemplateSpec, error) {
	r := in.Self
	w := r.Workload
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: ComponentLabels(in), Annotations: podAnnotations(in, c)}}
	s := &t.Spec
	vols, mounts := volumes(in, c)
	main := container(in, mounts)
	s.Volumes = vols
	s.Containers = []corev1.Container{main}
	if w.DBInit {
		s.InitContainers = []corev1.Container{{
			Name: "init", Image: main.Image, ImagePullPolicy: main.ImagePullPolicy, VolumeMounts: main.VolumeMounts, SecurityContext: main.SecurityContext,
			Command: append(slices.Clone(main.Command), "--auto-sync-table", "--exit-after-db-init"),
		}}
	}
	s.InitContainers = append(s.InitContainers, sidecars(in, main, true)...)
	s.Containers = append(s.Containers, sidecars(in, main, false)...)
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			// The end of the container's log becomes the message that explains why a component is Degraded.
			list[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
	}

	s.Tolerations = r.Tolerations
	if s.ImagePullSecrets = r.Block.ImagePullSecrets; s.ImagePullSecrets == nil {
		s.ImagePullSecrets = in.Cluster.Spec.ImagePullSecrets
	}
	s.PriorityClassName = w.PriorityClass
	s.ServiceAccountName = w.ServiceAccount
	s.AutomountServiceAccountToken = new(w.ServiceAccount != "")
	s.EnableServiceLinks = new(false)
	if !w.Privileged {
		s.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	}
	if w.GracePeriod > 0 {
		s.TerminationGracePeriodSeconds = new(w.GracePeriod)
	}
	if w.HostNetwork {
		s.HostNetwork = true
		s.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	s.HostPID, s.HostIPC = w.HostNamespaces, w.HostNamespaces
	drain(s, in)
	return t, placement(s, in)
}

func podAnnotations(in component.Inputs, c conf) map[string]string {
	a := in.Self.Block.Annotations
	if c.hash != "" {
		a = labels.Merge(a, labels.Set{v1alpha1.AnnotationConfigHash: c.hash})
	}
	certs := ""
	if !in.Self.Workload.NoCerts {
		certs = in.CertHash
	}
	if in.Self.Workload.EtcdTLS {
		certs += in.EtcdHash
	}
	if certs != "" {
		a = labels.Merge(a, labels.Set{v1alpha1.AnnotationCertHash: certs})
	}
	return a
}

func container(in component.Inputs, mounts []corev1.VolumeMount) corev1.Container {
	r := in.Self
	w := r.Workload
	out := corev1.Container{
		Name: cmp.Or(w.ContainerName, r.Name), Image: r.FullImage, ImagePullPolicy: corev1.PullPolicy(r.PullPolicy),
		Command: command(in), Args: w.Args, WorkingDir: w.WorkingDir, Ports: containerPorts(in),
		Resources: resources(in), VolumeMounts: mounts, SecurityContext: w.Security,
	}
	if w.Env != nil {
		out.Env = w.Env(in)
	}
	switch {
	case w.Privileged:
		out.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	case out.SecurityContext == nil:
		out.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	probes(&out, in)
	return out
}

// longestRun is the maximum duration of a CronJob run, in seconds. A run that hangs would block all later ones, and would never be reported as failed.
const longestRun int64 = 24 * 60 * 60

// lastingSeconds is how long a pod must run without a restart before it counts, where readiness only means that it was started.
const lastingSeconds = 15

// minReady returns the seconds after which a pod counts as Available. A container without a readiness probe is ready as soon as it starts, so a program
// that exits immediately would be Available in each round of its crash loop. DaemonSets wait as long, because the rollout moves on to the next node.
func minReady(kind component.WorkloadKind, pod corev1.PodSpec) int32 {
	unasked := func(c corev1.Container) bool { return c.ReadinessProbe == nil }
	if kind == component.DaemonSet || slices.ContainsFunc(pod.Containers, unasked) {
		return lastingSeconds
	}
	return 0
}

// strategy returns Recreate for pods that would compete for a host's ports or for a volume.
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
	n := max(1, in.Self.Workload.MaxUnavailable) // one node at a time by default
	for _, m := range []*int32{in.Self.Block.MaxUnavailable, in.Self.Block.MaxUnavailableCount} {
		if m != nil && *m > 0 {
			n = int(*m) // the earlier operator read the second name
		}
	}
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(n))},
	}
}

// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

func workload(in component.Inputs, c conf) (client.Object, error) {
	kind := in.Self.Workload.Kind
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
	case "", component.Deployment:
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
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt(n + int(in.Absent)))},
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

// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// zoneCopies adds the copies of a component that runs once per zone: the same objects for each other zone. They share the ConfigMap of the first, which
// holds the options that users edit.
func zoneCopies(o *component.Objects, in component.Inputs) error {
	if !in.Self.Workload.PerZone {
		return nil
	}
	chosen, seen := in.Self.Block.Zones, map[string]bool{in.Cluster.Zone: true}
	for _, zone := range in.Cluster.Spec.CustomZones {
		if seen[zone] || !slices.Contains(chosen, zone) {
			continue
		}
		seen[zone] = true
		self := in.Self
		self.Workload.PerZone = false // a copy has no copies
		in := in
		in.Cluster.Zone = zone
		other, err := Component(self, in)
		if err != nil {
			return err
		}
		d, ok := other.Workload.(*appsv1.Deployment)
		if !ok {
			return fmt.Errorf("%s: only a Deployment has a copy for each zone", in.Self.Name)
		}
		first, _ := o.Workload.(*appsv1.Deployment) // it was rendered from the same component
		d.Spec.Template.Spec.Affinity = first.Spec.Template.Spec.Affinity
		d.Name += zoneSuffix(zone)
		renamed := map[string]string{}
		for _, obj := range slices.Concat(other.Secrets, other.PVCs) {
			renamed[obj.GetName()] = obj.GetName() + zoneSuffix(zone)
			obj.SetName(renamed[obj.GetName()])
		}
		rename(d.Spec.Template.Spec.Volumes, renamed)
		o.Secrets, o.PVCs, o.Copies = append(o.Secrets, other.Secrets...), append(o.PVCs, other.PVCs...), append(o.Copies, d)
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]`)

// zoneSuffix ends the names of the objects of a zone. The name of a zone may have what a name in Kubernetes may not.
func zoneSuffix(zone string) string {
	if len(validation.IsDNS1123Subdomain(zone)) == 0 {
		return "-" + zone
	}
	plain := notInNames.ReplaceAllString(strings.ToLower(zone), "-")
	return "-" + strings.Trim(plain, "-") + "-" + hash(map[string][]byte{zone: nil})[:6] // other zones may differ in that only
}

func rename(volumes []corev1.Volume, names map[string]string) {
	for i := range volumes {
		if s := volumes[i].Secret; s != nil && names[s.SecretName] != "" {
			s.SecretName = names[s.SecretName]
		}
		if c := volumes[i].PersistentVolumeClaim; c != nil && names[c.ClaimName] != "" {
			c.ClaimName = names[c.ClaimName]
		}
	}
}

// ReplicaSuffix ends the names of read-only replicas.
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

// disruptions limits how many pods of a component are evicted at once, as by "kubectl drain", to one. A component with a single pod has no limit,
// because its pod could then never leave its node.
func disruptions(in component.Inputs) []client.Object {
	kind := in.Self.WorkloadKind()
	if in.Self.Replicas < 2 || kind != component.Deployment && kind != component.StatefulSet {
		return nil
	}
	return []client.Object{disruption(meta(in, ""), ComponentLabels(in))}
}

func disruption(meta metav1.ObjectMeta, pods map[string]string) client.Object {
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pods},
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow), // a pod that does not serve may always be evicted
	}}
}

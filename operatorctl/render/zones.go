// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// zoneCopies adds the copies of a component that runs once per zone: the same objects for another zone. They share the options that users
// edit, which lie in the ConfigMap of the first.
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
		self.Workload.PerZone = false // a copy has none
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
		d.Name += "-" + zone
		renamed := map[string]string{}
		for _, obj := range slices.Concat(other.Secrets, other.PVCs) {
			renamed[obj.GetName()] = obj.GetName() + "-" + zone
			obj.SetName(renamed[obj.GetName()])
		}
		rename(d.Spec.Template.Spec.Volumes, renamed)
		o.Secrets, o.PVCs, o.Copies = append(o.Secrets, other.Secrets...), append(o.PVCs, other.PVCs...), append(o.Copies, d)
	}
	return nil
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

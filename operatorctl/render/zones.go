// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// zones adds the twins of a component that runs once per zone: the same objects for another zone. They share the options that people
// edit, which lie in the ConfigMap of the first.
func zones(o *component.Objects, in component.Inputs) error {
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
		self.Workload.PerZone = false // the twin has none
		in := in
		in.Cluster.Zone = zone
		twin, err := Component(self, in)
		if err != nil {
			return err
		}
		d, ok := twin.Workload.(*appsv1.Deployment)
		if !ok {
			return fmt.Errorf("%s: only a Deployment has twins by zone", in.Self.Name)
		}
		first, _ := o.Workload.(*appsv1.Deployment) // it was rendered from the same component
		d.Spec.Template.Spec.Affinity = first.Spec.Template.Spec.Affinity
		d.Name += "-" + zone
		renamed := map[string]string{}
		for _, obj := range slices.Concat(twin.Secrets, twin.PVCs) {
			renamed[obj.GetName()] = obj.GetName() + "-" + zone
			obj.SetName(renamed[obj.GetName()])
		}
		rename(d.Spec.Template.Spec.Volumes, renamed)
		o.Secrets, o.PVCs, o.Twins = append(o.Secrets, twin.Secrets...), append(o.PVCs, twin.PVCs...), append(o.Twins, d)
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

// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

// BenchmarkStatus computes the status of a Deployment for each component of the catalog among the pods of all, and the conditions of the cloud.
func BenchmarkStatus(b *testing.B) {
	all := catalog.All()
	live := deployment(1, 1, 1, 1, 1, 1)
	var pods []corev1.Pod
	for range all {
		pods = append(pods, pod(corev1.ContainerStatus{Name: "glance", Ready: true}))
	}
	var before []v1alpha1.ComponentStatus
	b.ReportAllocs()
	for b.Loop() {
		var states []v1alpha1.ComponentStatus
		for i, c := range all {
			o := status.Observed{Name: c.Name, Resolved: component.Resolved{Component: c, Enabled: true, FullImage: "r.io/y/x:v1"},
				Workload: status.WorkloadOf(live, status.Seen{Pods: pods, Now: t0}), Now: t0}
			if before != nil {
				o.Previous = &before[i]
			}
			states = append(states, status.Component(o))
		}
		conditions(nil, states, 1, t0)
		before = states
	}
	b.ReportMetric(float64(len(all)), "components")
}

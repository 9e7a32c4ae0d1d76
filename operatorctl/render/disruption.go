// SPDX-License-Identifier: Apache-2.0

package render

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/operatorctl/component"
)

// disruptions limits how many pods of a component are evicted at once, as by "kubectl drain": one. A component with one pod has no such limit,
// because that pod could then never leave its node.
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
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow), // what does not serve need not be kept
	}}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// The pods of every component are found by the name of the component, also where their label has another name.
func TestEveryComponentIsFound(t *testing.T) {
	f := &cloudFlags{name: "default"}
	f.namespace = "onecloud"
	for _, c := range catalog.All() {
		if c.WorkloadKind() == component.NoWorkload {
			continue
		}
		labels := render.ComponentLabels(component.Inputs{Cluster: component.Cluster{Name: "default"}, Self: component.Resolved{Component: c}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-" + c.Name + "-7d9f-x2x4z", Labels: labels}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "another-" + c.Name + "-7d9f-x2x4z", Labels: map[string]string{
			v1alpha1.LabelComponent: labels[v1alpha1.LabelComponent]}}}
		ref, err := componentRef(f, c.Name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := ref.Pod(t.Context(), fake.NewClientBuilder().WithObjects(other, pod).Build(), "")
		if err != nil || client.ObjectKeyFromObject(found) != client.ObjectKeyFromObject(pod) {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// OfCloud reports whether a workload or pod with the label of a component is of a cloud: its name is made of both names. Label app.kubernetes.io/instance
// does not tell, because in a cloud of the earlier operator it is a random one. Nor does the name of the cloud alone, because that of another cloud in the
// namespace may begin with it.
func OfCloud(o metav1.Object, cloud string) bool {
	name := cloud + "-" + o.GetLabels()[v1alpha1.LabelComponent]
	return o.GetName() == name || strings.HasPrefix(o.GetName(), name+"-")
}

// PodOf is the pod of a workload that runs until it is stopped, and what selects its pods; nil of another object.
func PodOf(o client.Object) (*corev1.PodSpec, *metav1.LabelSelector) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template.Spec, w.Spec.Selector
	case *appsv1.StatefulSet:
		return &w.Spec.Template.Spec, w.Spec.Selector
	case *appsv1.DaemonSet:
		return &w.Spec.Template.Spec, w.Spec.Selector
	}
	return nil, nil
}

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

// ServiceOperatorLabel is the component label of ServiceOperator, with which the earlier operator selected its pods. All others have their name.
const (
	ServiceOperator      = "onecloud-service-operator"
	ServiceOperatorLabel = "osOperator"
)

// OfCloud reports whether a workload or pod with a component label belongs to a cloud: its name consists of both names. Label app.kubernetes.io/instance
// does not show it, because the earlier operator set it to a random value. The cloud's name alone is not enough, because the name of another cloud in
// the namespace may begin with it.
func OfCloud(o metav1.Object, cloud string) bool {
	name := cloud + "-" + NameOf(o)
	return o.GetName() == name || strings.HasPrefix(o.GetName(), name+"-")
}

// NameOf returns the name of the component of a workload or pod, "" if it has no component label.
func NameOf(o metav1.Object) string {
	if label := o.GetLabels()[v1alpha1.LabelComponent]; label != ServiceOperatorLabel {
		return label
	}
	return ServiceOperator
}

// PodOf returns the pod spec and the selector of a long-running workload, nil for any other object.
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

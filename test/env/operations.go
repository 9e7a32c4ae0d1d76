// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Operation creates an operation of the cloud.
func (e *Env) Operation(name string, spec v1alpha1.OnecloudOperationSpec) *v1alpha1.OnecloudOperation {
	e.Helper()
	spec.Cloud = Name
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	e.Create(o)
	return o
}

// Operations returns the operations of the cloud, the latest last.
func (e *Env) Operations() []*v1alpha1.OnecloudOperation {
	e.Helper()
	all, err := operation.Of(e.Context(), e.Client, client.ObjectKey{Namespace: e.Namespace, Name: Name})
	e.Must(err)
	return all
}

// UntilOperation waits until an operation is as wanted.
func (e *Env) UntilOperation(name string, wanted func(*v1alpha1.OnecloudOperation) bool) (last *v1alpha1.OnecloudOperation) {
	e.Helper()
	e.Until(&v1alpha1.OnecloudOperation{}, name, func(object client.Object) (bool, string) {
		o, there := kube.As[v1alpha1.OnecloudOperation](object)
		if !there {
			return false, "it does not exist"
		}
		last = o.DeepCopy()
		return wanted(o), fmt.Sprintf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	})
	return last
}

// Ended reports whether an operation has ended.
func Ended(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase.Final() }

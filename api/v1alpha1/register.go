// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, version, kind and resource name of a cloud.
const (
	Group    = "onecloud.yunion.io"
	Version  = "v1alpha1"
	Kind     = "OnecloudCluster"
	Resource = "onecloudclusters"
)

// GroupVersion of the resources.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &OnecloudCluster{}, &OnecloudClusterList{}, &OnecloudOperation{}, &OnecloudOperationList{},
		&OnecloudMachine{}, &OnecloudMachineList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

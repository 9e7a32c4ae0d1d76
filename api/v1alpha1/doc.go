// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the resources OnecloudCluster, OnecloudOperation and OnecloudMachine. The JSON names of OnecloudCluster are those of existing
// YAML files. The types define what a user may write. Defaults come from package resolve, never from this package.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=onecloud.yunion.io
package v1alpha1

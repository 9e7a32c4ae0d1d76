// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the OnecloudCluster resource: one object describes one cloud, and its JSON names are those that existing YAML
// uses. The types say what a person may write; what is left out is filled in by package resolve, never by this one.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=onecloud.yunion.io
package v1alpha1

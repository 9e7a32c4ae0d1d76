// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// EtcdSpec configures the cloud's own etcd.
type EtcdSpec struct {
	ComponentSpec `json:",inline"`

	// Number of members: 1, 3 or 5. It cannot change while etcd runs.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Size int32 `json:"size,omitempty"`
	// Tag of the image; spec.version does not affect it.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$`
	Version string `json:"version,omitempty"`
	// Ignored; to pause etcd, use the annotation onecloud.yunion.io/paused.
	Paused bool `json:"paused,omitempty"`
	// Ignored.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod *runtime.RawExtension `json:"pod,omitempty"`
	// Ignored; the operator issues the certificates.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	TLS *runtime.RawExtension `json:"TLS,omitempty"`
	// Ignored.
	// +nullable
	CreatedSecrets *bool `json:"createdSecrets,omitempty"`
	// Ignored; etcd always uses TLS.
	// +nullable
	EnableTLS *bool `json:"enableTls,omitempty"`
	// Client port on the nodes; 30379 by default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ClientNodePort int32 `json:"clientNodePort,omitempty"`
	// Size limit of the database in MB, from 128 (default) to 8192.
	// +kubebuilder:validation:Minimum=0
	EtcdBackendQuotaSize int64 `json:"etcdBackendQuotaSize,omitempty"`
}

// MonitorStackSpec configures Grafana, Loki, Prometheus and Thanos, which kubeserver installs.
type MonitorStackSpec struct {
	// Set to false to install the stack.
	// +nullable
	Disable *bool `json:"disable,omitempty"`
	// Settings of its object store.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Minio *runtime.RawExtension `json:"minio,omitempty"`
	// Settings of Grafana.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Grafana *runtime.RawExtension `json:"grafana,omitempty"`
	// Settings of Loki.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Loki *runtime.RawExtension `json:"loki,omitempty"`
	// Settings of Prometheus; disable is true by default.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Prometheus *runtime.RawExtension `json:"prometheus,omitempty"`
	// Settings of Thanos.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Thanos *runtime.RawExtension `json:"thanos,omitempty"`
}

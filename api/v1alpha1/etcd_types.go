// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// EtcdSpec is the cloud's own etcd.
type EtcdSpec struct {
	ComponentSpec `json:",inline"`

	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Size int32 `json:"size,omitempty"`
	// The tag of the image.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$`
	Version string `json:"version,omitempty"`
	// Read from existing YAML and not used: pause the cloud by its annotation.
	Paused bool `json:"paused,omitempty"`
	// Read from existing YAML and not used.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod *runtime.RawExtension `json:"pod,omitempty"`
	// Read from existing YAML and not used.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	TLS *runtime.RawExtension `json:"TLS,omitempty"`
	// Read from existing YAML and not used.
	// +nullable
	CreatedSecrets *bool `json:"createdSecrets,omitempty"`
	// +nullable
	EnableTLS *bool `json:"enableTls,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ClientNodePort int32 `json:"clientNodePort,omitempty"`
	// In MB; values above 128 take effect.
	// +kubebuilder:validation:Minimum=0
	EtcdBackendQuotaSize int64 `json:"etcdBackendQuotaSize,omitempty"`
}

// MonitorStackSpec is the stack of grafana, loki, prometheus and thanos.
type MonitorStackSpec struct {
	// +nullable
	Disable *bool `json:"disable,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Minio *runtime.RawExtension `json:"minio,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Grafana *runtime.RawExtension `json:"grafana,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Loki *runtime.RawExtension `json:"loki,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Prometheus *runtime.RawExtension `json:"prometheus,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Thanos *runtime.RawExtension `json:"thanos,omitempty"`
}

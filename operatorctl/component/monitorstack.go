// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// ObjectStore is where a part of the monitoring stack keeps its data; empty keys mean the stack's own object store.
type ObjectStore struct {
	Bucket    string `json:"bucket"`
	Endpoint  string `json:"endpoint"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

// StackSettings is spec.monitorStack. It comes from existing YAML that nothing validates, so it is parsed leniently.
type StackSettings struct {
	Minio struct {
		Mode        string `json:"mode"`
		AccessKeyID string `json:"accessKey"`
		SecretKey   string `json:"secretKey"`
	}
	Grafana struct {
		Disable        bool           `json:"disable"`
		AdminUser      string         `json:"adminUser"`
		AdminPassword  string         `json:"adminPassword"`
		Host           string         `json:"host"`
		EnforceDomain  bool           `json:"enforceDomain"`
		DisableSubpath bool           `json:"disableSubpath"`
		Subpath        string         `json:"subpath"`
		OAuth          map[string]any `json:"oauth"`
	}
	Loki struct {
		Disable bool        `json:"disable"`
		Store   ObjectStore `json:"objectStoreConfig"`
	}
	Prometheus struct {
		// Disable defaults to true.
		Disable *bool `json:"disable"`
		Sidecar struct {
			Store ObjectStore `json:"objectStoreConfig"`
		} `json:"thanosSidecar"`
	}
	Thanos struct {
		Store ObjectStore `json:"objectStoreConfig"`
	}
}

// MonitorStack parses spec.monitorStack. It ignores what it cannot parse.
func MonitorStack(s *Spec) StackSettings {
	var out StackSettings
	for into, raw := range map[any]*runtime.RawExtension{
		&out.Minio: s.MonitorStack.Minio, &out.Grafana: s.MonitorStack.Grafana, &out.Loki: s.MonitorStack.Loki,
		&out.Prometheus: s.MonitorStack.Prometheus, &out.Thanos: s.MonitorStack.Thanos,
	} {
		if raw != nil {
			_ = json.Unmarshal(raw.Raw, into) // see above
		}
	}
	return out
}

// AccessKey returns the access key of the stack's own object store.
func (s StackSettings) AccessKey() string { return cmp.Or(s.Minio.AccessKeyID, "monitor-admin") }

// SecretKey returns the secret key from the spec, or else the generated one.
func (s StackSettings) SecretKey(c Credentials) string {
	return cmp.Or(s.Minio.SecretKey, c[MonitorMinioSecretKey])
}

// WantsPrometheus reports whether the spec requests Prometheus, and with it Thanos.
func (s StackSettings) WantsPrometheus() bool {
	return s.Prometheus.Disable != nil && !*s.Prometheus.Disable
}

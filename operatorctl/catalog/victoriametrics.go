// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// victoriaPort is the port on which the program listens, whatever its node port.
const victoriaPort = 30428

func victoriaMetrics() component.Component {
	return component.Component{
		Name: "victoria-metrics", SpecKey: "victoriaMetrics", StatusKey: "victoriaMetrics", Summary: "time series database",
		Single:   ownVolume,
		Releases: component.Releases{First: "v3.10.8"},
		After:    []string{"keystone"},
		Image:    component.Image{Tag: "v1.129.1-1", Older: []component.OlderTag{{Until: "v3.11", Tag: "v1.95.1"}}},
		Workload: component.Workload{
			Recreate: true, NodeRole: "any", // its volume determines the node
			Command: []string{}, Args: victoriaArgs(), Env: victoriaEnv,
			Probe: httpsGet("/health", victoriaPort, 15), Liveness: httpsGet("/health", victoriaPort, 30),
			Mounts: []component.Mount{{Name: "server-volume", Path: "/storage", Storage: true}},
		},
		Service: &component.Service{Ports: []component.Port{
			{Name: "api", Port: victoriaPort, TargetPort: victoriaPort, SpecKey: "service.nodePort"},
		}},
		Endpoints: []component.Endpoint{{Service: "victoria-metrics", Type: "victoria-metrics"}},
		Storage:   &component.Storage{Size: "20G"},
	}
}

func victoriaArgs() []string {
	return []string{
		fmt.Sprintf("--httpListenAddr=:%d", victoriaPort), "--tls", "--tlsMinVersion=TLS12", "--tlsCertFile=/etc/yunion/pki/service.crt", "--tlsKeyFile=/etc/yunion/pki/service.key",
		"--tlsCipherSuites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384," +
			"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
		"--storageDataPath=/storage", "--envflag.enable=true", "--envflag.prefix=VM_", "--loggerFormat=json", "--dedup.minScrapeInterval=10s",
		"--influx.databaseNames=telegraf,meter_db,monitor,system,mysql_metrics", "--maxLabelsPerTimeseries=60",
	}
}

// victoriaEnv returns the flags that depend on the cloud; the program reads them from its environment.
func victoriaEnv(in component.Inputs) []corev1.EnvVar {
	days := cmp.Or(in.Cluster.Spec.VictoriaMetrics.RetentionPeriodDays, 93)
	env := []corev1.EnvVar{{Name: "VM_retentionPeriod", Value: fmt.Sprintf("%dd", days)}}
	if in.Cluster.Spec.IPv6Cluster {
		env = append(env, corev1.EnvVar{Name: "VM_enableTCP6", Value: "true"})
	}
	return env
}

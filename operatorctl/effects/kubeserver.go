// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// systemCluster is kubeserver's name for the Kubernetes cluster in which it runs. It installs further software there.
const systemCluster = "system-default"

var kubeClusters = identity.Kind{Plural: "kubeclusters", Singular: "kubecluster"}

// software is one thing that kubeserver can install, with kubeserver's name for it.
type software struct {
	name     string
	settings map[string]any
}

// install requests software from kubeserver. It repeats the request, with the current settings, when they change and in the audit. It first removes
// software whose installation failed: kubeserver does not retry by itself. Software whose update failed holds data and is only updated again.
func install(ctx context.Context, s session, in Input, list []software) (bool, error) {
	hide := slices.Collect(maps.Values(in.Credentials))
	for _, software := range list {
		hide = append(hide, secretsIn(software.settings)...)
	}
	k8s := s.id.Records(s.URL("kubeserver")).Hiding(hide...)
	var state map[string]struct {
		Enabled bool   `json:"enabled"`
		Status  string `json:"status"`
	}
	err := k8s.Read(ctx, kubeClusters, systemCluster, "components-status", &state)
	if identity.IsNotFound(err) {
		return false, Waiting{For: "kubeserver to register the cluster it runs in", Retry: longRetry}
	}
	if err != nil {
		return false, err
	}
	var writes []write
	for _, software := range list {
		writes = append(writes, func() (bool, error) {
			now := state[software.name]
			return installOne(ctx, k8s, in, software, now.Enabled, now.Status)
		})
	}
	return each(writes...)
}

// secretsIn returns the secrets in settings: a user may have set them in the spec.
func secretsIn(settings map[string]any) (out []string) {
	for key, value := range settings {
		switch v := value.(type) {
		case map[string]any:
			out = append(out, secretsIn(v)...)
		case string:
			if key = strings.ToLower(strings.ReplaceAll(key, "_", "")); strings.HasSuffix(key, "password") || strings.HasSuffix(key, "secret") || key == "secretkey" {
				out = append(out, v)
			}
		}
	}
	return out
}

func installOne(ctx context.Context, k8s identity.Records, in Input, s software, enabled bool, status string) (bool, error) {
	perform := func(action string, params map[string]any) error {
		return k8s.Perform(ctx, kubeClusters, systemCluster, action, params)
	}
	params := map[string]any{
		"type": s.name, s.name: s.settings, "disableResourceManagement": in.Cluster.Spec.DisableResourceManagement,
		"imageRepository": map[string]any{"url": in.Cluster.Spec.ImageRepository},
	}
	switch {
	case slices.Contains([]string{"deploy_fail", "undeploy_fail", "delete_fail"}, status):
		if err := perform("disable-component", map[string]any{"type": s.name}); err != nil {
			return false, err
		}
		return true, fmt.Errorf("kubeserver could not install %s: its status was %s; the installation was removed and is retried", s.name, status)
	case status == "update_fail":
		if err := perform("update-component", params); err != nil {
			return false, err
		}
		return true, fmt.Errorf("kubeserver could not update %s: its status was %s; the update was requested again", s.name, status)
	case enabled:
		return false, perform("update-component", params)
	}
	if err := perform("sync", nil); err != nil {
		return false, err
	}
	err := perform("enable-component", params)
	return err == nil, err
}

// objectStore returns the settings of kubeserver's minio: its account, and one terabyte volume per pod.
func objectStore(class, mode, access, secret string) map[string]any {
	replicas := 1
	if mode = cmp.Or(mode, "standalone"); mode == "distributed" {
		replicas = 4
	}
	return map[string]any{
		"mode": mode, "replicas": replicas, "drivesPerNode": 1, "accessKey": access, "secretKey": secret, "mountPath": "/export",
		"storage": map[string]any{"enabled": true, "sizeMB": 1 << 20, "storageClassName": class},
	}
}

func minioWanted(in Input) map[string]any {
	return objectStore(in.Cluster.StorageClass, in.Cluster.Spec.Minio.Mode, "minioadmin", in.Credentials[component.MinioSecretKey])
}

func installMinio(ctx context.Context, s session, in Input) (bool, error) {
	return install(ctx, s, in, []software{{"minio", minioWanted(in)}})
}

// stackStore is the object store of the monitoring stack within the cluster.
const stackStore = "monitor-minio.onecloud-monitoring:9000"

// monitorStackWanted returns the settings of the stack's parts, by kubeserver's names for them.
func monitorStackWanted(in Input) map[string]any {
	s := component.MonitorStack(in.Cluster.Spec)
	access, secret := s.AccessKey(), s.SecretKey(in.Credentials)
	store := func(o component.ObjectStore, bucket string) map[string]any {
		if o.AccessKey == "" || o.SecretKey == "" {
			o.Endpoint, o.AccessKey, o.SecretKey = stackStore, access, secret
		}
		return map[string]any{
			"bucket": cmp.Or(o.Bucket, bucket), "endpoint": o.Endpoint, "access_key": o.AccessKey, "secret_key": o.SecretKey, "insecure": true,
		}
	}
	grafana := map[string]any{
		"disable": s.Grafana.Disable, "AdminUser": cmp.Or(s.Grafana.AdminUser, "admin"),
		"adminPassword": cmp.Or(s.Grafana.AdminPassword, in.Credentials[component.GrafanaPassword]),
		"publicAddress": in.Cluster.LoadBalancer, "enforceDomain": s.Grafana.EnforceDomain, "disableSubpath": s.Grafana.DisableSubpath,
		"subpath": cmp.Or(s.Grafana.Subpath, "grafana"), "enableThanosQuery": true,
		"db": map[string]any{
			"host": in.Cluster.Spec.MySQL.Host, "port": in.Cluster.MysqlPort, "database": "grafana", "username": "grafana",
			"password": in.Credentials[component.DatabasePassword("monitor-stack")],
		},
	}
	if s.Grafana.Host != "" {
		grafana["host"], grafana["publicAddress"] = s.Grafana.Host, ""
	}
	if enabled, _ := s.Grafana.OAuth["enabled"].(bool); enabled {
		grafana["oauth"] = maps.Clone(s.Grafana.OAuth)
	}
	out := map[string]any{
		"monitorMinio": objectStore(in.Cluster.StorageClass, s.Minio.Mode, access, secret),
		"monitor": map[string]any{
			"grafana": grafana, "promtail": map[string]any{"disable": s.Loki.Disable},
			"loki": map[string]any{"disable": s.Loki.Disable, "objectStoreConfig": store(s.Loki.Store, "loki")},
			"prometheus": map[string]any{
				"disable":       !s.WantsPrometheus(),
				"thanosSidecar": map[string]any{"objectStoreConfig": store(s.Prometheus.Sidecar.Store, "thanos")},
			},
		},
	}
	if s.WantsPrometheus() {
		out["thanos"] = map[string]any{"objectStoreConfig": store(s.Thanos.Store, "thanos")}
	}
	return out
}

// installMonitorStack requests the object store first: the other parts keep their data there.
func installMonitorStack(ctx context.Context, s session, in Input) (bool, error) {
	wanted := monitorStackWanted(in)
	return install(ctx, s, in, lists.Pick([]string{"monitorMinio", "thanos", "monitor"}, func(name string) (software, bool) {
		settings, ok := wanted[name].(map[string]any)
		return software{name, settings}, ok
	}))
}

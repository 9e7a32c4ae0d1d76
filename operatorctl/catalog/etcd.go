// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/operatorctl/component"
)

// etcd holds leases and caches of the services. The earlier operator ran bare pods on tmpfs; here its members keep their data. Several members prefer
// different nodes. If that were required, a cloud with fewer nodes than members would lose one when its pods are replaced.
func etcd() component.Component {
	return component.Component{
		Name: "etcd", SpecKey: "etcd", StatusKey: "etcd", Summary: "leases and watches of the services",
		Releases: component.Releases{First: "v3.2.0"},
		Image:    component.Image{Tag: "3.5.12", TagKey: "version", Older: []component.OlderTag{{Until: "v3.11", Tag: "3.4.6"}}},
		Workload: component.Workload{
			Kind: component.StatefulSet, ReplicasKey: "size", FixedMembers: true, KeepsLocks: true, NoCerts: true, EtcdTLS: true, PriorityClass: cloudCritical,
			Command: []string{},
			Probe:   etcdGet("/readyz", 5), Liveness: etcdGet("/livez", 20),
			Mounts: etcdMounts,
		},
		Storage:   &component.Storage{Size: "1Gi"},
		Endpoints: []component.Endpoint{{Service: "etcd", Type: "etcd", ServiceSuffix: "-client", Port: "client", Certificate: component.EtcdCertificate}},
		Service:   etcdService(),
		Setup:     []string{"etcd-upkeep"},
		Adapt:     adaptEtcd,
	}
}

var etcdMounts = []component.Mount{
	{Name: "data", Path: "/var/etcd", Storage: true},
	{Name: "member-server-tls", Path: "/etc/etcdtls/member/server-tls", Secret: "etcd-server", ReadOnly: true},
	{Name: "member-peer-tls", Path: "/etc/etcdtls/member/peer-tls", Secret: "etcd-peer", ReadOnly: true},
}

// etcdService gives the members their names; clients use a separate Service.
func etcdService() *component.Service {
	return &component.Service{
		Headless: true,
		Ports:    []component.Port{{Name: "client", Port: 2379}, {Name: "peer", Port: 2380}},
		More: []component.Service{{
			NameSuffix: "-client",
			Ports:      []component.Port{{Name: "client", Port: 2379, NodePort: 30379, SpecKey: "clientNodePort"}},
		}},
	}
}

// adaptEtcd sets the command line: the list of members depends on their number.
func adaptEtcd(o *component.Objects, in component.Inputs) error {
	pod, _ := component.PodOf(o.Workload)
	name := in.Cluster.Object("etcd")
	var members []string
	for i := range in.Self.Replicas {
		members = append(members, fmt.Sprintf("%s-%d=https://%s:2380", name, i, in.Cluster.PodHost("etcd", i)))
	}
	any4or6 := "0.0.0.0"
	if in.Cluster.Spec.IPv6Cluster {
		any4or6 = "[::]"
	}
	self := fmt.Sprintf("https://$(POD_NAME).%s.%s.svc", name, in.Cluster.Namespace)
	quota := max(128, in.Cluster.Spec.Etcd.EtcdBackendQuotaSize) << 20
	tls := func(flag, role string) []string {
		file := "/etc/etcdtls/member/" + role + "-tls/" + role
		return []string{
			"--" + flag + "client-cert-auth=true", "--" + flag + "trusted-ca-file=" + file + "-ca.crt",
			"--" + flag + "cert-file=" + file + ".crt", "--" + flag + "key-file=" + file + ".key",
		}
	}
	c := &pod.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
	}})
	if in.Self.Replicas > 1 {
		// Only the successor of a member that has lost its disk reads it, see effects/etcd.go.
		c.Env = append(c.Env, corev1.EnvVar{Name: "ETCD_INITIAL_CLUSTER_STATE", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: in.Cluster.State("etcd")}, Key: component.EtcdInitialState, Optional: new(true),
			},
		}})
	}
	c.Command = append([]string{
		"/usr/local/bin/etcd", "--name=$(POD_NAME)", "--data-dir=/var/etcd/data",
		"--listen-client-urls=https://" + any4or6 + ":2379", "--advertise-client-urls=" + self + ":2379",
		"--listen-peer-urls=https://" + any4or6 + ":2380", "--initial-advertise-peer-urls=" + self + ":2380",
		"--initial-cluster=" + strings.Join(members, ","), "--initial-cluster-token=" + name,
		"--listen-metrics-urls=http://" + any4or6 + ":2381",
		fmt.Sprintf("--quota-backend-bytes=%d", quota), "--auto-compaction-retention=1", "--max-wals=1",
	}, append(tls("", "server"), tls("peer-", "peer")...)...)
	return nil
}

// etcdGet returns a probe of the metrics and health port, which needs no certificate.
func etcdGet(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(2381), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period, TimeoutSeconds: 5, FailureThreshold: 3,
	}
}

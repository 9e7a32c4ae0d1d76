// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/test/require"
)

// TestFindingsOfNodes covers machines on which an earlier run has made a node, or half of one.
func TestFindingsOfNodes(t *testing.T) {
	provoke(t, map[string]provocation{
		"ours, half made": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, "/etc/kubernetes/pki/ca.crt", "x")
			put(t, m.h, "/etc/kubernetes/manifests/etcd.yaml", "x")
		}, nil, ""},
		"ours, running": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			put(t, m.h, "/proc/net/tcp", tcpHeader+"   0: 00000000:192B 00000000:0000 0A 0 0 0 0\n")
			m.disk = func(string) (uint64, uint64, error) { return 1, gib, nil }
		}, nil, ""},
		"ours, while its authorities are rotated": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			put(t, m.h, "/etc/kubernetes/pki/ca.crt", selfSigned(t, "new")+selfSigned(t, "old"))
		}, []string{"OCA-4409"}, "ocadm certs rotate-ca --status"},
		"ours, half made, with authorities of one's own": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, "/etc/kubernetes/pki/ca.crt", selfSigned(t, "new")+selfSigned(t, "old"))
		}, nil, ""},
		"ours, a worker": {func(t *testing.T, m *machine) {
			own(t, m, "kind: JoinConfiguration\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
		}, []string{"OCA-1006"}, "a worker of a cluster"},
		"ours, joined as a control-plane node": {func(t *testing.T, m *machine) {
			require.NoError(t, owned.Note(m.h, true))
			own(t, m, "kind: JoinConfiguration\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
		}, []string{"OCA-1006"}, "a control-plane node of a cluster"},
		"ours, joined, and how to resume": {func(t *testing.T, m *machine) {
			own(t, m, "kind: JoinConfiguration\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
		}, []string{"OCA-1006"}, "to resume, run its join command again; to start over"},
		"ours, under another name": {func(t *testing.T, m *machine) {
			m.kind, m.h.Config.Node.Name = Join, "w2"
			own(t, m, "kind: JoinConfiguration\nnodeRegistration:\n  name: w1\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
		}, []string{"OCA-1057"}, "--node-name w1"},
		"the first node of ours, under another name": {func(t *testing.T, m *machine) {
			m.kind, m.h.Config.Node.Name = Join, "w2"
			own(t, m, "kind: InitConfiguration\nnodeRegistration:\n  name: cp\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
		}, []string{"OCA-1057"}, "node cp"},
		"ours, under another name, and never registered": {func(t *testing.T, m *machine) {
			m.kind, m.h.Config.Node.Name = Join, "w2"
			own(t, m, "kind: JoinConfiguration\nnodeRegistration:\n  name: w1\n")
			put(t, m.h, "/etc/kubernetes/pki/ca.crt", "x")
		}, nil, ""},
		"ours, to be renamed by init": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Name = "w2"
			own(t, m, "kind: InitConfiguration\nnodeRegistration:\n  name: cp\n---\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: 192.0.2.7:6443\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			require.NoError(t, m.h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: "kubeadm init phase upload-config kubeadm", Op: host.Found}))
		}, []string{"OCA-1057"}, "give --node-name cp, or leave it out"},
		"ours, on a machine that was renamed": {func(t *testing.T, m *machine) {
			m.kind, m.h.Config.Node.Name, m.h.Facts.Hostname = Join, "w1", "W2"
			own(t, m, "kind: JoinConfiguration\nnodeRegistration:\n  name: w1\n")
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			put(t, m.h, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.8"`)
		}, []string{"OCA-1057"}, "hostnamectl set-hostname w1"},
		"ours, of a release that noted nothing": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			require.NoError(t, m.h.Files.WriteFile(kubernetes.ConfigFile, []byte("kind: InitConfiguration\n"), 0o600))
		}, []string{"OCA-1027"}, "it was installed by an earlier ocadm"},
		"ours, and the API server does not answer": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, kubernetes.AdminKubeconfig, "x")
			m.h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
		}, []string{"w OCA-7014"}, "connection refused"},
		"ours, other networks": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nnetworking:\n  podSubnet: 10.50.0.0/16\n")
			put(t, m.h, "/var/lib/etcd/member/wal", "x")
		}, []string{"OCA-1007"}, "--pod-network-cidr was 10.50.0.0/16 and is now 10.40.0.0/16"},
		"ours, without the flag for its endpoint": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: cluster.example.org:6443\n")
			put(t, m.h, "/var/lib/etcd/member/wal", "x")
			require.NoError(t, m.h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: "kubeadm init phase upload-config kubeadm", Op: host.Found}))
		}, []string{"OCA-1007"}, "--control-plane-endpoint, --node-ip or --apiserver-bind-port, or after ocadm ha enable its flags"},
		"ours, with an endpoint that never answered": {func(t *testing.T, m *machine) {
			own(t, m, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: clutser.example.org:6443\n")
			put(t, m.h, "/var/lib/etcd/member/wal", "x")
		}, nil, ""},
	})
}

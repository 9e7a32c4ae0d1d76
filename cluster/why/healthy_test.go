// SPDX-License-Identifier: Apache-2.0

package why

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/test/require"
)

// healthy returns a snapshot of a healthy cloud: testdata/healthy.json, taken by test/integration from a cloud in a real API server (TestWhyHealthy,
// UPDATE=1), and what that control plane does not run: three nodes with leases, CoreDNS, flannel, kube-proxy, the control plane, the provisioner and
// the embedded database.
func healthy(t *testing.T) *Snapshot {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "healthy.json"))
	require.NoError(t, err)
	s := &Snapshot{}
	require.NoError(t, json.Unmarshal(raw, s))
	s.Nodes = nil
	for i := range s.Pods {
		s.Pods[i].Spec.NodeName = "n2"
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		s.Nodes = append(s.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}},
		})
		s.lease("kube-node-lease", name, s.Time.Add(-5*time.Second))
		s.Disks = append(s.Disks, Disk{Node: name, What: "nodefs", Capacity: 100, Free: 50, Inodes: 100, InodesFree: 90})
		s.addPod("kube-flannel", "kube-flannel-"+name, name, map[string]string{"app": "flannel"})
		s.addPod("kube-system", "kube-proxy-"+name, name, map[string]string{"k8s-app": "kube-proxy"})
	}
	s.lease("kube-system", "kube-controller-manager", s.Time)
	s.lease("kube-system", "kube-scheduler", s.Time)
	s.addPod("kube-system", "coredns-a", "n1", map[string]string{"k8s-app": "kube-dns"})
	s.addPod("kube-system", "coredns-b", "n2", map[string]string{"k8s-app": "kube-dns"})
	s.addPod("kube-system", "etcd-n1", "n1", map[string]string{"component": "etcd", "tier": "control-plane"})
	s.addPod("kube-system", "kube-apiserver-n1", "n1", map[string]string{"component": "kube-apiserver", "tier": "control-plane"})
	s.addPod("local-path-storage", "local-path-provisioner-a", "n1", map[string]string{"app": "local-path-provisioner"})
	s.addPod("onecloud", "ocadm-mysql-0", "n1", map[string]string{"app": "ocadm-mysql"})
	s.Machines = []Machine{{Node: "n1", ControlPlane: true, Units: map[string]string{"kubelet": "active", "containerd": "active"},
		Journals:     map[string][]string{"kubelet": {"I1122 Starting kubelet"}},
		Certificates: []Certificate{{File: "/etc/kubernetes/pki/apiserver.crt", NotAfter: s.Time.Add(300 * 24 * time.Hour)}}}}
	return s
}

func (s *Snapshot) lease(namespace, name string, at time.Time) {
	l := s.leaseOf(namespace, name)
	l.Spec.RenewTime = &metav1.MicroTime{Time: at}
}

// addPod adds a ready pod.
func (s *Snapshot) addPod(namespace, name, node string, labels map[string]string) *corev1.Pod {
	started := metav1.NewTime(s.Time.Add(-time.Hour))
	s.Pods = append(s.Pods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "r.example/x:v1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "r.example/x:v1", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}}},
	})
	return &s.Pods[len(s.Pods)-1]
}

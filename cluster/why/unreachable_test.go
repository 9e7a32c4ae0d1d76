// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

// unreachable makes the API server silent. The snapshot then holds only what ocadm sees as root on a node.
func (s *Snapshot) unreachable(change func(*Machine)) {
	machines := s.Machines
	s.refuse("OCA-4203")
	s.Machines = machines
	s.Machines[0].APIServer = "https://10.0.0.1:6443/readyz refuses connections"
	change(&s.Machines[0])
}

// alone reduces a snapshot to the worker that ocadm ran on.
func (s *Snapshot) alone(code string) *Machine {
	machines := s.Machines
	s.refuse(code)
	s.Machines = machines
	s.Machines[0].ControlPlane = false
	return &s.Machines[0]
}

// What the other static pods log while the API server is down; it is not a cause.
var refusing = []string{`E1122 10:00:00 leaderelection.go:429] "Failed to get lease" err="Get \"https://10.0.0.1:6443/apis\": dial tcp 10.0.0.1:6443: connect: connection refused"`,
	`W1122 10:00:01 reflector.go:561] dial tcp 10.0.0.100:6443: i/o timeout`, `dial tcp: lookup cp.example.net on 10.0.0.53:53: no such host`}

// unreachable returns the provocations of causes for an API server that does not answer.
func unreachable() []provocation {
	static := func(id, pod string, lines ...string) provocation {
		return provocation{id, func(s *Snapshot) {
			s.unreachable(func(m *Machine) {
				m.StaticPods = map[string][]string{"kube-scheduler": refusing}
				m.StaticPods[pod] = append(slices.Clone(m.StaticPods[pod]), lines...)
			})
		}}
	}
	return []provocation{
		static("api-unreachable", "kube-controller-manager", refusing...),
		static("etcd-damaged", "etcd", "panic: crc mismatch in wal"),
		{"etcd-damaged", func(s *Snapshot) { // before its container logs it
			s.unreachable(func(m *Machine) { m.EtcdDatabase = "reading /var/lib/etcd/member/snap/db: invalid database" })
		}},
		static("etcd-no-leader", "kube-apiserver", `{"level":"warn","error":"rpc error: code = Unavailable desc = etcdserver: no leader"}`),
		static("etcd-no-space", "kube-apiserver", "etcdserver: mvcc: database space exceeded"),
		static("certificate-rejected", "kube-apiserver", "transport: authentication handshake failed: tls: x509: certificate has expired or is not yet valid"),
		static("no-space", "etcd", "write /var/lib/etcd/member/wal/1.tmp: no space left on device"),
		static("port-in-use", "kube-apiserver", "failed to create listener: listen tcp 0.0.0.0:6443: bind: address already in use"),
		{"certificate-expired", func(s *Snapshot) {
			s.unreachable(func(m *Machine) { m.Certificates[0].NotAfter = s.Time.Add(-time.Hour) })
		}},
		{"kubelet-stopped", func(s *Snapshot) { s.unreachable(func(m *Machine) { m.Units["kubelet"] = "failed" }) }},
		{"no-kubeconfig", func(s *Snapshot) { s.alone("OCA-4201") }},
		{"kubeconfig-unusable", func(s *Snapshot) { s.alone("OCA-4202") }},
		{"kubelet-stopped", func(s *Snapshot) { s.alone("OCA-4201").Units["containerd"] = "failed" }},
		{"doctor-7102", func(s *Snapshot) { s.alone("OCA-4201").Findings = finding.List{doctor()} }},
	}
}

// A cause of an API server that does not answer has that as its consequence. Damaged data come before the lost majority that they cause.
func TestUnreachableFollows(t *testing.T) {
	s := healthy(t)
	s.unreachable(func(m *Machine) {
		m.StaticPods = map[string][]string{"etcd": {"panic: crc mismatch in wal"}, "kube-apiserver": {"etcdserver: request timed out"}}
	})
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "etcd-damaged" || !slices.ContainsFunc(r.Consequences, func(x Found) bool { return x.ID == "api-unreachable" }) {
		t.Errorf("%+v", r)
	}
}

// The cause on a worker is named without a path from the cloud, which was not queried; that a worker has no kubeconfig is no problem.
// Agents of a control plane are not examined.
func TestWorkerAlone(t *testing.T) {
	s := healthy(t)
	s.alone("OCA-4201").Units["kubelet"] = "failed"
	r, _ := Diagnose(s, "")
	if len(r.Way) > 0 || r.Healthy || len(r.Consequences) > 0 || len(r.Others) != 0 || r.Err() == nil {
		t.Errorf("%+v", r)
	}
	s = healthy(t)
	m := s.alone("OCA-4201")
	m.ControlPlane, m.Findings = true, finding.List{doctor()}
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "no-kubeconfig" || len(r.Others) > 0 {
		t.Errorf("a control plane: %+v", r)
	}
}

// The logs of static pods no longer matter if the API server of their node is ready, or if the cluster could be read.
func TestStaticPodsHaveRecovered(t *testing.T) {
	logged := map[string][]string{"kube-apiserver": {"etcdserver: request timed out"}}
	s := healthy(t)
	s.unreachable(func(m *Machine) { m.StaticPods, m.APIServer = logged, Ready })
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "api-unreachable" {
		t.Errorf("the API server is ready: %+v", r.Cause)
	}
	s = healthy(t)
	seen := *s
	s.refuse("OCA-7002") // the cluster has no cloud
	s.Nodes, s.Pods, s.Machines = seen.Nodes, seen.Pods, seen.Machines
	s.Machines[0].StaticPods = logged
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "no-cloud" {
		t.Errorf("no cloud: %+v", r.Cause)
	}
}

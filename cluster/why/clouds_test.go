// SPDX-License-Identifier: Apache-2.0

package why

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// variant is another healthy cloud, made from the healthy snapshot.
type variant struct {
	name   string
	change func(*Snapshot)
}

// variants differ in shape, and in traces of past problems.
func variants() []variant {
	return slices.Concat(shapes(), lab(), traces())
}

func shapes() []variant {
	return []variant{
		{"three nodes", func(*Snapshot) {}},
		{"one node", func(s *Snapshot) {
			s.Nodes, s.Disks = s.Nodes[:1], s.Disks[:1]
			s.without(func(p *corev1.Pod) bool { return strings.HasSuffix(p.Name, "-n2") || strings.HasSuffix(p.Name, "-n3") })
			for i := range s.Pods {
				s.Pods[i].Spec.NodeName = "n1"
			}
		}},
		{"forty nodes", func(s *Snapshot) {
			for i := 4; i <= 40; i++ {
				n := *s.Nodes[2].DeepCopy()
				n.Name = fmt.Sprintf("n%d", i)
				n.Labels[corev1.LabelHostname] = n.Name
				s.Nodes = append(s.Nodes, n)
				s.lease("kube-node-lease", n.Name, s.Time.Add(-time.Duration(i)*100*time.Millisecond))
				s.addPod("kube-flannel", "kube-flannel-"+n.Name, n.Name, map[string]string{"app": "flannel"})
				s.addPod("kube-system", "kube-proxy-"+n.Name, n.Name, map[string]string{"k8s-app": "kube-proxy"})
			}
		}},
		{"a database server of its own", func(s *Snapshot) { s.without(func(p *corev1.Pod) bool { return p.Labels["app"] == "ocadm-mysql" }) }},
		{"another network plugin", func(s *Snapshot) { s.without(func(p *corev1.Pod) bool { return p.Labels["app"] == "flannel" }) }},
		{"no kube-proxy", func(s *Snapshot) { s.without(func(p *corev1.Pod) bool { return p.Labels["k8s-app"] == "kube-proxy" }) }},
		{"a control plane that others run", func(s *Snapshot) {
			s.without(func(p *corev1.Pod) bool { return p.Labels["tier"] == "control-plane" })
			s.Machines = nil
			s.Leases = slices.DeleteFunc(s.Leases, func(l coordinationv1.Lease) bool { return l.Namespace == "kube-system" })
		}},
		{"seen from elsewhere", func(s *Snapshot) { s.Machines = nil }},
		{"journals of every node", func(s *Snapshot) {
			for _, n := range []string{"n2", "n3"} {
				s.Machines = append(s.Machines, Machine{Node: n, Journals: map[string][]string{
					"kubelet":    {`E1122 10:00:00 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" with CrashLoopBackOff"`},
					"containerd": {`level=error msg="failed to find plugin \"bridge\" in path [/opt/cni/bin]"`},
				}})
			}
		}},
		{"two copies", func(s *Snapshot) {
			for _, p := range slices.Clone(s.Pods) {
				if p.Labels[v1alpha1.LabelComponent] != "" {
					p.Name, p.Spec.NodeName = p.Name+"-2", "n3"
					s.Pods = append(s.Pods, p)
				}
			}
		}},
		{"a foreign taint, labels and conditions", func(s *Snapshot) {
			n := &s.Nodes[2]
			n.Spec.Taints, n.Labels["disk"] = []corev1.Taint{{Key: "disk", Value: "slow", Effect: corev1.TaintEffectPreferNoSchedule}}, "slow"
			for _, c := range []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable} {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse})
			}
		}},
	}
}

// lab returns the clouds of TestCloud (test/e2e), as why found them there.
func lab() []variant {
	return []variant{
		{"a role that no node has", func(s *Snapshot) {
			const says = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are available: " +
				"3 Preemption is not helpful for scheduling."
			s.component("baremetal-agent", v1alpha1.Idle, "NoNodes", "no node has label onecloud.yunion.io/baremetal=enable")
			p := s.addPod(s.Namespace, "default-baremetal-agent-67448f5c56-jzmt4", "", map[string]string{v1alpha1.LabelComponent: "baremetal-agent"})
			p.Spec.Volumes = []corev1.Volume{{Name: "opt", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "default-baremetal-agent"}}}}
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: says}}}
			s.event("Pod", p.Namespace, p.Name, "FailedScheduling", says)
			s.Classes = append(s.Classes, storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path"}})
			s.Claims = append(s.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "default-baremetal-agent",
				CreationTimestamp: metav1.NewTime(s.Time.Add(-time.Hour))}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("local-path")},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}})
		}},
		{"a control plane with the host.conf of an agent", func(s *Snapshot) {
			s.Machines[0].Findings = finding.List{doctor(), finding.New("OCA-7104", "The executor does not run programs", "no such file or directory", "ls"),
				finding.Warn("OCA-1102", "Programs that a compute node uses are missing", "qemu-img: disks and images need it", "apt-get install -y qemu-utils")}
		}},
		{"a role that was taken back", func(s *Snapshot) {
			s.Nodes[0].Labels[v1alpha1.NodeRolePrefix+"host"] = "disable"
			s.Machines[0].Findings = finding.List{doctor()}
		}},
		{"a compute node without a time service", func(s *Snapshot) {
			s.Nodes[0].Labels[v1alpha1.NodeRolePrefix+"host"] = v1alpha1.Enable
			s.Machines[0].Findings = finding.List{finding.Warn(unsynchronised, "The clock is not synchronised", "certificates and tokens are refused", "timedatectl set-ntp true")}
		}},
	}
}

func traces() []variant {
	return []variant{
		{"pods of schedules that are done", func(s *Snapshot) {
			p := s.addPod(s.Namespace, "default-backup-1-x", "n2", map[string]string{v1alpha1.LabelComponent: "backup"})
			p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}}
		}},
		{"a pod of a schedule that failed, before another one succeeded", func(s *Snapshot) {
			p := s.addPod(s.Namespace, "default-backup-2-x", "n2", map[string]string{v1alpha1.LabelComponent: "backup"})
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 70, Reason: "Error", FinishedAt: metav1.NewTime(s.Time.Add(-time.Hour / 2))}}}}}
			s.Logs = append(s.Logs, Log{Namespace: s.Namespace, Pod: p.Name, Container: "main", Lines: []string{"Error 1045 (28000): Access denied for user 'root'@'10.0.0.1'"}})
		}},
		{"warnings about pods that are ready", func(s *Snapshot) {
			for _, p := range s.Pods {
				s.event("Pod", p.Namespace, p.Name, "Unhealthy", "Readiness probe failed: connection refused")
				s.event("Pod", p.Namespace, p.Name, "FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.")
			}
		}},
		{"warnings about pods that are gone", func(s *Snapshot) {
			s.event("Pod", s.Namespace, "default-region-gone", "FailedCreatePodSandBox", "no IP addresses available in range set")
			s.event("Node", "", "n2", "NodeNotReady", "Node n2 status is now: NodeNotReady")
		}},
		{"restarts of last week", func(s *Snapshot) {
			for i := range s.Pods {
				for j := range s.Pods[i].Status.ContainerStatuses {
					c := &s.Pods[i].Status.ContainerStatuses[j]
					c.RestartCount, c.LastTerminationState.Terminated = 12, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "panic: everything",
						FinishedAt: metav1.NewTime(s.Time.Add(-7 * 24 * time.Hour))}
				}
			}
		}},
		{"errors in the logs of pods that are ready", func(s *Snapshot) {
			for _, p := range s.Pods {
				s.Logs = append(s.Logs, Log{Namespace: p.Namespace, Pod: p.Name, Container: "main", Lines: []string{
					"dial tcp 10.96.0.7:30500: connect: connection refused", "Error 1045 (28000): Access denied for user 'region'@'10.0.0.1'",
					"etcdserver: request timed out", "x509: certificate has expired or is not yet valid", "no space left on device"}})
			}
		}},
		{"an update that went back, and one that did not", func(s *Snapshot) {
			for i, phase := range []v1alpha1.OperationPhase{v1alpha1.OperationFailed, v1alpha1.OperationReverted, v1alpha1.OperationSucceeded} {
				s.operation(phase)
				s.Operations[i].CreationTimestamp = metav1.NewTime(s.Time.Add(time.Duration(i-9) * time.Hour))
			}
		}},
		{"pods that drain", func(s *Snapshot) {
			p := *s.named("default-region").DeepCopy()
			p.Name, p.DeletionTimestamp = p.Name+"-old", &metav1.Time{Time: s.Time.Add(20 * time.Second)}
			s.Pods = append(s.Pods, p)
		}},
		{"disks and clocks within their limits", func(s *Snapshot) {
			for i := range s.Disks {
				s.Disks[i].Free, s.Disks[i].InodesFree = 16, 6
			}
			// 86 % of it is used, which is a lot for kubelets with other settings.
			s.Disks[0].Capacity, s.Disks[0].Free, s.Disks[0].RemovesImages, s.Disks[0].EvictsPods = 2<<40, 280<<30, 102<<30, 1<<30
			for i := range s.Leases {
				s.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: s.Time.Add(time.Duration(i%3-1) * 9 * time.Second)}
			}
		}},
		{"a newer operator, no backup, certificates of its own", func(s *Snapshot) {
			for kind, is := range map[string]metav1.ConditionStatus{v1alpha1.ConditionUpdateAvailable: metav1.ConditionTrue, v1alpha1.ConditionBackupProven: metav1.ConditionUnknown} {
				s.Cloud.Status.Conditions = slices.DeleteFunc(s.Cloud.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
				s.Cloud.Status.Conditions = append(s.Cloud.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: "Test", Message: "web would change"})
			}
			s.Cloud.Status.Certificates = v1alpha1.CertificatesStatus{NotAfter: metav1.NewTime(s.Time.Add(90 * 24 * time.Hour)), Supplied: true}
		}},
		{"claims that are bound, and a volume that nobody claims", func(s *Snapshot) {
			s.claim("data", corev1.ClaimBound, new("local-path"))
			s.Volumes = append(s.Volumes, corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-free"}})
		}},
	}
}

func (s *Snapshot) without(is func(*corev1.Pod) bool) {
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return is(&p) })
}

// TestHealthyClouds checks that nothing is reported for healthy clouds.
func TestHealthyClouds(t *testing.T) {
	const least = 20
	all := variants()
	if len(all) < least {
		t.Fatalf("%d clouds, want %d", len(all), least)
	}
	for _, v := range all {
		s := healthy(t)
		v.change(s)
		for _, name := range append(s.Names(), "") {
			if r, ok := Diagnose(s, name); !ok || !r.Healthy || r.Cause != nil || len(r.Others)+len(r.Consequences) > 0 || r.Err() != nil {
				raw, _ := json.MarshalIndent(r, "", " ")
				t.Errorf("%s, asked about %q: %s", v.name, name, raw)
			}
		}
	}
}

// TestFirstInEveryCloud provokes every cause in every second suitable cloud, and counts how often the injected cause is named first.
func TestFirstInEveryCloud(t *testing.T) {
	const goal = 95 // percent
	asked, first := 0, 0
	for i, v := range variants() {
		for j, c := range provocations() {
			if (i+j)%2 > 0 {
				continue
			}
			s := healthy(t)
			v.change(s)
			if !changes(s, c.change) {
				continue
			}
			asked++
			if r, _ := Diagnose(s, ""); r.Cause != nil && r.Cause.ID == c.id {
				first++
			} else {
				raw, _ := json.Marshal(r.Cause)
				t.Logf("%s in %q: first is %s", c.id, v.name, raw)
			}
		}
	}
	t.Logf("%d of %d named first", first, asked)
	if least := len(provocations()) * 8; asked < least {
		t.Errorf("%d pairs of cloud and cause, want %d", asked, least)
	}
	if first*100 < asked*goal {
		t.Errorf("%d of %d causes were named first, want %d %%", first, asked, goal)
	}
}

// changes reports whether a cloud has what a provocation changes.
func changes(s *Snapshot, change func(*Snapshot)) (ok bool) {
	defer func() { ok = recover() == nil }()
	change(s)
	return true
}

// doctor returns a finding of "ocadm node doctor".
func doctor() finding.Finding {
	return finding.New("OCA-7102", "yunion-executor.service does not run", "it failed", "systemctl start it")
}

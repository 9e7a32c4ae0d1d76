// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

const day = 24 * time.Hour

type provocation struct {
	id     string
	change func(*Snapshot)
}

// provocations has one entry for each cause.
func provocations() []provocation {
	return slices.Concat(addressed(), unreachable(), others(), inTheCloud())
}

func others() []provocation {
	return []provocation{
		{"api-unreachable", func(s *Snapshot) { s.refuse("OCA-4203") }},
		{"api-credentials", func(s *Snapshot) { s.refuse("OCA-4204") }},
		{"api-forbidden", func(s *Snapshot) { s.refuse("OCA-4205") }},
		{"definition-missing", func(s *Snapshot) { s.refuse("OCA-7005") }},
		{"no-cloud", func(s *Snapshot) { s.refuse("OCA-7002") }},
		{"certificate-expired", func(s *Snapshot) { s.Machines[0].Certificates[0].NotAfter = s.Time.Add(-day) }},
		{"certificate-expiring", func(s *Snapshot) { s.Machines[0].Certificates[0].NotAfter = s.Time.Add(10 * day) }},
		{"certificate-rejected", func(s *Snapshot) {
			s.ready("n1", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
			s.machine("kubelet", "active", `E1122 10:00:00.1 7 run.go:72] "command failed" err="x509: certificate has expired or is not yet valid"`)
		}},
		{"etcd-no-space", func(s *Snapshot) {
			s.component("glance", v1alpha1.Degraded, "NotApplied", "applying Deployment: etcdserver: mvcc: database space exceeded")
		}},
		{"etcd-no-leader", func(s *Snapshot) {
			s.logs("kube-apiserver-n1", `E1122 status.go:71] "etcdserver: request timed out"`)
		}},
		{"etcd-damaged", func(s *Snapshot) { s.logs("etcd-n1", "panic: crc mismatch in wal") }},
		{"control-plane-pod", func(s *Snapshot) { s.ill("kube-apiserver-n1", "", "") }},
		{"controllers-silent", func(s *Snapshot) { s.lease("kube-system", "kube-scheduler", s.Time.Add(-time.Hour)) }},
		{"webhook-down", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, "NotApplied", `Internal error occurred: failed calling webhook "check.example.com": Post "https://check": connection refused`)
		}},
		{"webhook-denies", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, "NotApplied", `admission webhook "check.example.com" denied the request: no`)
		}},
		{"pod-security", func(s *Snapshot) {
			s.component("glance", v1alpha1.Degraded, "RolloutStalled", `0 of 1 pods ready; pods "default-glance" is forbidden: violates PodSecurity "restricted:latest": host namespaces`)
		}},
		{"quota", func(s *Snapshot) {
			s.component("glance", v1alpha1.Degraded, "RolloutStalled", `0 of 1 pods ready; pods "x" is forbidden: exceeded quota: tight, requested: pods=1`)
		}},
		{"quota", func(s *Snapshot) {
			s.component("glance", v1alpha1.Degraded, "RolloutStalled", `0 of 1 pods ready; pods "x" is forbidden: failed quota: tight: must specify limits.cpu for: glance`)
		}},
		{"limit-range", func(s *Snapshot) {
			s.component("glance", v1alpha1.Degraded, "RolloutStalled", `0 of 1 pods ready; pods "x" is forbidden: maximum memory usage per Container is 64Mi`)
		}},
		{"node-lost", func(s *Snapshot) {
			s.ready("n2", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
		}},
		{"node-no-network", func(s *Snapshot) {
			s.ready("n2", corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized")
		}},
		{"node-no-runtime", func(s *Snapshot) {
			s.ready("n2", corev1.ConditionFalse, "KubeletNotReady", "container runtime is down")
		}},
		{"node-not-ready", func(s *Snapshot) { s.ready("n2", corev1.ConditionFalse, "KubeletNotReady", "something new") }},
		{"node-disk-pressure", func(s *Snapshot) { s.nodeCondition(corev1.NodeDiskPressure) }},
		{"node-memory-pressure", func(s *Snapshot) { s.nodeCondition(corev1.NodeMemoryPressure) }},
		{"node-pid-pressure", func(s *Snapshot) { s.nodeCondition(corev1.NodePIDPressure) }},
		{"node-network-unavailable", func(s *Snapshot) { s.nodeCondition(corev1.NodeNetworkUnavailable) }},
		{"disk-full", func(s *Snapshot) { s.Disks[0].Free = 9 }},
		{"disk-nearly-full", func(s *Snapshot) { s.Disks[0].Free = 14 }},
		{"inodes-full", func(s *Snapshot) { s.Disks[0].InodesFree = 4 }},
		{"clock", func(s *Snapshot) { s.lease("kube-node-lease", "n2", s.Time.Add(5*time.Minute)) }},
		{"machine-id-twice", func(s *Snapshot) {
			s.Nodes[0].Status.NodeInfo.MachineID, s.Nodes[1].Status.NodeInfo.MachineID = "3f1c", "3f1c"
		}},
		{"node-cordoned", func(s *Snapshot) { s.Nodes[1].Spec.Unschedulable = true }},
		{"pod-stuck", func(s *Snapshot) {
			// The node is no longer in the cluster: nothing stops what it ran.
			p := s.named("default-glance")
			p.Spec.NodeName, p.DeletionTimestamp = "n9", &metav1.Time{Time: s.Time.Add(-10 * time.Minute)}
		}},
		{"pod-evicted", func(s *Snapshot) {
			p := s.addPod("onecloud", "default-glance-old", "n2", map[string]string{"app": "glance"})
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."}
		}},
		{"kubelet-swap", func(s *Snapshot) {
			s.machine("kubelet", "activating", `err="failed to run Kubelet: running with swap on is not supported"`)
		}},
		{"kubelet-stopped", func(s *Snapshot) { s.machine("kubelet", "failed", "exited") }},
		{"dns-loop", func(s *Snapshot) {
			s.logs("coredns-a", `[FATAL] plugin/loop: Loop (127.0.0.1:41467 -> :53) detected for zone "."`)
			s.ill("coredns-b", "CrashLoopBackOff", "back-off")
		}},
		{"dns-down", func(s *Snapshot) {
			s.ill("coredns-a", "", "")
			s.ill("coredns-b", "", "")
			s.logs("default-region", "dial tcp: lookup default-keystone on 10.96.0.10:53: i/o timeout")
		}},
		{"dns-missing", func(s *Snapshot) {
			d := s.Deployments[0]
			d.Namespace, d.Name, d.Spec.Replicas = "kube-system", "coredns", new(int32(0))
			s.Deployments = append(s.Deployments, d)
		}},
		{"name-unresolved", func(s *Snapshot) {
			s.logs("default-region", "dial tcp: lookup db.example.invalid on 10.96.0.10:53: no such host")
		}},
		{"flannel-subnet", func(s *Snapshot) {
			s.podEvent("default-region", "FailedCreatePodSandBox", "open /run/flannel/subnet.env: no such file or directory")
		}},
		{"flannel-interface", func(s *Snapshot) {
			s.logs("kube-flannel-n2", "Failed to find any valid interface to use: failed to get default interface: Unable to find default route")
		}},
		{"tunnel", func(s *Snapshot) {
			s.Nodes[1].Spec.PodCIDR = "10.40.1.0/24"
			s.Machines = append(s.Machines, Machine{Node: s.Nodes[0].Name, Tunnels: []Tunnel{{To: "10.40.1.0", Problem: "no connection to 10.40.1.0:10250 in 3s"}, {To: "10.40.7.0"}}})
		}},
		{"flannel-no-cidr", func(s *Snapshot) {
			s.logs("kube-flannel-n2", `Error registering network: failed to acquire lease: node "n2" pod cidr not assigned`)
		}},
		{"pod-addresses", func(s *Snapshot) {
			s.podEvent("default-region", "FailedCreatePodSandBox", "plugin type=\"host-local\": failed to allocate for range 0: no IP addresses available in range set")
		}},
		{"cni-plugin", func(s *Snapshot) {
			s.podEvent("default-region", "FailedCreatePodSandBox", `failed to find plugin "bridge" in path [/opt/cni/bin]`)
		}},
		{"netfilter", func(s *Snapshot) {
			s.logs("kube-flannel-n2", "Failed to check br_netfilter: stat /proc/sys/net/bridge/bridge-nf-call-iptables: no such file or directory")
		}},
		{"sandbox", func(s *Snapshot) {
			s.podEvent("default-region", "FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error")
		}},
		{"service-unreachable", func(s *Snapshot) { s.logs("default-region", "dial tcp 10.96.3.4:30500: i/o timeout") }},
		{"proxy-down", func(s *Snapshot) { s.ill("kube-proxy-n2", "", "") }},
		{"flannel-down", func(s *Snapshot) { s.ill("kube-flannel-n2", "", "") }},
		{"claim-no-class", func(s *Snapshot) { s.claim("data", corev1.ClaimPending, new("fast")) }},
		{"claim-lost", func(s *Snapshot) { s.claim("data", corev1.ClaimLost, new("local-path")) }},
		{"volume-node-gone", func(s *Snapshot) {
			s.Volumes = append(s.Volumes, corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Namespace: s.Namespace, Name: "data"},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n9"}}}}}}}}})
			s.claim("data", corev1.ClaimBound, new("local-path"))
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.")
		}},
		{"provisioning-failed", func(s *Snapshot) {
			s.claim("data", corev1.ClaimPending, new("local-path"))
			s.event("PersistentVolumeClaim", s.Namespace, "data", "ProvisioningFailed", "failed to provision volume: no path")
		}},
		{"claim-pending", func(s *Snapshot) { s.claim("data", corev1.ClaimPending, new("local-path")) }},
		{"mount-failed", func(s *Snapshot) {
			s.podEvent("default-glance", "FailedMount", `MountVolume.SetUp failed for volume "pvc-1": mount failed: exit status 32`)
		}},
		{"volume-directory-gone", func(s *Snapshot) {
			s.podEvent("default-glance", "FailedMount",
				`MountVolume.NewMounter initialization failed for volume "pvc-1" : path "/opt/local-path-provisioner/pvc-1_onecloud_default-glance" does not exist`)
		}},
		{"volume-read-only", func(s *Snapshot) { s.logs("default-glance", "open /opt/x: read-only file system") }},
		{"no-space", func(s *Snapshot) { s.logs("default-glance", "write /opt/x: no space left on device") }},
		{"volume-permission", func(s *Snapshot) { s.logs("default-glance", "mkdir /opt/cloud: permission denied") }},
		{"database-unreachable", func(s *Snapshot) {
			s.effect("region", "database/region: connecting to 10.0.0.5:3306: dial tcp 10.0.0.5:3306: connect: connection refused")
		}},
		{"database-unreachable", func(s *Snapshot) {
			s.effect("region", "database/region: connecting on 10.0.0.5:3306: WSREP has not yet prepared node for application use (1047)")
		}},
		{"database-password", func(s *Snapshot) {
			s.effect("region", "database/region: Error 1045 (28000): Access denied for user 'root'@'10.0.0.1' (using password: YES)")
		}},
		{"database-account", func(s *Snapshot) {
			s.logs("default-region", "[fatal] Error 1045 (28000): Access denied for user 'yunioncloud'@'10.0.0.1'")
		}},
		{"database-host-refused", func(s *Snapshot) {
			s.effect("region", "database/region: Error 1130: Host '10.0.0.1' is not allowed to connect to this MariaDB server")
		}},
		{"database-host-blocked", func(s *Snapshot) {
			s.effect("region", "database/region: Error 1129: Host is blocked because of many connection errors")
		}},
		{"database-connections", func(s *Snapshot) { s.logs("default-region", "Error 1040 (08004): Too many connections") }},
		{"database-read-only", func(s *Snapshot) {
			s.effect("region", "database/region: Error 1290 (HY000): The MariaDB server is running with the --read-only option")
		}},
		{"database-tls", func(s *Snapshot) {
			s.effect("region", "database/region: x509: certificate signed by unknown authority")
		}},
		{"database-secret", func(s *Snapshot) { s.effect("region", `database/region: secrets "ocadm-database" not found`) }},
		{"database-rights", func(s *Snapshot) {
			s.effect("region", "database/region: Error 1044 (42000): Access denied for user 'ocadm'@'%' to database 'yunioncloud'")
		}},
		{"database-owned", func(s *Snapshot) {
			s.effect("region", `database/region: database or account "yunioncloud" exists on the server, but this cloud did not create it`)
		}},
		{"database-schema", func(s *Snapshot) { s.logs("default-region", "[fatal] database schema not in sync!") }},
		{"database-gone", func(s *Snapshot) { s.logs("default-region", "Error 1049 (42000): Unknown database 'yunioncloud'") }},
		{"database-table", func(s *Snapshot) { s.logs("ocadm-mysql-0", "[ERROR] InnoDB: Database page corruption on disk") }},
		{"database-full", func(s *Snapshot) { s.logs("default-region", "Error 1114 (HY000): The table 'opslog_tbl' is full") }},
		{"database-down", func(s *Snapshot) {
			s.ill("ocadm-mysql-0", "", "")
			s.effect("region", "database/region: dial tcp 10.0.0.5:3306: connect: connection refused")
		}},
		{"database-not-redundant", func(s *Snapshot) {
			s.Cloud.Status.Conditions = append(s.Cloud.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDatabaseRedundant, Status: "False", Reason: "NotInSync",
				Message: "the primary ocadm-mysql-0 on node a continues alone: the replica is not in sync"})
		}},
		{"clickhouse-unreachable", func(s *Snapshot) {
			s.effect("region", "clickhouse/region: connecting on ClickHouse: connection refused")
		}},
		{"identity-password", func(s *Snapshot) {
			s.effect("region", `account/region: logging in as "sysadmin": 401 Unauthorized`)
		}},
		{"identity-policy", func(s *Snapshot) {
			s.component("region", v1alpha1.Waiting, "EffectPending", "account/region waits for the identity service to see its policy")
		}},
		{"identity-unreachable", func(s *Snapshot) {
			s.effect("region", `account/region: Post "https://10.0.0.1:30500/v3/auth/tokens": connection refused`)
		}},
		{"identity-certificate", func(s *Snapshot) {
			s.effect("region", `account/region: Post "https://10.0.0.1:30500/v3": x509: certificate signed by unknown authority`)
		}},
		{"account-password", func(s *Snapshot) { s.logs("default-region", `{"error":{"class":"WrongPassword","code":401}}`) }},
		{"catalog-region", func(s *Snapshot) {
			s.logs("default-region", "No valid internal endpoints for identity in region region1")
		}},
		{"image-not-found", func(s *Snapshot) { s.pull(`failed to resolve reference "r.example/x:v1": not found`) }},
		{"image-denied", func(s *Snapshot) {
			s.pull("pull access denied, repository does not exist or may require authorization")
		}},
		{"registry-certificate", func(s *Snapshot) {
			s.pull("tls: failed to verify certificate: x509: certificate signed by unknown authority")
		}},
		{"registry-limit", func(s *Snapshot) { s.pull("unexpected status: 429 Too Many Requests") }},
		{"registry-unreachable", func(s *Snapshot) { s.pull("dial tcp 192.0.2.1:443: i/o timeout") }},
		{"image-name", func(s *Snapshot) { s.ill("default-glance", "InvalidImageName", "couldn't parse image name") }},
		{"image-never", func(s *Snapshot) {
			s.ill("default-glance", "ErrImageNeverPull", "image is not present with pull policy of Never")
		}},
		{"image-platform", func(s *Snapshot) { s.logs("default-glance", "exec /opt/yunion/bin/glance: exec format error") }},
		{"no-node-label", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")
		}},
		{"no-cpu", func(s *Snapshot) { s.unschedulable("default-glance", "0/3 nodes are available: 3 Insufficient cpu.") }},
		{"no-memory", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 Insufficient memory.")
		}},
		{"too-many-pods", func(s *Snapshot) { s.unschedulable("default-glance", "0/3 nodes are available: 3 Too many pods.") }},
		{"no-cpu", func(s *Snapshot) {
			s.rejected("OutOfcpu", "Node didn't have enough resource: cpu, requested: 100, used: 3950, capacity: 4000")
		}},
		{"no-memory", func(s *Snapshot) {
			s.rejected("OutOfmemory", "Node didn't have enough resource: memory, requested: 268435456, used: 8000000000, capacity: 8100000000")
		}},
		{"too-many-pods", func(s *Snapshot) {
			s.rejected("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110")
		}},
		{"no-node-label", func(s *Snapshot) {
			s.rejected("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
		}},
		{"port-taken", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.")
		}},
		{"volume-elsewhere", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) had volume node affinity conflict.")
		}},
		{"claim-unbound", func(s *Snapshot) {
			s.unschedulable("default-glance", `0/3 nodes are available: persistentvolumeclaim "data" not found.`)
		}},
		{"all-cordoned", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) were unschedulable.")
		}},
		{"tainted", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) had untolerated taint {disk: slow}.")
		}},
		{"spread", func(s *Snapshot) {
			s.unschedulable("default-glance", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.")
		}},
		{"out-of-memory", func(s *Snapshot) {
			p := s.ill("default-glance", "CrashLoopBackOff", "back-off")
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
		}},
		{"missing-object", func(s *Snapshot) {
			s.ill("default-glance", "CreateContainerConfigError", `secret "default-glance-config" not found`)
		}},
		{"missing-key", func(s *Snapshot) {
			s.ill("default-glance", "CreateContainerConfigError", "couldn't find key password in Secret onecloud/default-glance")
		}},
		{"missing-key", func(s *Snapshot) {
			s.podEvent("default-glance", "FailedMount", `MountVolume.SetUp failed for volume "certs" : references non-existent secret key: service.crt`)
		}},
		{"missing-directory", func(s *Snapshot) {
			s.podEvent("default-glance", "FailedMount", `MountVolume.SetUp failed for volume "x" : hostPath type check failed: /opt/cloud is not a directory`)
		}},
		{"program-missing", func(s *Snapshot) {
			s.ill("default-glance", "RunContainerError", `exec: "/opt/yunion/bin/glance": stat /opt/yunion/bin/glance: no such file or directory`)
		}},
		{"program-missing", func(s *Snapshot) {
			s.startError("default-glance", `OCI runtime create failed: runc create failed: exec: "/bin/glance": stat /bin/glance: no such file or directory`)
		}},
		{"runtime-refused", func(s *Snapshot) {
			s.startError("default-glance", "OCI runtime create failed: runc create failed: error setting cgroup config for procHooks process: unable to freeze")
		}},
		{"probe-failed", func(s *Snapshot) {
			s.podEvent("default-glance", "Unhealthy", "Liveness probe failed: context deadline exceeded")
		}},
		{"port-in-use", func(s *Snapshot) { s.logs("default-glance", "listen tcp :30292: bind: address already in use") }},
		{"option-unknown", func(s *Snapshot) { s.logs("default-glance", "[fatal] Unknown optional argument no-such-option") }},
		{"file-missing", func(s *Snapshot) {
			s.logs("default-glance", "open /etc/yunion/pki/service.key: no such file or directory")
		}},
		{"api-token-missing", func(s *Snapshot) {
			s.logs("default-glance", "open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory")
		}},
		{"service-refused", func(s *Snapshot) { s.logs("default-glance", "dial tcp 10.96.0.7:30500: connect: connection refused") }},
		{"panic", func(s *Snapshot) { s.logs("default-glance", "panic: assignment to entry in nil map") }},
		{"crash-loop", func(s *Snapshot) { s.logs("default-glance", "bye") }},
		{"never-ready", func(s *Snapshot) {
			p := s.ill("default-glance", "", "")
			p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Time.Add(-time.Hour))}
		}},
	}
}

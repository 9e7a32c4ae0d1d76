// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// machinesTest tests machines with SSH that play ocadm: join creates a Node, reset does nothing.
type machinesTest struct {
	*env.Env
	tb testing.TB
	// jobs runs the pods of Jobs.
	jobs    *env.JobPods
	private []byte
	public  gossh.PublicKey
}

func newMachinesTest(t *testing.T) *machinesTest {
	t.Helper()
	f := &machinesTest{tb: t, Env: env.New(t, env.Options{Jobs: true, Collect: true})}
	f.private, f.public = sshserver.NewKey(t)
	f.Joinable(f.private)
	require.NoError(t, f.Client.Create(t.Context(), f.CloudAt("127.0.0.1", 1)))
	f.jobs = f.StartOwnJobPods()
	return f
}

// operate starts an operator that knows its image, as one in a pod does.
func (f *machinesTest) operate() {
	f.Helper()
	f.StartOperator(func(l *env.Launch) { l.Options.Image = "registry.example.org/ocadm:v0" })
}

// machine creates a machine for a server.
func (f *machinesTest) machine(name string, s *standIn, change ...func(*v1alpha1.OnecloudMachine)) *v1alpha1.OnecloudMachine {
	f.Helper()
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.Cloud = cloud
	m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: "127.0.0.1", Port: int32(s.Port()), CredentialsSecretName: env.LoginSecret}
	for _, c := range change {
		c(m)
	}
	require.NoError(f, f.Client.Create(f.Context(), m))
	f.forget(name)
	return m
}

// forget deletes a Node at the end of the test, because later tests look at all Nodes.
func (f *machinesTest) forget(name string) {
	f.Cleanup(func() {
		err := f.Client.Delete(context.WithoutCancel(f.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreNotFound(err) != nil {
			f.Error(err)
		}
	})
}

func (f *machinesTest) until(name string, is func(*v1alpha1.OnecloudMachine) bool) *v1alpha1.OnecloudMachine {
	f.Helper()
	var last v1alpha1.OnecloudMachine
	f.Until(&v1alpha1.OnecloudMachine{}, name, func(object client.Object) (bool, string) {
		m, there := kube.As[v1alpha1.OnecloudMachine](object)
		if !there {
			return false, "it does not exist"
		}
		last = *m.DeepCopy()
		return is(m), fmt.Sprintf("%s: %s; %+v", m.Status.Phase, m.Status.Message, m.Status)
	})
	return &last
}

func in(phase v1alpha1.MachinePhase) func(*v1alpha1.OnecloudMachine) bool {
	return func(m *v1alpha1.OnecloudMachine) bool { return m.Status.Phase == phase }
}

// TestMachines tests the life of machines: join, taints and ID of the Node, immutable fields, a duplicate, removal.
func TestMachines(t *testing.T) {
	f := newMachinesTest(t)
	s := f.server()
	from := f.Mark()
	f.operate()
	f.machine("worker-1", s, func(m *v1alpha1.OnecloudMachine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"}
		m.Spec.Taints = []v1alpha1.MachineTaint{{Key: "example.org/new", Effect: corev1.TaintEffectNoSchedule}}
		m.Spec.Labels = map[string]string{"example.org/rack": "r1"}
	})
	f.clusterAPI("worker-1")
	f.EditObject(&v1alpha1.OnecloudMachine{}, "worker-1", `{"metadata":{"annotations":{"onecloud.yunion.io/paused":null}}}`)
	m := f.until("worker-1", in(v1alpha1.MachineRunning))
	if !m.Status.Initialization.Provisioned || !m.Status.Initialization.DataSecretCreated {
		t.Errorf("%+v", m.Status.Initialization)
	}
	for _, c := range []string{"InfrastructureReady", "BootstrapDataReady", "HostReachable", "PrecheckPassed", "Joined", "NodeReady", "AgentsReady"} {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, c) {
			t.Errorf("%s: %+v", c, meta.FindStatusCondition(m.Status.Conditions, c))
		}
	}
	if m.Status.HostKey != s.HostKey() || m.Status.NodeRef == nil || m.Status.NodeRef.Name != "worker-1" || m.Status.Addresses[0].Address != "192.0.2.7" ||
		m.Status.ProviderID != "ocadm://onecloud/worker-1" || !slices.Contains(m.Finalizers, v1alpha1.MachineFinalizer) || len(m.OwnerReferences) != 1 {
		t.Errorf("%+v", m)
	}
	n := &corev1.Node{}
	f.Get(n, "worker-1")
	if n.Spec.ProviderID != "ocadm://onecloud/worker-1" || !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.org/new" }) {
		t.Errorf("%+v", n.Spec)
	}
	f.UntilGone(&corev1.Secret{}, "worker-1-bootstrap") // it was used
	if got := s.commands(); !slices.Equal(got, []string{"precheck", "join"}) {
		t.Errorf("ran %q", got)
	}
	for _, patch := range []string{
		`{"spec":{"infrastructure":{"ssh":{"address":"127.0.0.2"}}}}`, `{"spec":{"roles":["compute"]}}`, `{"spec":{"cloud":"other"}}`,
		`{"spec":{"infrastructure":{"ssh":{"port":1}}}}`, `{"spec":{"infrastructure":{"ssh":{"jumpHost":{"address":"a","credentialsSecretName":"b"}}}}}`, `{"spec":{"providerID":"other://id"}}`, `{"spec":{"providerID":null}}`,
	} {
		err := f.Client.Patch(t.Context(), m.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %v", patch, err)
		}
	}
	// The machine was reinstalled: its key can be corrected.
	f.EditObject(&v1alpha1.OnecloudMachine{}, "worker-1", `{"spec":{"infrastructure":{"ssh":{"hostKey":"`+s.HostKey()+`","jumpHost":null}}}}`)
	if place := fmt.Sprintf("127.0.0.1:%d", s.Port()); m.Status.HostKeyAddress != place || m.Status.JoinBegun != place {
		t.Errorf("the key is of %q, the join began at %q", m.Status.HostKeyAddress, m.Status.JoinBegun)
	}
	f.machine("worker-2", s)
	if m := f.until("worker-2", in(v1alpha1.MachineFailed)); m.Status.FailureReason != "DuplicateAddress" || !strings.Contains(m.Status.FailureMessage, "worker-1") {
		t.Errorf("%+v", m.Status)
	}
	f.pod("worker-1")
	f.EditObject(&v1alpha1.OnecloudMachine{}, "worker-1", asksFor(v1alpha1.RequestDeleting))
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "worker-1")
	f.UntilGone(&corev1.Node{}, "worker-1")
	f.until("worker-2", in(v1alpha1.MachineRunning)) // its address is unique now
	if got := s.commands(); !slices.Equal(got, []string{"precheck", "join", "", "precheck", "join"}) {
		t.Errorf("ran %q", got)
	}
	f.StopOperator()
	f.machineRights(from)
}

// clusterAPI checks a waiting machine: its bootstrap data follow Cluster API, and its ID is in its spec before it joins.
func (f *machinesTest) clusterAPI(name string) {
	f.Helper()
	m := f.until(name, func(m *v1alpha1.OnecloudMachine) bool { return m.Status.Initialization.DataSecretCreated })
	if m.Spec.ProviderID != "ocadm://onecloud/"+name || m.Status.DataSecretName != name+"-bootstrap" || m.Status.Initialization.Provisioned || m.Status.NodeRef != nil {
		f.Errorf("%+v\n%+v", m.Spec, m.Status)
	}
	var data corev1.Secret
	f.Get(&data, m.Status.DataSecretName)
	if !metav1.IsControlledBy(&data, m) || data.Labels[v1alpha1.LabelClusterName] != cloud || len(data.Data["value"]) == 0 || string(data.Data["format"]) != "cloud-config" {
		f.Errorf("%v %v", data.Labels, data.OwnerReferences)
	}
}

// pod creates a pod on a node, to be evicted. Only the eviction ends it, because no kubelet runs.
func (f *machinesTest) pod(node string) {
	f.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "on-" + node},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	f.Create(p)
}

// machineRights compares the permissions that only machines need with those that were used.
func (f *machinesTest) machineRights(from harness.Mark) {
	f.Helper()
	used := f.Used(f.Requests(from, harness.Filter{User: env.OperatorUser, Watches: true, Leases: true}))
	granted := f.Granted()
	for u, q := range used {
		if !granted[u] {
			f.Errorf("used and not granted: %s (%s)", u, q)
		}
	}
	for g := range granted { // TestMachineJobs deletes a Job, and reads a machine that is not in the cache yet
		if env.NotOfClouds(g) && g != "create pods" && g != "delete batch/jobs" && g != "get onecloud.yunion.io/onecloudmachines" && used[g] == "" && !strings.HasPrefix(g, "list ") {
			f.Errorf("granted for machines and never used: %s", g)
		}
	}
	for _, account := range []string{"onecloud-machine-worker", "onecloud-machine-remover"} {
		used := f.Used(f.Requests(from, harness.Filter{User: "system:serviceaccount:" + namespace + ":" + account, Watches: true}))
		granted := f.GrantedTo(account, func(rule rbacv1.PolicyRule) bool {
			return account == "onecloud-machine-remover" && !slices.Contains(rule.Resources, "secrets")
		})
		for u, q := range used {
			if !granted[u] {
				f.Errorf("used by %s and not granted: %s (%s)", account, u, q)
			}
		}
		for g := range granted { // an operation that pauses itself is patched; a second pod reads the log of the first, and lists when its watch ends
			if used[g] == "" && g != "patch onecloud.yunion.io/onecloudoperations" && g != "get configmaps" && !strings.HasPrefix(g, "list ") {
				f.Errorf("granted to %s and never used: %s", account, g)
			}
		}
		if len(used) < 6 {
			f.Errorf("%s used only %d permissions", account, len(used))
		}
	}
}

// TestBadMachines checks that a machine's faults are reported, that nothing is changed on it, and that it recovers after they are corrected.
func TestBadMachines(t *testing.T) {
	f := newMachinesTest(t)
	f.operate()
	_, other := sshserver.NewKey(t)
	wrongKey := f.server(func(s *standIn) { s.Keys = []gossh.PublicKey{other} })
	noSudo := f.server()
	checks := f.server(func(s *standIn) {
		s.findings = `{"code":"OCA-1004","severity":"error","what":"The machine is a Kubernetes node that ocadm did not set up","cause":"kubelet.conf","remedy":"reset it"}`
	})
	late := f.server(func(s *standIn) { s.offset = -time.Hour })
	changed := f.server()
	broken := f.server(func(s *standIn) { s.broken = 1 })
	first := changed.HostKey()
	changed.Reinstall(t)
	f.machine("wrong-key", wrongKey)
	f.machine("no-sudo", noSudo, func(m *v1alpha1.OnecloudMachine) { m.Spec.Infrastructure.SSH.User = "debian" })
	f.machine("checks", checks)
	f.machine("late", late)
	f.machine("changed-key", changed, func(m *v1alpha1.OnecloudMachine) { m.Spec.Infrastructure.SSH.HostKey = first })
	f.machine("no-secret", f.server(), func(m *v1alpha1.OnecloudMachine) { m.Spec.Infrastructure.SSH.CredentialsSecretName = "none" })
	f.machine("no-cloud", f.server(), func(m *v1alpha1.OnecloudMachine) { m.Spec.Cloud = "other" })
	f.machine("unreachable", f.server(), func(m *v1alpha1.OnecloudMachine) { m.Spec.Infrastructure.SSH.Port = 1 })
	f.machine("broken-off", broken)
	f.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "taken"}})
	f.forget("taken")
	f.machine("taken", f.server())
	for name, code := range map[string]string{
		"wrong-key": "OCA-7603", "no-sudo": "OCA-7604", "checks": "OCA-1004", "late": "OCA-7644", "changed-key": "OCA-7602", "no-secret": "OCA-7606", "taken": "NodeExists",
	} {
		m := f.until(name, in(v1alpha1.MachineFailed))
		if m.Status.FailureReason != code || m.Status.FailureMessage == "" {
			t.Errorf("%s: %s: %s", name, m.Status.FailureReason, m.Status.FailureMessage)
		}
	}
	if m := f.until("no-cloud", in(v1alpha1.MachinePending)); m.Status.FailureReason != "" {
		t.Errorf("%+v", m.Status)
	}
	m := f.until("unreachable", func(m *v1alpha1.OnecloudMachine) bool { return !m.Status.RetryAfter.IsZero() })
	if m.Status.Phase != v1alpha1.MachinePending || !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionHostReachable) || !strings.Contains(m.Status.Message, "OCA-7601") {
		t.Errorf("%+v", m.Status)
	}
	f.until("broken-off", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-7605") })
	for name, s := range map[string]*standIn{"wrong-key": wrongKey, "no-sudo": noSudo, "changed-key": changed} {
		if got := s.commands(); len(got) > 0 {
			t.Errorf("%s ran %q", name, got)
		}
	}
	// A machine that never joined is not reset.
	f.remove("checks")
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "checks")
	if got := checks.commands(); slices.Contains(got, "") || !slices.Contains(got, "tidy") {
		t.Errorf("ran %q", got)
	}
	f.machine("checks", checks)
	// Now corrected.
	wrongKey.Keys = []gossh.PublicKey{f.public}
	noSudo.Sudo = "free"
	checks.mu.Lock()
	checks.findings = ""
	checks.mu.Unlock()
	late.mu.Lock()
	late.offset = 0
	late.mu.Unlock()
	for _, name := range []string{"wrong-key", "no-sudo", "checks", "late", "broken-off"} {
		f.EditObject(&v1alpha1.OnecloudMachine{}, name, `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"1"}}}`)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "changed-key", `{"spec":{"infrastructure":{"ssh":{"hostKey":"`+changed.HostKey()+`"}}}}`)
	f.EditObject(&v1alpha1.OnecloudMachine{}, "unreachable", fmt.Sprintf(`{"spec":{"infrastructure":{"ssh":{"port":%d}}}}`, f.server().Port()))
	for _, name := range []string{"wrong-key", "no-sudo", "checks", "late", "broken-off", "changed-key", "unreachable"} {
		m := f.until(name, in(v1alpha1.MachineRunning))
		if m.Status.FailureReason != "" || m.Status.FailureMessage != "" {
			t.Errorf("%s: %+v", name, m.Status)
		}
	}
	// A machine that was never reached is removed immediately; one that does not answer, after it is abandoned.
	for _, name := range []string{"no-secret", "taken", "no-cloud"} {
		f.remove(name)
		f.UntilGone(&v1alpha1.OnecloudMachine{}, name)
	}
	f.Get(&corev1.Node{}, "taken")
	wrongKey.Keys = nil
	f.remove("wrong-key")
	f.until("wrong-key", func(m *v1alpha1.OnecloudMachine) bool {
		return m.Status.FailureReason == "OCA-7603" && m.Status.Phase == v1alpha1.MachineDeleting
	})
	f.EditObject(&v1alpha1.OnecloudMachine{}, "wrong-key", `{"metadata":{"annotations":{"onecloud.yunion.io/abandon-machine":"true"}}}`)
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "wrong-key")
	f.UntilGone(&corev1.Node{}, "wrong-key")
	f.StopOperator()
}

func (f *machinesTest) remove(name string) {
	f.Helper()
	require.NoError(f, f.Client.Delete(f.Context(), &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

func onMachine() *v1alpha1.OnecloudOperation {
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "join-worker-1-1", UID: "u"}}
	o.Spec = v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: v1alpha1.ActionJoinMachine, Machine: &v1alpha1.MachineParameters{Name: "worker-1"}}
	return o
}

func TestJobOf(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	job := jobOf(onMachine(), cloud, Job{Account: "onecloud-machine-worker", Secrets: []string{"login", "worker-1-bootstrap"}}, "r/ocadm:v1", time.Hour)
	got, err := yaml.Marshal(job)
	require.NoError(t, err)
	require.Golden(t, "testdata/job.yaml", string(got))
}

// A Job for the control plane runs as root on another control-plane node, where it can read the Kubernetes files but not change them.
func TestJobOnControlPlane(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	p := Job{Account: "a", ControlPlane: true, Avoid: "cp-2"}.Pod(cloud, "r/ocadm:v1", []string{"x"})
	must := p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
	mount := p.Containers[0].VolumeMounts[0]
	if _, there := p.NodeSelector["node-role.kubernetes.io/control-plane"]; !there || !p.HostNetwork || *p.SecurityContext.RunAsUser != 0 || p.SecurityContext.RunAsNonRoot != nil ||
		must.Operator != corev1.NodeSelectorOpNotIn || !slices.Equal(must.Values, []string{"cp-2"}) || mount.MountPath != "/etc/kubernetes" || !mount.ReadOnly ||
		p.Volumes[0].HostPath.Path != "/etc/kubernetes" || *p.Containers[0].SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("%+v", p)
	}
}

// Control-plane nodes join or leave one at a time; workers do not wait for that.
func TestControlPlaneInTurn(t *testing.T) {
	op := func(name string, phase v1alpha1.OperationPhase, controlPlane bool) *v1alpha1.OnecloudOperation {
		o := onMachine()
		o.Name, o.Status.Phase = name, phase
		o.Spec.Machine = &v1alpha1.MachineParameters{Name: name, ControlPlane: controlPlane}
		return o
	}
	for name, c := range map[string]struct {
		all  []*v1alpha1.OnecloudOperation
		want []string
	}{
		"two wait":      {[]*v1alpha1.OnecloudOperation{op("a", "", true), op("b", "", true), op("c", "", false)}, []string{"a", "c"}},
		"one runs":      {[]*v1alpha1.OnecloudOperation{op("b", "", true), op("z", v1alpha1.OperationRunning, true)}, []string{"z"}},
		"one is paused": {[]*v1alpha1.OnecloudOperation{op("b", "", true), op("z", v1alpha1.OperationPaused, true)}, []string{"z"}},
	} {
		d := decide(c.all, &v1alpha1.OnecloudCluster{}, []Action{{Name: onMachine().Spec.Action}}, 10)
		var got []string
		for _, o := range d.beside {
			got = append(got, o.Name)
		}
		if !slices.Equal(got, c.want) || !strings.Contains(d.pending["b"], "one control-plane node joins or leaves at a time") {
			t.Errorf("%s: %q run, %v", name, got, d.pending)
		}
	}
}

func TestSeen(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, s corev1.ContainerState) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: s}}}}
	}
	killed := pod("a", corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}})
	noImage := pod("b", corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
	begins := pod("c", corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	done := pod("e", corev1.PodSucceeded, corev1.ContainerState{})
	away := pod("d", corev1.PodRunning, corev1.ContainerState{})
	away.DeletionTimestamp = new(metav1.Now())
	away.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "its node is away"}}
	o := onMachine()
	lost, waits := seen(o, []corev1.Pod{away, noImage, killed, begins, done})
	if want := []string{"a: exit code 137: OOMKilled", "d: DeletionByTaintManager: its node is away"}; !slices.Equal(lost, want) {
		t.Errorf("lost %q", lost)
	}
	if waits != "waiting for pod b: ImagePullBackOff: no such image" {
		t.Errorf("waits %q", waits)
	}
	o.Status.Worker = &v1alpha1.OperationWorker{Pod: "e", Lost: []string{"0: gone", "a: exit code 137: OOMKilled"}}
	if lost, waits := seen(o, []corev1.Pod{killed, noImage}); !slices.Equal(lost, o.Status.Worker.Lost) || waits != "" {
		t.Errorf("%q %q", lost, waits)
	}
}

func TestEnded(t *testing.T) {
	job := func(c ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: c}}
	}
	if complete, failed := Ended(job()); complete || failed != "" {
		t.Error(complete, failed)
	}
	if complete, failed := Ended(job(batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})); !complete || failed != "" {
		t.Error(complete, failed)
	}
	if _, failed := Ended(job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "too long"})); failed != "DeadlineExceeded: too long" {
		t.Error(failed)
	}
}

// A worker's patch tests who owns the operation, and does not change that.
func TestPatchOfAWorker(t *testing.T) {
	before, after := onMachine(), onMachine()
	before.Status = v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationPlanning, Message: "m", Worker: &v1alpha1.OperationWorker{Pod: "p"}}
	after.Status = v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationRunning, Step: "join", Worker: &v1alpha1.OperationWorker{Pod: "other", Number: 2}}
	p, err := (&record{worker: "p"}).patch(before, after)
	require.NoError(t, err)
	text, err := p.Data(after)
	require.NoError(t, err)
	want := `[{"op":"test","path":"/status/worker/pod","value":"p"},{"op":"add","path":"/status/phase","value":"Running"},` +
		`{"op":"add","path":"/status/step","value":"join"},{"op":"remove","path":"/status/message"}]`
	if string(text) != want || !strings.Contains(string(p.Type()), "json-patch") {
		t.Errorf("%s: %s", p.Type(), text)
	}
}

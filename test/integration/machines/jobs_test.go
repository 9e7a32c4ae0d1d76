// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// runs reports whether a step of an operation is running.
func runs(step string) func(*v1alpha1.OnecloudOperation) bool {
	return func(o *v1alpha1.OnecloudOperation) bool {
		return slices.ContainsFunc(o.Status.Steps, func(s v1alpha1.OperationStep) bool { return s.Name == step && s.State == v1alpha1.StepRunning })
	}
}

func control(value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"onecloud.yunion.io/control":%s}}}`, value)
}

// TestMachineJobs checks that an operation survives whatever happens to its Job, its pods, its node or the operator.
func TestMachineJobs(t *testing.T) {
	f := newMachinesTest(t)
	f.operate()

	killed := f.server(func(s *standIn) { s.hangs = "join" })
	f.machine("killed", killed)
	f.UntilOperation("join-killed-1", runs("join"))
	f.Eventually(func() (bool, string) { return len(killed.commands()) == 2, "join has not begun on the machine" })
	pod := f.jobs.End("join-killed-1", func(p *env.JobPod) {
		p.OOM = true
		_ = p.Process.Kill()
	})
	f.UntilOperation("join-killed-1", func(o *v1alpha1.OnecloudOperation) bool { return len(o.Status.Worker.Lost) > 0 })
	killed.let("")
	f.until("killed", in(v1alpha1.MachineRunning))
	o := f.UntilOperation("join-killed-1", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationSucceeded })
	if w := o.Status.Worker; w == nil || w.Number != 2 || w.Pod == pod || !slices.Equal(w.Lost, []string{pod + ": exit code 137: OOMKilled"}) {
		t.Errorf("%+v", w)
	}
	if got := killed.commands(); !slices.Equal(got, []string{"precheck", "join", "join"}) { // completed steps are not repeated
		t.Errorf("ran %q", got)
	}

	// Two machines at the same time: the operator ends while one of them joins, and the node of the other's pod is lost.
	alone, lost := f.server(func(s *standIn) { s.hangs = "join" }), f.server(func(s *standIn) { s.hangs = "join" })
	f.machine("alone", alone)
	f.machine("lost", lost)
	f.UntilOperation("join-alone-1", runs("join"))
	f.UntilOperation("join-lost-1", runs("join"))
	f.StopOperator()
	alone.let("")
	f.UntilOperation("join-alone-1", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationSucceeded })
	f.operate()
	var process *env.JobPod
	pod = f.jobs.End("join-lost-1", func(p *env.JobPod) { p.Gone, process = true, p })
	require.NoError(t, f.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}}, client.GracePeriodSeconds(0)))
	f.UntilOperation("join-lost-1", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Worker.Number == 2 })
	f.Eventually(func() (bool, string) { // the old process no longer has any permission
		return process.Process.Signal(syscall.Signal(0)) != nil, "the process of the lost node runs"
	})
	lost.let("")
	f.until("alone", in(v1alpha1.MachineRunning))
	f.until("lost", in(v1alpha1.MachineRunning))

	f.failedJob()
	f.pausedJob()
	f.cancelledJob()
	f.secrecy()
	f.StopOperator()
}

// failedJob checks that, if no pod succeeds, the operation fails with the cause and the machine is tried again.
func (f *machinesTest) failedJob() {
	f.Helper()
	s := f.server(func(s *standIn) { s.hangs = "join" })
	f.machine("failed", s)
	f.UntilOperation("join-failed-1", runs("join"))
	f.EditObject(&batchv1.Job{}, "join-failed-1", `{"spec":{"backoffLimit":0}}`)
	f.jobs.End("join-failed-1", func(p *env.JobPod) { _ = p.Process.Kill() })
	o := f.UntilOperation("join-failed-1", env.Ended)
	if o.Status.Phase != v1alpha1.OperationFailed || len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7624" ||
		!strings.Contains(o.Status.Findings[0].Cause, "BackoffLimitExceeded") || !strings.Contains(o.Status.Findings[0].Cause, "exit code 137") {
		f.Errorf("%+v", o.Status)
	}
	m := f.until("failed", func(m *v1alpha1.OnecloudMachine) bool { return !m.Status.RetryAfter.IsZero() })
	if m.Status.Phase != v1alpha1.MachinePending || !strings.Contains(m.Status.Message, "OCA-7624") {
		f.Errorf("%+v", m.Status)
	}
	s.let("")
	f.EditObject(&v1alpha1.OnecloudMachine{}, "failed", `{"metadata":{"annotations":{"onecloud.yunion.io/retry":"1"}}}`)
	f.until("failed", in(v1alpha1.MachineRunning))
}

// pausedJob checks that a pause ends the Job after the current step, and that another Job continues.
func (f *machinesTest) pausedJob() {
	f.Helper()
	s := f.server(func(s *standIn) { s.hangs = "precheck" })
	f.machine("paused", s)
	f.UntilOperation("join-paused-1", runs("precheck"))
	f.EditObject(&v1alpha1.OnecloudOperation{}, "join-paused-1", control(`"pause"`))
	f.Until(&batchv1.Job{}, "join-paused-1", func(object client.Object) (bool, string) {
		s.let("") // after the edit, which the pod sees a moment later
		j, there := kube.As[batchv1.Job](object)
		return there && j.Status.Succeeded == 1, "its Job runs"
	})
	o := f.UntilOperation("join-paused-1", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase != v1alpha1.OperationPlanning })
	if o.Status.Phase != v1alpha1.OperationPaused {
		f.Errorf("%+v", o.Status)
	}
	f.EditObject(&v1alpha1.OnecloudOperation{}, "join-paused-1", control("null"))
	f.until("paused", in(v1alpha1.MachineRunning))
	if got := s.commands(); !slices.Equal(got, []string{"precheck", "join"}) {
		f.Errorf("ran %q", got)
	}
}

// cancelledJob checks that an operation whose pod does not start reports why, and can be cancelled.
func (f *machinesTest) cancelledJob() {
	f.Helper()
	f.jobs.Hold(true)
	f.machine("held", f.server())
	var pod corev1.Pod
	f.Eventually(func() (bool, string) {
		var pods corev1.PodList
		if err := f.Client.List(f.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelOperation: "join-held-1"}); err != nil || len(pods.Items) == 0 {
			return false, fmt.Sprint("no pod: ", err)
		}
		pod = pods.Items[0]
		return true, ""
	})
	status := `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available"}]}}`
	require.NoError(f, f.Client.Status().Patch(f.Context(), &pod, client.RawPatch(types.StrategicMergePatchType, []byte(status))))
	f.UntilOperation("join-held-1", func(o *v1alpha1.OnecloudOperation) bool {
		return strings.Contains(o.Status.Message, "0/1 nodes are available")
	})
	f.EditObject(&v1alpha1.OnecloudOperation{}, "join-held-1", control(`"cancel"`))
	f.UntilOperation("join-held-1", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationCancelled })
	f.UntilGone(&batchv1.Job{}, "join-held-1")
	f.until("held", in(v1alpha1.MachineFailed))
	f.jobs.Hold(false)
	f.Get(&corev1.ConfigMap{}, "join-paused-1-log") // a log outlives the Job
}

// secrecy checks that no secret is in an argument, the environment or a Job, and that a Job has no permission for other objects.
func (f *machinesTest) secrecy() {
	f.Helper()
	all := f.jobs.Seen()
	key := strings.Split(string(f.private), "\n")[1]
	if !strings.Contains(all, "join-killed-1") || strings.Contains(all, key) || strings.Contains(strings.ToLower(all), "token") {
		f.Errorf("arguments and environment: %s", all)
	}
	c, err := kube.New(f.jobs.As("onecloud-machine-worker", "join-killed-1-abcde"))
	require.NoError(f, err)
	denied := func(what string, err error) {
		f.Helper()
		if !apierrors.IsForbidden(err) && !(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "onecloud-machine-jobs")) {
			f.Errorf("%s: %v", what, err)
		}
	}
	ctx := f.Context()
	denied("reading a Secret", c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "login"}, &corev1.Secret{}))
	denied("listing Secrets", c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)))
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"x"}}`))
	operation := func(name string) *v1alpha1.OnecloudOperation {
		return &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	denied("another's operation", c.Status().Patch(ctx, operation("join-alone-1"), status))
	if err := c.Status().Patch(ctx, operation("join-killed-1"), status); err != nil {
		f.Errorf("its own operation: %v", err)
	}
	config := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	data := client.RawPatch(types.MergePatchType, []byte(`{"data":{"x":"y"}}`))
	denied("another's log", c.Patch(ctx, config("join-alone-1-log"), data))
	denied("the configuration of a service", c.Patch(ctx, config("default-glance"), data))
	denied("a ConfigMap that is no log", c.Create(ctx, config("join-killed-1")))
	if err := c.Patch(ctx, config("join-killed-1-log"), data); err != nil {
		f.Errorf("its own log: %v", err)
	}
	if c, err = kube.New(f.jobs.As("onecloud-machine-remover", "remove-killed-1-abcde")); err != nil {
		f.Fatal(err)
	}
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	denied("the Node of no machine", c.Delete(ctx, node("node1")))
	denied("the Node of no machine", c.Patch(ctx, node("node1"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))))
}

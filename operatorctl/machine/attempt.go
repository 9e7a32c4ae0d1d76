// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/operation"
)

func last(f facts, action string) *v1alpha1.OnecloudOperation {
	for _, o := range slices.Backward(f.operations) {
		if o.Spec.Action == action {
			return o
		}
	}
	return nil
}

// wanted returns the user's inputs to an attempt: if they change, a failed one is retried immediately.
func wanted(m *v1alpha1.OnecloudMachine) string {
	return strconv.FormatInt(m.Generation, 10) + " " + m.Annotations[v1alpha1.AnnotationRetry] + " " + m.Annotations[v1alpha1.AnnotationAbandonMachine]
}

// repeats reports whether a user asks for another join since one succeeded: its Node was deleted before the operator saw it. A new spec is no such request.
func repeats(m *v1alpha1.OnecloudMachine, s *v1alpha1.OnecloudMachineStatus, join *v1alpha1.OnecloudOperation) bool {
	_, was, _ := strings.Cut(s.Retry, " ")
	_, is, _ := strings.Cut(wanted(m), " ")
	return join.Name == s.Operation && was != is
}

// attempt creates the next operation unless one is running, or has failed and need not be retried yet. phase is that of a waiting machine.
func (d *decision) attempt(f facts, action string, phase v1alpha1.MachinePhase) {
	s := &d.status
	o := last(f, action)
	switch {
	case o != nil && !o.Status.Phase.Final():
		s.Phase, s.Message = phase, progress(o)
		return
	case o != nil && o.Status.Phase == v1alpha1.OperationSucceeded && action == v1alpha1.ActionJoinMachine && !repeats(f.machine, s, o):
		s.Phase, s.Message = v1alpha1.MachineProvisioned, "waiting for its Node"
		return
	case o != nil && o.Name == s.Operation && s.Retry == wanted(f.machine):
		if d.rest(f, o, phase) {
			return
		}
	}
	s.Attempts++
	if s.Retry != wanted(f.machine) {
		s.Attempts = 1
	}
	s.Tries = max(s.Tries, f.former) + 1 // an operation of that name would count as the new one
	s.Retry, s.RetryAfter, s.FailureReason, s.FailureMessage = wanted(f.machine), metav1.Time{}, "", ""
	s.Operation = fmt.Sprintf("%s-%s-%d", prefixes[action], f.machine.Name, s.Tries)
	if s.Phase = phase; action == v1alpha1.ActionJoinMachine {
		s.Phase = v1alpha1.MachineProvisioning
	}
	d.create = operationOn(f, action, s.Operation)
	s.Message = progress(d.create)
}

func operationOn(f facts, action, name string) *v1alpha1.OnecloudOperation {
	return &v1alpha1.OnecloudOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.machine.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelOperationCloud: f.machine.Spec.Cloud},
			Finalizers: []string{v1alpha1.Finalizer}, OwnerReferences: []metav1.OwnerReference{operation.OwnerOf(f.cloud)}}, // as the controller of operations sets them
		Spec: v1alpha1.OnecloudOperationSpec{Cloud: f.machine.Spec.Cloud, Action: action, Requester: "the resource of the machine", OnFailure: v1alpha1.OnFailureRollback,
			Machine: &v1alpha1.MachineParameters{Name: f.machine.Name, ControlPlane: f.machine.ControlPlane() && action != v1alpha1.ActionPrecheckMachine}},
	}
}

// minor reports whether a machine's status differs only in the progress of an operation.
func (d *decision) minor(m *v1alpha1.OnecloudMachine) bool {
	was, is := m.Status.DeepCopy(), d.status.DeepCopy()
	if d.create != nil || d.cancel != nil || d.bind || d.release || d.delete || d.annotate != "" || was.Phase != is.Phase || is.Phase == v1alpha1.MachineRunning {
		return false
	}
	for _, s := range []*v1alpha1.OnecloudMachineStatus{was, is} {
		s.Message, s.HostKey, s.HostKeyAddress, s.JumpHostKey, s.JumpHostKeyAddress, s.JoinBegun, s.Conditions = "", "", "", "", "", "", nil
	}
	return equality.Semantic.DeepEqual(was, is) && !equality.Semantic.DeepEqual(m.Status, d.status)
}

var prefixes = map[string]string{v1alpha1.ActionJoinMachine: "join", v1alpha1.ActionRemoveMachine: "remove", v1alpha1.ActionPrecheckMachine: "check"}

// rest reports whether a machine with a failed operation is left alone for now.
func (d *decision) rest(f facts, o *v1alpha1.OnecloudOperation, phase v1alpha1.MachinePhase) bool {
	s := &d.status
	code, why := codeOf(o), text(o, o.Status.Message)
	if code == codeNotReset {
		if f.left {
			return false
		}
		s.Phase, s.Message = phase, why
		return true
	}
	step := ""
	for _, p := range o.Status.Steps {
		if p.State == v1alpha1.StepFailed {
			step = p.Name
		}
	}
	if o.Status.Phase == v1alpha1.OperationCancelled || needsAttention(code) || step == stepPrecheck && !passes(code) ||
		phase != v1alpha1.MachineDeleting && (step == stepJoin || code == codeNoResult) && s.Attempts >= maxAttempts {
		d.fail(cmp.Or(code, string(o.Status.Phase)), why+"; after correcting the cause: ocadm machine retry "+f.machine.Name)
		if phase == v1alpha1.MachineDeleting {
			s.Phase = phase
		}
		return true
	}
	delay := min(firstRetry<<min(s.Attempts-1, 10), lastRetry)
	s.RetryAfter = metav1.NewTime(wait.Earliest(s.RetryAfter.Time, o.Status.End.Add(delay), f.now.Add(delay))) // a clock may have been ahead when it ended
	if left := s.RetryAfter.Sub(f.now); left > 0 {
		s.Phase, s.Message, d.again = phase, why+"; the operator retries automatically", left
		return true
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// facts are what the controller knows about a machine.
type facts struct {
	machine *v1alpha1.OnecloudMachine
	// cloud is the machine's cloud, nil if it does not exist.
	cloud *v1alpha1.OnecloudCluster
	// twin is the name of an older machine with the same address, namesake the NAMESPACE/NAME of an older one elsewhere with the same name; "" if none.
	twin, namesake string
	// node is the Node with the name of the machine, nil if there is none.
	node *corev1.Node
	// only reports whether it is the only control-plane node.
	only bool
	// left reports whether ocadm reset has removed the node's machine from the cluster.
	left bool
	// agents are the pods of the cloud on the node.
	agents []corev1.Pod
	// data reports whether there are valid bootstrap data.
	data bool
	// report is the report of a machine that calls in.
	report callin.Report
	// operations are those on the machine, the latest last.
	operations []*v1alpha1.OnecloudOperation
	// former is the highest number in the names of operations on an earlier machine of this name.
	former int
	now    time.Time
}

type decision struct {
	status v1alpha1.OnecloudMachineStatus
	// create is the operation to create, nil if none.
	create *v1alpha1.OnecloudOperation
	// cancel is the operation to cancel, nil if none.
	cancel *v1alpha1.OnecloudOperation
	// bind reports whether the node has just become the machine's.
	bind bool
	// early reports whether there is nothing to report yet: the other controller has not processed the machine.
	early bool
	// release reports whether Kubernetes may delete the machine.
	release bool
	// delete reports whether to delete the machine because its annotation requests that. annotate replaces this annotation, unless it is "".
	delete   bool
	annotate string
	// again is when to decide again without an event, 0 if never.
	again time.Duration
}

// Temporary failures are retried with exponential backoff, from firstRetry to lastRetry.
const (
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
	// maxAttempts is how often a join that fails on the machine is tried before it needs attention.
	maxAttempts = 5
)

// needsAttention reports whether a code is permanent: host key, login, sudo, credentials, a Secret that is not for logins, another node.
func needsAttention(code string) bool {
	return slices.Contains([]string{"OCA-7602", "OCA-7603", "OCA-7604", "OCA-7606", "OCA-7628", codeOtherNode}, code)
}

// passes reports whether a failed check is retried automatically: the connection, the cluster's CAs, which the operator stores again, the token, which it
// replaces, lost pods, checks that did not run, as after a failed download, and a failure that is not a finding, such as a timeout.
func passes(code string) bool {
	return code == "" || refuses(code) || slices.Contains([]string{"OCA-7601", "OCA-7605", codeNoResult, "OCA-7624", "OCA-4131", "OCA-4132"}, code)
}

// refuses reports whether a code means that the cluster rejected the token of bootstrap data: the script's code, and those of ocadm itself.
func refuses(code string) bool {
	return slices.Contains([]string{codeTokenRefused, "OCA-2312", "OCA-4102", "OCA-4103"}, code)
}

// refusal returns the name of the latest join if the cluster rejected its token, "" otherwise.
func refusal(operations []*v1alpha1.OnecloudOperation) string {
	for _, o := range slices.Backward(operations) {
		if o.Spec.Action == v1alpha1.ActionJoinMachine && o.Status.Phase.Final() {
			if refuses(codeOf(o)) {
				return o.Name
			}
			return ""
		}
	}
	return ""
}

// joining returns the latest join of a machine unless it has succeeded; nil if it has, or if the operator does not join the machine: a fleet handed it
// over, or it calls in. A Node registers before the end of its join.
func joining(m *v1alpha1.OnecloudMachine, operations []*v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	if m.CallsIn() {
		return nil
	}
	for _, o := range slices.Backward(operations) {
		if o.Spec.Action != v1alpha1.ActionJoinMachine {
			continue
		}
		if o.Status.Phase == v1alpha1.OperationSucceeded {
			return nil
		}
		return o
	}
	return nil
}

// decide returns what to do with a machine. It is pure.
func decide(f facts) decision {
	d := decision{status: *f.machine.Status.DeepCopy()}
	s := &d.status
	s.ObservedGeneration = f.machine.Generation
	if d.ask(f) {
		return d
	}
	d.observe(f)
	d.noteJoin(f)
	switch {
	case f.machine.DeletionTimestamp != nil:
		d.remove(f)
	case joined(f.node, f.machine):
		d.bind = s.NodeRef == nil || s.NodeRef.UID != f.node.UID
		d.run(f)
	case s.NodeRef != nil && joining(f.machine, f.operations) == nil:
		s.Phase, s.Message = v1alpha1.MachineFailed, "its Node was deleted"
		s.FailureReason, s.FailureMessage = "NodeDeleted", "another client deleted its Node: to join the machine again, remove it and add it again"
		d.set(f, v1alpha1.ConditionJoined, metav1.ConditionFalse, "NodeDeleted", s.Message)
		d.set(f, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "NodeDeleted", s.Message)
		d.set(f, v1alpha1.ConditionAgentsReady, metav1.ConditionFalse, "NodeDeleted", s.Message)
	default:
		d.provision(f)
	}
	d.answer(f)
	return d
}

func (d *decision) set(f facts, kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: f.machine.Generation, LastTransitionTime: metav1.NewTime(f.now),
	})
}

// observe records the results of the latest operation that logged in.
func (d *decision) observe(f facts) {
	d.pin(f, &v1alpha1.OperationMachine{}) // a key that an earlier operator pinned belongs to this place
	for _, o := range slices.Backward(f.operations) {
		d.pin(f, o.Status.Machine)
		steps := lists.Index(o.Status.Steps, func(p v1alpha1.OperationStep) (string, v1alpha1.OperationStep) { return p.Name, p })
		connect := steps[stepConnect]
		if connect.State != v1alpha1.StepDone && connect.State != v1alpha1.StepFailed {
			continue
		}
		if connect.State == v1alpha1.StepFailed {
			d.set(f, v1alpha1.ConditionHostReachable, metav1.ConditionFalse, reasonOf(o, "ConnectFailed"), text(o, connect.Message))
			return
		}
		d.set(f, v1alpha1.ConditionHostReachable, metav1.ConditionTrue, "LoggedIn", "")
		switch check := steps[stepPrecheck]; check.State {
		case v1alpha1.StepDone:
			d.set(f, v1alpha1.ConditionPrecheckPassed, metav1.ConditionTrue, "NoErrors", "")
		case v1alpha1.StepFailed:
			d.set(f, v1alpha1.ConditionPrecheckPassed, metav1.ConditionFalse, reasonOf(o, "CheckFailed"), text(o, check.Message))
		}
		return
	}
}

// run decides about a machine that has a Node.
func (d *decision) run(f facts) {
	s := &d.status
	s.NodeRef = &v1alpha1.MachineNodeRef{Name: f.node.Name, UID: f.node.UID}
	s.Addresses, s.ProviderID = f.node.Status.Addresses, f.machine.NodeProviderID()
	d.set(f, v1alpha1.ConditionInfrastructureReady, metav1.ConditionTrue, "Ready", "")
	d.set(f, v1alpha1.ConditionJoined, metav1.ConditionTrue, "NodeRegistered", "")
	ready, why := metav1.ConditionUnknown, "the Node has not reported yet"
	for _, c := range f.node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready, why = metav1.ConditionStatus(c.Status), c.Message
		}
	}
	if ready == metav1.ConditionTrue {
		why = ""
	}
	d.set(f, v1alpha1.ConditionNodeReady, ready, "Node", why)
	is, reason, message := agents(f)
	d.set(f, v1alpha1.ConditionAgentsReady, is, reason, message)
	if o := joining(f.machine, f.operations); o != nil && f.cloud != nil && f.cloud.DeletionTimestamp == nil {
		if !d.follow(o) {
			d.join(f)
		}
		return
	}
	s.Initialization.Provisioned = true
	s.Phase, s.Message, s.FailureReason, s.FailureMessage, s.RetryAfter = v1alpha1.MachineProvisioned, "", "", "", metav1.Time{}
	d.set(f, v1alpha1.ConditionBootstrapDataReady, metav1.ConditionTrue, "Used", "")
	switch {
	case ready != metav1.ConditionTrue:
		s.Message = "waiting for its Node: " + why
	case is != metav1.ConditionTrue:
		s.Phase, s.Message = v1alpha1.MachineRunning, message
	default:
		s.Phase = v1alpha1.MachineRunning
	}
}

// agents returns the condition of the cloud's pods on the machine's node.
func agents(f facts) (is metav1.ConditionStatus, reason, message string) {
	host := false
	for i := range f.agents {
		p := &f.agents[i]
		if p.DeletionTimestamp != nil || kube.PodEnded(p) { // one that has failed is replaced, and may stay as a record
			continue
		}
		host = host || p.Labels[v1alpha1.LabelComponent] == "host"
		if !kube.PodReady(p) {
			return metav1.ConditionFalse, "PodsNotReady", "waiting for pod " + p.Name
		}
	}
	if !host && slices.Contains(f.machine.Spec.Roles, v1alpha1.RoleCompute) {
		return metav1.ConditionFalse, "NoHostAgent", "waiting for the pod of the host agent"
	}
	return metav1.ConditionTrue, "Ready", ""
}

func (d *decision) fail(reason, message string) {
	d.status.Phase, d.status.FailureReason, d.status.FailureMessage, d.status.Message = v1alpha1.MachineFailed, reason, message, message
}

// remove decides about a machine that is being deleted.
func (d *decision) remove(f facts) {
	s := &d.status
	s.Phase = v1alpha1.MachineDeleting
	if f.cloud == nil || f.cloud.DeletionTimestamp != nil { // the machine stays in the cluster when its cloud is gone
		s.Message, d.release = "the cloud was deleted: the machine is left unchanged", true
		return
	}
	if operation.OfFormerCloud(f.machine, f.cloud) {
		s.Message, d.release = "its cloud was deleted, and another cloud has its name: the machine is left unchanged", true
		return
	}
	for _, o := range f.operations {
		if !o.Status.Phase.Final() && o.Spec.Action != v1alpha1.ActionRemoveMachine {
			s.Message = "waiting for the end of operation " + o.Name
			if o.Annotations[v1alpha1.AnnotationControl] != v1alpha1.OperationCancel {
				d.cancel = o
			}
			return
		}
	}
	if joins(f) && s.NodeRef == nil && !joined(f.node, f.machine) && !abandoned(f.machine) { // its Node would appear after it is gone
		s.Message = "waiting for the end of its join; if the join does not end: ocadm machine remove " + f.machine.Name + " --abandon"
		d.again = lastRetry
		return
	}
	begun := last(f, v1alpha1.ActionRemoveMachine)
	removing := begun != nil && !begun.Status.Phase.Final()                 // the reset of a control-plane node deletes its Node and continues
	if untouched(s, f.machine) && !removing && !joined(f.node, f.machine) { // nothing has logged in yet
		s.Phase, d.release = v1alpha1.MachineDeleted, true
		return
	}
	if begun != nil && begun.Status.Phase == v1alpha1.OperationSucceeded {
		s.Phase, s.Message, d.release = v1alpha1.MachineDeleted, "", true
		return
	}
	if f.only {
		only := OnlyControlPlane(f.machine.Name)
		d.fail(only.Code, sentence(only.Code, only.What, only.Cause, only.Remedy))
		s.Phase, d.again = v1alpha1.MachineDeleting, lastRetry
		return
	}
	if s.JoinBegun != f.machine.Status.JoinBegun && f.machine.Status.Phase != v1alpha1.MachineDeleting { // the removal reads it, so it is written first
		s.Phase, s.Message, d.again = v1alpha1.MachineDeleting, "its join has started: removing it now", time.Second
		return
	}
	d.attempt(f, v1alpha1.ActionRemoveMachine, v1alpha1.MachineDeleting)
	if s.Message != "" && d.create == nil && s.Attempts > 1 {
		s.Message += "; to leave the machine unchanged: ocadm machine remove " + f.machine.Name + " --abandon"
	}
}

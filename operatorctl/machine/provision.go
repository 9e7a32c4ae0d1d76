// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// provision decides about a machine that has no Node yet.
func (d *decision) provision(f facts) {
	s := &d.status
	d.set(f, v1alpha1.ConditionJoined, metav1.ConditionFalse, "NotJoined", "")
	d.set(f, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "NotJoined", "")
	d.set(f, v1alpha1.ConditionAgentsReady, metav1.ConditionFalse, "NotJoined", "")
	if o := last(f, v1alpha1.ActionJoinMachine); o != nil && d.follow(o) {
		return
	}
	if reason, message := infrastructure(f); reason != "" {
		d.set(f, v1alpha1.ConditionInfrastructureReady, metav1.ConditionFalse, reason, message)
		s.Phase, s.Message = v1alpha1.MachinePending, message
		s.FailureReason, s.FailureMessage = "", ""
		if reason != "NoCloud" && !(reason == "NodeExists" && d.held(f)) { // a fleet hands over a joined machine, whose Node gets its label later
			d.fail(reason, message)
		}
		return
	}
	d.set(f, v1alpha1.ConditionInfrastructureReady, metav1.ConditionTrue, "Ready", "")
	d.join(f)
}

// follow reports whether a join has not ended, and shows its progress.
func (d *decision) follow(join *v1alpha1.OnecloudOperation) bool {
	if join.Status.Phase.Final() {
		return false
	}
	s := &d.status
	s.Phase, s.Message, s.FailureReason, s.FailureMessage = v1alpha1.MachineProvisioning, progress(join), "", ""
	return true
}

// join lets a machine join that the cluster can take.
func (d *decision) join(f facts) {
	s := &d.status
	if f.data {
		d.set(f, v1alpha1.ConditionBootstrapDataReady, metav1.ConditionTrue, reasonMade, "")
		s.DataSecretName, s.Initialization.DataSecretCreated = f.machine.BootstrapSecret(), true
	}
	if f.machine.CallsIn() && (f.data || f.report.State != "") {
		d.listening(f)
		return
	}
	if !f.data {
		d.withoutData()
		return
	}
	if d.held(f) {
		s.Phase, s.Message = v1alpha1.MachinePending, "paused; to let it join: ocadm machine resume "+f.machine.Name
		return
	}
	d.attempt(f, v1alpha1.ActionJoinMachine, v1alpha1.MachinePending)
}

// held reports whether a machine must not join yet.
func (d *decision) held(f facts) bool {
	_, held := f.machine.Annotations[v1alpha1.AnnotationPausedByClusterAPI]
	return (held || f.machine.Annotations[v1alpha1.AnnotationPaused] == "true") && !d.asks(v1alpha1.RequestCreating)
}

// withoutData decides about a machine without bootstrap data. A finding about the cluster needs a user.
func (d *decision) withoutData() {
	s := &d.status
	d.early = s.Phase == "" && s.Request == nil && meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionBootstrapDataReady) == nil
	s.Phase, s.Message, s.FailureReason, s.FailureMessage = v1alpha1.MachinePending, "waiting for its bootstrap data", "", ""
	is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionBootstrapDataReady)
	if is == nil || is.Status == metav1.ConditionTrue || is.Message == "" {
		return
	}
	s.Message += ": " + is.Message
	if code, _, found := strings.Cut(is.Message, ":"); found && reason(code) == is.Reason {
		d.fail(code, is.Message)
	}
}

// infrastructure returns why the cluster cannot take a machine, "" if it can.
func infrastructure(f facts) (reason, message string) {
	switch {
	case f.cloud == nil:
		return "NoCloud", "waiting for cloud " + f.machine.Spec.Cloud
	case f.cloud.DeletionTimestamp != nil:
		return "CloudDeleted", "the cloud is being deleted"
	case f.twin != "":
		return "DuplicateAddress", "machine " + f.twin + " has the same address: correct the address, or remove one of them"
	case f.namesake != "":
		return "DuplicateName", "another machine has this name: " + f.namesake + "; both would share one Node: rename one of them"
	case f.node != nil:
		return "NodeExists", "another node has the name " + f.node.Name + ": rename the machine"
	}
	return "", ""
}

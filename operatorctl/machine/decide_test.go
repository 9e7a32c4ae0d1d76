// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

var now = time.Unix(1_800_000_000, 0)

// ready are the facts of a machine that can join.
func ready(change ...func(*facts)) facts {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w", UID: "m", Generation: 1}}
	m.Spec.Cloud, m.Spec.Roles = "default", []v1alpha1.MachineRole{v1alpha1.RoleCompute}
	f := facts{machine: m, cloud: &v1alpha1.OnecloudCluster{}, data: true, now: now}
	for _, c := range change {
		c(&f)
	}
	return f
}

// tried is a machine whose last operation ended as given at the given step.
func tried(action string, phase v1alpha1.OperationPhase, step, code string, attempts int, ago time.Duration) func(*facts) {
	return func(f *facts) {
		o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: prefixes[action] + "-w-1"}}
		o.Spec.Action, o.Spec.Machine = action, &v1alpha1.MachineParameters{Name: "w"}
		o.Status.Phase, o.Status.End = phase, metav1.NewTime(now.Add(-ago))
		for _, name := range []string{stepConnect, stepPrecheck, stepJoin} {
			state := v1alpha1.StepDone
			if name == step {
				state = v1alpha1.StepFailed
			}
			o.Status.Steps = append(o.Status.Steps, v1alpha1.OperationStep{Name: name, State: state})
			if name == step {
				break
			}
		}
		if code != "" {
			o.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-0001", Warning: true}, {Code: code, What: "it is so", Remedy: "do this"}}
		}
		f.operations = append(f.operations, o)
		f.machine.Status.Operation, f.machine.Status.Tries, f.machine.Status.Attempts = o.Name, 1, attempts
		f.machine.Status.Retry = wanted(f.machine)
	}
}

func deleted(f *facts) { f.machine.DeletionTimestamp = new(metav1.NewTime(now)) }

func reached(f *facts) { f.machine.Status.HostKey = "k" }

func node(uid string, is corev1.ConditionStatus) func(*facts) {
	return func(f *facts) {
		f.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "n", Labels: map[string]string{v1alpha1.LabelMachine: uid}}}
		f.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is, Message: "it is so"}}
	}
}

func TestDecide(t *testing.T) {
	const join, remove = v1alpha1.ActionJoinMachine, v1alpha1.ActionRemoveMachine
	for name, c := range map[string]struct {
		facts   facts
		phase   v1alpha1.MachinePhase
		reason  string
		create  string
		release bool
		again   time.Duration
	}{
		"it joins":                    {facts: ready(), phase: "Provisioning", create: "join-w-1"},
		"no cloud":                    {facts: ready(func(f *facts) { f.cloud = nil }), phase: "Pending"},
		"no data":                     {facts: ready(func(f *facts) { f.data = false }), phase: "Pending"},
		"paused":                      {facts: ready(func(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"} }), phase: "Pending"},
		"duplicate":                   {facts: ready(func(f *facts) { f.twin = "other" }), phase: "Failed", reason: "DuplicateAddress"},
		"a node of others":            {facts: ready(node("other", "True")), phase: "Failed", reason: "NodeExists"},
		"it runs":                     {facts: ready(node("m", "True")), phase: "Running"},
		"its node is not ready":       {facts: ready(node("m", "False")), phase: "Provisioned"},
		"its node was deleted":        {facts: ready(func(f *facts) { f.machine.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"} }), phase: "Failed", reason: "NodeDeleted"},
		"joined, and no node yet":     {facts: ready(tried(join, "Succeeded", "", "", 1, 0)), phase: "Provisioned"},
		"unreachable":                 {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 1, 10*time.Second)), phase: "Pending", again: 20 * time.Second},
		"unreachable for long":        {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 99, time.Minute)), phase: "Pending", again: 9 * time.Minute},
		"unreachable, it is time":     {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 1, 31*time.Second)), phase: "Provisioning", create: "join-w-2"},
		"wrong key":                   {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, time.Hour)), phase: "Failed", reason: "OCA-7603"},
		"a check fails":               {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-1004", 1, time.Hour)), phase: "Failed", reason: "OCA-1004"},
		"broken off in the checks":    {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-7605", 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"join fails":                  {facts: ready(tried(join, "Failed", stepJoin, "OCA-4001", 4, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"join fails too often":        {facts: ready(tried(join, "Failed", stepJoin, "OCA-4001", 5, time.Hour)), phase: "Failed", reason: "OCA-4001"},
		"cancelled":                   {facts: ready(tried(join, "Cancelled", stepJoin, "", 1, time.Hour)), phase: "Failed", reason: "Cancelled"},
		"wrong key, corrected":        {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, 0), func(f *facts) { f.machine.Generation++ }), phase: "Provisioning", create: "join-w-2"},
		"wrong key, retried":          {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, 0), func(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationRetry: "x"} }), phase: "Provisioning", create: "join-w-2"},
		"removed, never reached":      {facts: ready(deleted), phase: "Deleted", release: true},
		"removed":                     {facts: ready(deleted, reached), phase: "Deleting", create: "remove-w-1"},
		"removed with its cloud":      {facts: ready(deleted, reached, func(f *facts) { f.cloud = nil }), phase: "Deleting", release: true},
		"removed, node by itself":     {facts: ready(deleted, node("m", "True")), phase: "Deleting", create: "remove-w-1"},
		"removal done":                {facts: ready(deleted, reached, tried(remove, "Succeeded", "", "", 1, 0)), phase: "Deleted", release: true},
		"removal of one that is gone": {facts: ready(deleted, reached, tried(remove, "Failed", stepReset, "OCA-7601", 2, 0)), phase: "Deleting", again: time.Minute},
		"removal needs a person":      {facts: ready(deleted, reached, tried(remove, "Failed", stepReset, "OCA-7603", 1, time.Hour)), phase: "Deleting", reason: "OCA-7603"},
		"removal, join runs":          {facts: ready(deleted, reached, tried(join, "Running", "", "", 1, 0)), phase: "Deleting"},
		"removal after a failed join": {facts: ready(deleted, reached, tried(join, "Failed", stepJoin, "OCA-4001", 1, 0)), phase: "Deleting", create: "remove-w-2"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.facts.machine.DeepCopy()
			d := decide(c.facts)
			create := ""
			if d.create != nil {
				create = d.create.Name
			}
			if d.status.Phase != c.phase || d.status.FailureReason != c.reason || create != c.create || d.release != c.release || d.again != c.again {
				t.Errorf("%s, reason %q, creates %q, release %t, again %s: %s", d.status.Phase, d.status.FailureReason, create, d.release, d.again, d.status.Message)
			}
			if (d.cancel != nil) != (name == "removal, join runs") {
				t.Errorf("cancels %v", d.cancel)
			}
			if c.reason != "" && d.status.FailureMessage == "" || c.phase == "Pending" && d.status.Message == "" {
				t.Errorf("it does not say why: %+v", d.status)
			}
			if !equality.Semantic.DeepEqual(before, c.facts.machine) {
				t.Error("decide changed its facts")
			}
		})
	}
}

func TestAgents(t *testing.T) {
	pod := func(component string, is corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component, Labels: map[string]string{v1alpha1.LabelComponent: component}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}}
	}
	for want, pods := range map[string][]corev1.Pod{
		"NoHostAgent": nil, "PodsNotReady": {pod("host", "True"), pod("sdnagent", "False")}, "Ready": {pod("host", "True"), pod("sdnagent", "True")},
	} {
		f := ready(node("m", "True"), func(f *facts) { f.agents = pods })
		if c := meta.FindStatusCondition(decide(f).status.Conditions, v1alpha1.ConditionAgentsReady); c == nil || c.Reason != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
}

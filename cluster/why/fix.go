// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Action is a change that loses nothing while its title is true: what it deletes is recreated, or it only permits something again.
type Action string

const (
	// DeletePod makes the controller of a pod create another one.
	DeletePod Action = "delete-pod"
	// ForgetPod removes the record of a pod whose kubelet cannot confirm its end. If the machine is only cut off, the pod keeps running beside its
	// successor.
	ForgetPod Action = "forget-pod"
	// Uncordon makes a node schedulable again.
	Uncordon Action = "uncordon"
	// StartOperator scales the operator's Deployment to one pod.
	StartOperator Action = "start-operator"
)

// Fix is a repair that ocadm may offer.
type Fix struct {
	Action Action
	// Title describes it, Command is the equivalent kubectl command.
	Title, Command string
}

// Repair is a Fix of one hit.
type Repair struct {
	Action    Action `json:"action"`
	Title     string `json:"title"`
	Command   string `json:"command"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID identifies the object that was seen: when the user answers, another object may have its name.
	UID types.UID `json:"uid,omitempty"`
	// Node is the node to repair, or that of the pod.
	Node string `json:"node,omitempty"`
}

func (x Fix) repair(values map[string]string) *Repair {
	r := &Repair{Action: x.Action, Title: fill(x.Title, values), Command: fill(x.Command, values), Namespace: values["namespace"], Name: values["pod"],
		UID: types.UID(values["uid"]), Node: values["node"]}
	switch x.Action {
	case Uncordon:
		r.Namespace, r.Name = "", values["node"]
	case StartOperator:
		r.Name = values["deployment"]
	}
	return r
}

// Unasked reports whether a repair may be made without asking. Whether a machine is off, or why a node was cordoned, is unknown here, so such repairs
// require that the report is about the node.
func (r Report) Unasked(x Repair) bool {
	return x.Action != ForgetPod && x.Action != Uncordon || r.Symptom == nodeSubject(x.Node)
}

// Repairs returns the fixes in a report without duplicates, those of the cause first.
func (r Report) Repairs() []Repair {
	var out []Repair
	seen := map[string]bool{}
	list := slices.Concat(r.Same, r.Consequences, r.Others)
	if r.Cause != nil {
		list = append([]Found{*r.Cause}, list...)
	}
	for _, x := range list {
		if x.Fix != nil && !seen[x.Fix.Command] {
			seen[x.Fix.Command] = true
			out = append(out, *x.Fix)
		}
	}
	return out
}

// Repaired reports whether the repairs with these commands remove the cause wherever it was found.
func (r Report) Repaired(commands map[string]bool) bool {
	return r.Cause != nil && !slices.ContainsFunc(append([]Found{*r.Cause}, r.Same...), func(x Found) bool { return x.Fix == nil || !commands[x.Fix.Command] })
}

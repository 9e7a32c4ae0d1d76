// SPDX-License-Identifier: Apache-2.0

package why

import "k8s.io/apimachinery/pkg/types"

// Action is a change that loses nothing while its title is true: what it touches is made again, or is only allowed again.
type Action string

// The actions.
const (
	// DeletePod lets the controller of a pod make another one.
	DeletePod Action = "delete-pod"
	// ForgetPod removes the record of a pod whose kubelet cannot confirm its end. If the machine is only cut off, the pod goes on, and its successor runs
	// beside it.
	ForgetPod Action = "forget-pod"
	// Uncordon lets a node take pods again.
	Uncordon Action = "uncordon"
	// StartOperator gives the operator's Deployment one pod.
	StartOperator Action = "start-operator"
)

// Fix is a repair that ocadm may offer.
type Fix struct {
	Action Action
	// Title says what it does, Command is the same as a command of kubectl.
	Title, Command string
}

// Repair is a Fix of one hit.
type Repair struct {
	Action    Action `json:"action"`
	Title     string `json:"title"`
	Command   string `json:"command"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is of what was seen: another object may have its name by the time that a person answers.
	UID types.UID `json:"uid,omitempty"`
	// Node is the one that is repaired, or that of the pod.
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

// Unasked reports whether a repair may be done without asking. Whether a machine is off, and why a node was cordoned, is not seen from here: for that, the
// node must be the one that the report is about.
func (r Report) Unasked(x Repair) bool {
	return x.Action != ForgetPod && x.Action != Uncordon || r.Symptom == nodeSubject(x.Node)
}

// Repairs are the fixes that a report offers, each once, the cause's first.
func (r Report) Repairs() []Repair {
	var out []Repair
	seen := map[string]bool{}
	list := append([]Found{}, r.Consequences...)
	list = append(list, r.Others...)
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

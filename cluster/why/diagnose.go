// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

// Report explains why a component, a node or a cloud is not healthy.
type Report struct {
	// Symptom is the subject in question: "cloud", "component/region", "node/n1".
	Symptom Subject `json:"symptom"`
	// State describes it in one line.
	State string `json:"state"`
	// Healthy is true if the status shows no problem and no cause is more than a warning.
	Healthy bool `json:"healthy"`
	// Cause is the root cause, nil if there is none.
	Cause *Found `json:"cause,omitempty"`
	// Way leads from the symptom to the cause.
	Way []Subject `json:"way,omitempty"`
	// Consequences lists what the cause explains.
	Consequences []Found `json:"consequences,omitempty"`
	// Same lists the cause where it was also found.
	Same []Found `json:"same,omitempty"`
	// Others lists problems that the cause does not explain.
	Others []Found `json:"others,omitempty"`
	// Missing lists what could not be read.
	Missing []string `json:"missing,omitempty"`
}

// Err returns the error for the exit status: nil if all is well.
func (r Report) Err() error {
	if r.Cause != nil && r.Cause.Severity == finding.Error {
		return r.Cause.Finding
	}
	if r.Healthy {
		return nil
	}
	return finding.New("OCA-7301", "No cause is known: "+r.State, "no known problem was found; a change may still be in progress",
		"ocadm cluster status --watch")
}

// parts lists the subjects to ask about in addition to components and nodes.
var parts = []Subject{operator, controlPlane, database, dns, identity}

// Names lists what Diagnose accepts: parts of every cloud, and the components and nodes of a snapshot.
func (s *Snapshot) Names() []string {
	out := lists.Map(parts, func(p Subject) string { return string(p) })
	if s.Cloud != nil {
		out = append(out, lists.Map(s.Cloud.Status.Components, func(c v1alpha1.ComponentStatus) string { return c.Name })...)
	}
	return append(out, lists.Map(s.Nodes, func(n corev1.Node) string { return n.Name })...)
}

// Diagnose finds the cause of a problem with a component or a node; "" means the cloud and all its dependencies. ok is false for an unknown name.
func Diagnose(s *Snapshot, name string) (r Report, ok bool) {
	f := factsOf(s)
	symptom := cloud
	switch {
	case name == "":
	case f.component(name) != nil:
		symptom = componentSubject(name)
	case f.node(name) != nil:
		symptom = nodeSubject(name)
	case slices.Contains(parts, Subject(name)):
		symptom = Subject(name)
	default:
		return r, false
	}
	found := append(f.merged(find(f, searched())), f.onMachines()...)
	if f.notAsked() && slices.ContainsFunc(found, func(x Found) bool { return x.On != kubeconfig && x.Severity == finding.Error }) {
		found = slices.DeleteFunc(found, func(x Found) bool { return x.ID == "no-kubeconfig" }) // State and Missing say it; a worker needs none
	}
	g := graphOf(f, found)
	r = Report{Symptom: symptom, Missing: s.Missing}
	before := g.reach(symptom)
	r.Cause = root(g, before, found)
	state, well := f.state(symptom)
	r.State, r.Healthy = state, well && (r.Cause == nil || r.Cause.Severity == finding.Warning)
	if well && !r.Healthy && !slices.Contains(parts, symptom) { // parts have no status
		r.State += " according to its status, but there are problems"
	}
	if r.Cause != nil && !f.notAsked() { // a machine alone does not lead to the cloud
		r.Way = way(before, r.Cause.On)
	}
	r.sort(g, found)
	return r, true
}

// sort assigns what was found to the lists of the report. What the cause explains where it was also found is explained, too.
func (r *Report) sort(g graph, found []Found) {
	if r.Cause == nil {
		r.Others = found
		return
	}
	for _, x := range found {
		explained := func(y Found) bool { return y.ID == r.Cause.ID && explains(g, y, x) }
		switch {
		case x.ID == r.Cause.ID && x.On == r.Cause.On:
		case explains(g, *r.Cause, x), x.ID != r.Cause.ID && slices.ContainsFunc(found, explained):
			x.Because = r.Cause.ID
			r.Consequences = append(r.Consequences, x)
		case x.ID == r.Cause.ID:
			r.Same = append(r.Same, x)
		default:
			r.Others = append(r.Others, x)
		}
	}
}

// unsynchronised is the finding that no time service runs. The cause "clock" compares clocks: only a wrong one matters here.
const unsynchronised = "OCA-1018"

// onMachines returns the findings of "ocadm node doctor" about compute nodes. Agents on control planes leave such files, too, so the role label
// decides; if the cluster was not asked, every worker counts.
func (f *facts) onMachines() []Found {
	var out []Found
	for _, m := range f.Machines {
		n := f.node(m.Node)
		if compute := n != nil && n.Labels[v1alpha1.NodeRolePrefix+"host"] == v1alpha1.Enable; !compute && (!f.notAsked() || m.ControlPlane) {
			continue
		}
		for _, x := range m.Findings {
			if x.Code == unsynchronised {
				continue
			}
			out = append(out, Found{Finding: x, ID: "doctor-" + strings.TrimPrefix(x.Code, "OCA-"), On: nodeSubject(m.Node), layer: Setting})
		}
	}
	return out
}

// root returns the cause that no other one explains. Errors come before warnings, then those that no error explains, then the lower layer, then the
// cause that explains more, then the order of the table.
func root(g graph, before map[Subject]Subject, found []Found) *Found {
	inReach := lists.Filter(found, func(x Found) bool {
		_, there := before[x.On]
		return there
	})
	if len(inReach) == 0 {
		return nil
	}
	type scored struct {
		Found
		severity, explained, suffer int
	}
	list := make([]scored, len(inReach))
	for i, x := range inReach {
		list[i] = scored{Found: x}
		if x.Severity == finding.Warning {
			list[i].severity = 1
		}
		for _, y := range inReach {
			if y.Severity == finding.Error && explains(g, y, x) {
				list[i].explained++
			}
			if explains(g, x, y) {
				list[i].suffer++
			}
		}
	}
	best := slices.MinFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), cmp.Compare(min(a.explained, 1), min(b.explained, 1)),
			cmp.Compare(a.layer, b.layer), cmp.Compare(b.suffer, a.suffer), cmp.Compare(a.explained, b.explained))
	})
	return &best.Found
}

// explains reports whether a cause explains another one: the other's subject depends on its subject, or both have the same subject and it is in a
// lower layer. For subjects that depend on each other, the lower layer explains the other.
func explains(g graph, cause, other Found) bool {
	if other.past || cause.ID == other.ID && cause.On == other.On {
		return false
	}
	if cause.On == other.On {
		return cause.layer < other.layer
	}
	if _, there := g.reach(other.On)[cause.On]; !there {
		return false
	}
	if _, back := g.reach(cause.On)[other.On]; back {
		return cause.layer < other.layer
	}
	return true
}

// state describes the state of a symptom, and reports whether it is healthy.
func (f *facts) state(s Subject) (string, bool) {
	kind, name := s.split()
	switch {
	case f.notAsked():
		return "only this machine was examined; the cluster was not queried", false
	case f.Refused != nil:
		return f.Refused.What, false
	case kind == "component":
		c := f.component(name)
		text := "component " + name + " is " + string(c.State)
		if m := strings.TrimSpace(cmp.Or(c.Message, c.Reason)); m != "" && (c.State == v1alpha1.Idle || !c.Settled()) {
			text += ": " + shorten(m)
		}
		return text, c.Settled()
	case kind == "node":
		if c := kube.ReadyCondition(f.node(name)); c.Status != "True" {
			return "node " + name + " is not Ready: " + shorten(c.Message), false
		}
		return "node " + name + " is Ready", true
	case s != cloud:
		return string(s) + " has no state of its own", true
	case f.Cloud == nil:
		return "there is no cloud " + f.Namespace + "/" + f.Name, false
	}
	names := lists.Pick(f.Cloud.Status.Components, func(c v1alpha1.ComponentStatus) (string, bool) {
		return c.Name + " (" + string(c.State) + ")", !c.Settled()
	})
	head := "cloud " + f.Namespace + "/" + f.Name
	switch ready, hindrance := f.condition(v1alpha1.ConditionReady), f.hindrance(); {
	case len(names) == 0 && ready == "":
		return head + " has no status yet", false
	case len(names) == 0 && hindrance == "" && !meta.IsStatusConditionFalse(f.Cloud.Status.Conditions, v1alpha1.ConditionReady):
		return head + " is healthy", true
	default:
		return head + " is not healthy: " + cmp.Or(strings.Join(lists.Some(names, namesShown), ", "), shorten(cmp.Or(hindrance, ready))), false
	}
}

// namesShown is the number of components named in a line.
const namesShown = 5

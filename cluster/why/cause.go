// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/literal"
)

// Layer orders causes without a dependency between them: the lower layer comes first.
type Layer int

// The layers, the lowest first.
const (
	ControlPlane Layer = iota
	Node
	Network
	Storage
	Database
	Identity
	Operator
	Image
	Container
	Setting
	// Symptom causes only repeat the status. Any other cause explains them.
	Symptom
)

// layers holds their names for lists.
var layers = []string{"control plane", "node", "network", "storage", "database", "identity", "operator", "image", "container", "setting", "symptom"}

func (l Layer) String() string { return layers[l] }

// Cause is something that can be wrong. Either Says or When detects it. In What, Why, Next and On, ${pod}, ${namespace}, ${container}, ${node},
// ${component}, ${cloud} and the named groups of Says are replaced with what was found.
type Cause struct {
	// ID is stable, kebab-case and unique. Code is that of the finding; several causes may share it.
	ID, Code string
	Layer    Layer
	// Warning causes do not make a cloud unhealthy.
	Warning bool
	// Past causes report what ended earlier, so no present problem explains them.
	Past bool
	// Title is the cause in a few words, for the list.
	Title string
	// What was found, Why it happens and the Next command, as in a finding.
	What, Why, Next string
	// Says matches a text. In selects the texts to search; 0 means all.
	Says *regexp.Regexp
	In   Place
	// Of restricts the texts further; nil means all.
	Of func(*facts, Text) bool
	// On is the subject at fault if it is not the source of the text: "database".
	On string
	// When detects what no text reports.
	When func(*facts) []Hit
	// Fix repairs it; nil if only a person can.
	Fix *Fix
	// parts holds the literals of Says.
	parts literal.Set
}

// Place is the origin of a text; places can be combined.
type Place int

const (
	// Message is a message of the operator about a component or the cloud.
	Message Place = 1 << iota
	// State is the Kubernetes status of a pod and its containers.
	State
	// Event is a warning about an object.
	Event
	// LogLine is a line from a container's log.
	LogLine
	// Journal is a line from the journal of a unit on a machine.
	Journal
)

// Text is a message or a line of a log about a subject.
type Text struct {
	In Place
	On Subject
	// Source describes it for users: "log of pod default-region-x, container region".
	Source string
	Line   string
	Values map[string]string
	// lower is Line in lower case.
	lower string
}

// Hit is a cause that matches.
type Hit struct {
	On       Subject
	Evidence []string
	Values   map[string]string
	// Via lists subjects affected by On, as far as a text shows it.
	Via []Subject
}

// Causes returns all causes. To add one, add an entry to one of these lists.
func Causes() []Cause {
	return slices.Concat(addressCauses(), controlPlaneCauses(), machineCauses(), nodeCauses(), networkCauses(), storageCauses(), databaseCauses(), identityCauses(),
		imageCauses(), schedulingCauses(), containerCauses(), operatorCauses(), cloudCauses(), agentCauses())
}

// searched returns the causes with the literals of their expressions: a support bundle of a cloud that is down has 100000 lines, and matching a
// hundred expressions on each would take a minute.
var searched = sync.OnceValue(func() []Cause {
	out := Causes()
	for i := range out {
		if says := out[i].Says; says != nil {
			out[i].parts = literal.Of(says)
		}
	}
	return out
})

// Found is a cause with its evidence.
type Found struct {
	finding.Finding
	ID string `json:"id"`
	// On is the subject at fault: "node/n1".
	On Subject `json:"on"`
	// Fix is what --fix would do, nil if only a person can repair it.
	Fix *Repair `json:"fix,omitempty"`
	// Because is the ID of the cause that explains this one, "" if none does.
	Because string `json:"because,omitempty"`

	layer Layer
	past  bool
	via   []Subject
}

// evidenceLimit is the number of lines of evidence kept for a cause: the first ones suffice.
const evidenceLimit = 3

// find applies the causes and merges their hits on the same subject.
func find(f *facts, causes []Cause) []Found {
	type key struct {
		id string
		on Subject
	}
	at := map[key]int{}
	var out []Found
	for _, c := range causes {
		hits := c.said(f)
		if c.When != nil {
			hits = c.When(f)
		}
		for _, h := range hits {
			k := key{c.ID, h.On}
			i, there := at[k]
			if !there {
				i = len(out)
				at[k], out = i, append(out, c.found(f, h))
			}
			old := &out[i]
			old.via = append(old.via, h.Via...)
			old.Evidence = evidenceOf(old.Evidence, h.Evidence)
		}
	}
	return out
}

// merged joins what was found twice: the message of a component quotes the log of its pod, and all pods of a component may say the same about it.
// Otherwise the report would list a cause among what it explains.
func (f *facts) merged(found []Found) []Found {
	var out []Found
	for _, x := range found {
		i := slices.IndexFunc(out, func(y Found) bool { return f.repeats(x, y) })
		if i < 0 {
			out = append(out, x)
			continue
		}
		if y := out[i]; x.On.isPod() && !y.On.isPod() { // the pod's has the values for a command
			out[i], x = x, y
		}
		out[i].via = append(append(out[i].via, x.via...), x.On)
		out[i].Evidence = evidenceOf(out[i].Evidence, x.Evidence)
	}
	return out
}

// repeats reports whether two findings are the same one about a component: one on the component itself, or both naming it or the pod they are on.
func (f *facts) repeats(x, y Found) bool {
	name := f.ownerOf(x.On)
	return x.ID == y.ID && name != "" && name == f.ownerOf(y.On) &&
		(x.On.isPod() != y.On.isPod() || x.withoutPod() == y.withoutPod() && strings.Contains(x.What, name))
}

func (x Found) withoutPod() string { return strings.ReplaceAll(x.What, path.Base(string(x.On)), "") }

// evidenceOf adds lines to evidence, up to the limit.
func evidenceOf(list, more []string) []string {
	for _, e := range more {
		if len(list) < evidenceLimit && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}

// said returns the hits of Says: for each subject the first text that matches, with all further ones.
func (c Cause) said(f *facts) []Hit {
	if c.Says == nil {
		return nil
	}
	var out []Hit
	for _, t := range f.texts {
		if c.In != 0 && t.In&c.In == 0 || !c.parts.MayMatch(t.lower) || c.Of != nil && !c.Of(f, t) {
			continue
		}
		at := c.Says.FindStringSubmatchIndex(t.Line)
		if at == nil {
			continue
		}
		values := map[string]string{}
		maps.Copy(values, t.Values)
		for _, name := range c.Says.SubexpNames() {
			if name != "" {
				values[name] = string(c.Says.ExpandString(nil, "${"+name+"}", t.Line, at))
			}
		}
		h := Hit{On: t.On, Values: values, Evidence: []string{t.Source + ": " + shorten(t.Line)}}
		if c.On != "" {
			h.On, h.Via = Subject(fill(c.On, values)), []Subject{t.On}
		}
		out = append(out, h)
	}
	return out
}

func (c Cause) found(f *facts, h Hit) Found {
	values := f.values(h)
	severity := finding.Error
	if p := f.pod(h.On); c.Warning || p != nil && OfHostAgent(p) && !f.unwell(p) { // only the compute node lacks something: a new one, its network
		severity = finding.Warning
	}
	named := values
	if component := values["component"]; values["pod"] == "" && component != "" { // the operator's message names no pod
		named = maps.Clone(values)
		named["pod"] = "a pod of " + component
	}
	found := Found{ID: c.ID, On: h.On, layer: c.Layer, past: c.Past, Finding: finding.Finding{Code: c.Code, Severity: severity,
		What: fill(cmp.Or(c.What, c.Title), named), Cause: fill(c.Why, named), Remedy: finding.Here(fill(c.Next, values), f.Namespace, f.Name)}}
	if c.Fix != nil {
		found.Fix = c.Fix.repair(values)
	}
	return found
}

var placeholder = regexp.MustCompile(`\$\{(\w+)\}`)

// fill replaces the placeholders in a text. An unknown value becomes its name in capitals, as in the documentation: NODE.
func fill(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		return agentlog.Printable(cmp.Or(values[name], strings.ToUpper(name)))
	})
}

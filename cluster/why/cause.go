// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/literal"
)

// Layer orders causes where no dependency does: what lies lower is named first.
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
	// Symptom causes only repeat what the status says. Any other cause explains them.
	Symptom
)

// layers are their names in lists.
var layers = []string{"control plane", "node", "network", "storage", "database", "identity", "operator", "image", "container", "setting", "symptom"}

func (l Layer) String() string { return layers[l] }

// Cause is something that can be wrong. Either Says or When detects it. In What, Why, Next and On, ${pod}, ${namespace}, ${container},
// ${node}, ${component}, ${cloud} and the named groups of Says stand for what was seen.
type Cause struct {
	// ID is stable, kebab-case and unique; Code is the finding, which several causes may share.
	ID, Code string
	Layer    Layer
	// Warning causes do not make a cloud unhealthy.
	Warning bool
	// Title is the cause in a few words, for the list.
	Title string
	// What was found, Why it happens and the Next command, as in a finding.
	What, Why, Next string
	// Says matches a text, In says which texts are searched; 0 is all.
	Says *regexp.Regexp
	In   Place
	// Of restricts the texts further; nil is all.
	Of func(*facts, Text) bool
	// On is the subject at fault where it is another one than that which said the text: "database".
	On string
	// When finds what no text says.
	When func(*facts) []Hit
	// Fix repairs it; nil if only a person can.
	Fix *Fix
	// parts are literals of Says.
	parts literal.Set
}

// Place is where a text comes from; places add up.
type Place int

// The places.
const (
	// Message is what the operator says of a component or the cloud.
	Message Place = 1 << iota
	// State is what Kubernetes says of a pod and its containers.
	State
	// Event is a warning about an object.
	Event
	// LogLine is a line that a container logged.
	LogLine
	// Journal is a line that a unit of a machine logged.
	Journal
)

// Text is a line of a log, or a message, about a subject.
type Text struct {
	In Place
	On Subject
	// Source names it for people: "log of pod default-region-x, container region".
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
	// Via are subjects that suffer from On, as far as a text said so.
	Via []Subject
}

// Causes are all there are. A new one is an entry in one of these lists.
func Causes() []Cause {
	return slices.Concat(addressCauses(), controlPlaneCauses(), machineCauses(), nodeCauses(), networkCauses(), storageCauses(), databaseCauses(), identityCauses(),
		imageCauses(), schedulingCauses(), containerCauses(), operatorCauses(), cloudCauses(), agentCauses())
}

// searched are the causes with the literals of their expressions: a support bundle of a cloud that is down has 100000 lines, and a hundred expressions on each
// take a minute.
var searched = sync.OnceValue(func() []Cause {
	out := Causes()
	for i := range out {
		if says := out[i].Says; says != nil {
			out[i].parts = literal.Of(says)
		}
	}
	return out
})

// Found is a cause with what was seen of it.
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
	via   []Subject
}

// evidenceLimit is how many lines of evidence a cause keeps: the first ones say it.
const evidenceLimit = 3

// find applies the causes and merges what they find on the same subject.
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
			for _, e := range h.Evidence {
				if len(old.Evidence) < evidenceLimit && !slices.Contains(old.Evidence, e) {
					old.Evidence = append(old.Evidence, e)
				}
			}
		}
	}
	return out
}

// said are the hits of Says: of one subject those of the first text that matches, and every other text with it.
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
	if c.Warning {
		severity = finding.Warning
	}
	found := Found{ID: c.ID, On: h.On, layer: c.Layer, Finding: finding.Finding{Code: c.Code, Severity: severity,
		What: fill(cmp.Or(c.What, c.Title), values), Cause: fill(c.Why, values), Remedy: fill(c.Next, values)}}
	if c.Fix != nil {
		found.Fix = c.Fix.repair(values)
	}
	return found
}

var placeholder = regexp.MustCompile(`\$\{(\w+)\}`)

// fill puts values into a text. A value that is not known becomes its name in capitals, as in the documentation: NODE.
func fill(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		return agentlog.Printable(cmp.Or(values[name], strings.ToUpper(name)))
	})
}

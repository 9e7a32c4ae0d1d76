// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
)

// step is a phase without children, at its position in a plan.
type step[S any] struct {
	name  string
	phase Phase[S]
	// needs holds the indexes of the steps that must end before this one starts.
	needs []int
	skips []func(S) string
}

// node is a phase, with or without children, and the range of steps that it covers.
type node struct {
	name, short string
	depth       int
	first, last int // steps[first:last]
}

type flattening[S any] struct {
	steps []step[S]
	nodes []node
	errs  []error
}

var phaseName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// flatten turns a plan into steps and resolves their dependencies. It reports all mistakes of the plan together.
func flatten[S any](phases []Phase[S]) (*flattening[S], error) {
	f := &flattening[S]{}
	f.add("", phases, 0, nil, false)
	f.link("", phases, nil)
	f.acyclic()
	return f, errors.Join(f.errs...)
}

func (f *flattening[S]) add(parent string, phases []Phase[S], depth int, skips []func(S) string, always bool) {
	for _, p := range phases {
		name := join(parent, p.Name)
		f.inspect(name, p)
		skips := slices.Clip(skips)
		if p.Skip != nil {
			skips = append(skips, p.Skip)
		}
		n := len(f.nodes)
		f.nodes = append(f.nodes, node{name: name, short: p.Short, depth: depth, first: len(f.steps)})
		if len(p.Phases) > 0 {
			f.add(name, p.Phases, depth+1, skips, always || p.Always)
		} else {
			p.Always = always || p.Always
			f.steps = append(f.steps, step[S]{name: name, phase: p, skips: skips})
		}
		f.nodes[n].last = len(f.steps)
	}
}

func (f *flattening[S]) inspect(name string, p Phase[S]) {
	switch {
	case !phaseName.MatchString(p.Name):
		f.errs = append(f.errs, fmt.Errorf("phase %q: the name is not kebab-case", name))
	case slices.ContainsFunc(f.nodes, func(n node) bool { return n.name == name }):
		f.errs = append(f.errs, fmt.Errorf("phase %q: the name occurs twice", name))
	case p.Short == "" || strings.HasSuffix(p.Short, "."):
		f.errs = append(f.errs, fmt.Errorf("phase %q: Short is an imperative line without a period", name))
	case len(p.Phases) > 0 && (p.Run != nil || p.Check != nil || p.Plan != nil || p.Verify != nil || p.Undo != nil):
		f.errs = append(f.errs, fmt.Errorf("phase %q: it has both children and its own work", name))
	case len(p.Phases) == 0 && p.Run == nil:
		f.errs = append(f.errs, fmt.Errorf("phase %q: it has neither children nor Run", name))
	}
}

func (f *flattening[S]) link(parent string, phases []Phase[S], inherited []int) {
	for i, p := range phases {
		name := join(parent, p.Name)
		needs := slices.Clone(inherited)
		switch {
		case p.After == nil && i > 0:
			needs = append(needs, f.covered(join(parent, phases[i-1].Name))...)
		case p.After != nil:
			for _, after := range p.After {
				found, ok := f.find(parent, after)
				if !ok {
					f.errs = append(f.errs, fmt.Errorf("phase %q: After names %q, which is not in the plan", name, after))
				}
				needs = append(needs, f.covered(found)...)
			}
		}
		slices.Sort(needs)
		needs = slices.Compact(needs)
		if len(p.Phases) > 0 {
			f.link(name, p.Phases, needs)
		} else if at := slices.IndexFunc(f.steps, func(s step[S]) bool { return s.name == name }); at >= 0 {
			f.steps[at].needs = needs
		}
	}
}

// find resolves a name in After: first as a sibling, then as a name in the whole plan.
func (f *flattening[S]) find(parent, name string) (string, bool) {
	for _, full := range []string{join(parent, name), name} {
		if slices.ContainsFunc(f.nodes, func(n node) bool { return n.name == full }) {
			return full, true
		}
	}
	return "", false
}

func (f *flattening[S]) covered(name string) []int {
	var out []int
	for _, n := range f.nodes {
		if n.name == name {
			for i := n.first; i < n.last; i++ {
				out = append(out, i)
			}
		}
	}
	return out
}

func (f *flattening[S]) acyclic() {
	ended := make([]bool, len(f.steps))
	for progress := true; progress; {
		progress = false
		for i, s := range f.steps {
			if !ended[i] && !slices.ContainsFunc(s.needs, func(n int) bool { return !ended[n] }) {
				ended[i], progress = true, true
			}
		}
	}
	var stuck []string
	for i, s := range f.steps {
		if !ended[i] {
			stuck = append(stuck, s.name)
		}
	}
	if len(stuck) > 0 {
		f.errs = append(f.errs, fmt.Errorf("phases wait for each other: %s", strings.Join(stuck, ", ")))
	}
}

// Validate returns every mistake of a plan: duplicate or invalid names, After names that do not exist, cycles.
func Validate[S any](phases []Phase[S]) error {
	_, err := flatten(phases)
	return err
}

// Row is a phase as help shows it.
type Row struct {
	Name, Short string
	Depth       int
}

// Table lists the phases of a plan with their children, in order.
func Table[S any](phases []Phase[S]) []Row {
	f, _ := flatten(phases)
	return lists.Map(f.nodes, func(n node) Row { return Row{Name: n.name, Short: n.short, Depth: n.depth} })
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "/" + name
}

// mode is how a run treats a step.
type mode int

const (
	walk    mode = iota // skip, check, run
	skipped             // by --skip-phases: reported, not run
	absent              // not selected: neither reported nor run
)

// choose sets the mode of every step. A parent's name covers its children.
func (f *flattening[S]) choose(plan string, skip, only []string) ([]mode, error) {
	for _, list := range [][]string{skip, only} {
		for _, name := range list {
			if !slices.ContainsFunc(f.nodes, func(n node) bool { return n.name == name }) {
				return nil, f.unknown(plan, name)
			}
		}
	}
	modes := make([]mode, len(f.steps))
	for i, s := range f.steps {
		switch {
		case covers(skip, s.name):
			modes[i] = skipped
		case len(only) > 0 && !s.phase.Always && !covers(only, s.name):
			modes[i] = absent
		}
	}
	return modes, nil
}

func covers(names []string, step string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return n == step || strings.HasPrefix(step, n+"/") })
}

func (f *flattening[S]) unknown(plan, name string) error {
	names := lists.Map(f.nodes, func(n node) string { return n.name })
	remedy := "ocadm " + plan + " --help lists the phases"
	if guess, ok := nearest.To(name, names); ok {
		remedy = fmt.Sprintf("did you mean %q? %s", guess, remedy)
	}
	return finding.New("OCA-0402", fmt.Sprintf("%s has no phase %q", plan, name), "the phases are: "+strings.Join(names, ", "), remedy)
}

// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nearest"
)

// mode is what a run does with a step.
type mode int

const (
	walk    mode = iota // skip, check, run
	skipped             // by --skip-phases: reported, not run
	absent              // not among the selected ones: neither reported nor run
)

// choose gives every step its mode. A parent's name covers its children.
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
	var names []string
	for _, n := range f.nodes {
		names = append(names, n.name)
	}
	remedy := "ocadm " + plan + " --help lists the phases"
	if guess, ok := nearest.To(name, names); ok {
		remedy = fmt.Sprintf("did you mean %q? %s", guess, remedy)
	}
	return finding.New("OCA-0402", fmt.Sprintf("%s has no phase %q", plan, name), "the phases are: "+strings.Join(names, ", "), remedy)
}

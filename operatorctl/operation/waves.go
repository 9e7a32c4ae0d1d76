// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// waveNames are the waves of an update, in their order.
var waveNames = []string{"identity", "region", "services", "agents"}

// waves are the components of each wave: identity and region with what they need, everything else, and last what runs on compute nodes. A
// component is in no wave before one that it comes after. It is pure.
func waves(components []component.Component) []v1alpha1.Wave {
	all := map[string]component.Component{}
	for _, c := range components {
		all[c.Name] = c
	}
	of := map[string]int{}
	var need func(name string, wave int)
	need = func(name string, wave int) {
		if was, known := of[name]; known && was <= wave {
			return
		}
		of[name] = wave
		for _, before := range all[name].After {
			need(before, wave)
		}
	}
	need("keystone", 0)
	need("region", 1)
	var place func(name string) int
	place = func(name string) int {
		if wave, known := of[name]; known {
			return wave
		}
		wave := 2
		if all[name].Workload.Kind == component.DaemonSet {
			wave = 3
		}
		for _, before := range all[name].After {
			wave = max(wave, place(before))
		}
		of[name] = wave
		return wave
	}
	out := make([]v1alpha1.Wave, len(waveNames))
	for i, name := range waveNames {
		out[i].Name = name
	}
	for _, c := range components {
		i := place(c.Name)
		out[i].Components = append(out[i].Components, c.Name)
	}
	return out
}

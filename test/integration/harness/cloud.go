// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Only returns a cloud with only the given components. It enables those that are off by default and disables all others.
func Only(cr *v1alpha1.OnecloudCluster, keep ...string) *v1alpha1.OnecloudCluster {
	kept := map[string]bool{}
	for _, c := range catalog.All() {
		if slices.Contains(keep, c.Name) {
			kept[blockOf(c)[0]] = true
		}
	}
	return edited(cr, func(set func(v any, path ...string)) {
		for _, c := range catalog.All() {
			switch at := blockOf(c); {
			case c.OffByDefault && slices.Contains(keep, c.Name):
				set(false, append(at, "disable")...)
			case at[0] == "components":
				if !slices.Contains(keep, c.Name) {
					set(true, append(at, "disable")...)
				}
			case !kept[at[0]]:
				set(true, at[0], "disable")
			}
		}
	})
}

// OtherPorts returns a cloud with all its node ports changed, numbered from the given one: two clouds in a cluster cannot share ports.
func OtherPorts(cr *v1alpha1.OnecloudCluster, from int64) *v1alpha1.OnecloudCluster {
	return edited(cr, func(set func(v any, path ...string)) {
		for _, c := range catalog.All() {
			for _, s := range c.Services() {
				for _, p := range s.Ports {
					if p.SpecKey != "" && !s.Headless {
						set(from, append(blockOf(c), strings.Split(p.SpecKey, ".")...)...)
						from++
					}
				}
			}
		}
	})
}

// blockOf returns the path of a component's block below spec.
func blockOf(c component.Component) []string {
	if c.SpecKey == "" {
		return []string{"components", c.Name}
	}
	return strings.Split(c.SpecKey, ".")
}

// edited returns a copy of a cloud with values set below spec.
func edited(cr *v1alpha1.OnecloudCluster, edit func(set func(v any, path ...string))) *v1alpha1.OnecloudCluster {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cr)
	if err != nil {
		panic(err) // our own types always convert
	}
	edit(func(v any, path ...string) {
		if err := unstructured.SetNestedField(m, v, append([]string{"spec"}, path...)...); err != nil {
			panic(err)
		}
	})
	out := &v1alpha1.OnecloudCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, out); err != nil {
		panic(err)
	}
	return out
}

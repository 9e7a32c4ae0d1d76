// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// cloudmux is a pod with the command-line tools of other clouds; users open a shell in it.
func cloudmux() component.Component {
	return component.Component{
		Name: "cloudmux", SpecKey: "cloudmux", Summary: "command lines of other clouds",
		Single:   "a shell for administrators; no service depends on it",
		Releases: component.Releases{First: "v3.10.5"},
		Products: withoutAI, OffByDefault: true,
		Image:    component.Image{EE: "cloudmux-ee", EEFor: eeOnly},
		Workload: component.Workload{Command: []string{"tail", "-f", "/dev/null"}, Security: usualRights()},
	}
}

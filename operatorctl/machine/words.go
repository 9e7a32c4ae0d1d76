// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"regexp"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// settings maps flags of ocadm join to fields of a machine.
var settings = map[string]string{
	"--node-ip": "settings.ip", "--offline": "settings.offline", "--mirror": "settings.mirror", "--registry-mirror": "settings.registryMirrors",
	"--http-proxy": "settings.httpProxy", "--https-proxy": "settings.httpsProxy", "--no-proxy": "settings.noProxy", "--hugepages": "settings.hugepages",
	"--host-local-image-path": "settings.hostLocalImagePath", "--allow-cgroup-v1": "settings.allowCgroupV1",
	"--conntrack-max-per-core": "settings.conntrackMaxPerCore", "--host-networks": "hostNetworks", "--enable-host-agent": "roles: [compute]",
}

var flag = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// bound is callin.Bound for findings of ocadm join, whose remedies name flags: it adds the fields of a machine.
func bound(sent finding.List) finding.List {
	out := callin.Bound(sent, maxFindings)
	for i, f := range out {
		for _, name := range flag.FindAllString(f.Remedy, -1) {
			if field := "; for a machine, " + name + " is " + settings[name]; settings[name] != "" && !strings.Contains(out[i].Remedy, field) {
				out[i].Remedy += field
			}
		}
	}
	return out
}

// firstError returns the first error of an operation, empty if there is none.
func firstError(o *v1alpha1.OnecloudOperation) v1alpha1.OperationFinding {
	return lists.First(o.Status.Findings, func(f v1alpha1.OperationFinding) bool { return !f.Warning })
}

// codeOf returns the code of the first error of an operation, "" if there is none.
func codeOf(o *v1alpha1.OnecloudOperation) string { return firstError(o).Code }

// reasonOf returns this code as a condition reason: "OCA_7601" for OCA-7601, because a reason has no hyphens.
func reasonOf(o *v1alpha1.OnecloudOperation, other string) string {
	return cmp.Or(reason(codeOf(o)), other)
}

func reason(code string) string { return strings.ReplaceAll(code, "-", "_") }

// text returns the first error of an operation with its remedy, or else other.
func text(o *v1alpha1.OnecloudOperation, other string) string {
	if f := firstError(o); f.What != "" {
		return sentence(f.Code, f.What, f.Cause, f.Remedy)
	}
	return other
}

// sentence formats a finding in one line.
func sentence(code, what, cause, remedy string) string {
	out := code + ": " + what
	for _, more := range []string{cause, remedy} {
		if more != "" {
			out += "; " + more
		}
	}
	return out
}

// progress describes the progress of a running operation in words that change rarely: each change is a write.
func progress(o *v1alpha1.OnecloudOperation) string {
	switch {
	case o.Status.Phase == "" || o.Status.Phase == v1alpha1.OperationPending:
		return "operation " + o.Name + " is waiting for its turn"
	case o.Status.Step == "": // its pod has not started
		return cmp.Or(o.Status.Message, "operation "+o.Name+" is starting")
	case o.Status.Phase == v1alpha1.OperationPaused:
		return o.Status.Message
	}
	return "operation " + o.Name + " is at step " + o.Status.Step
}

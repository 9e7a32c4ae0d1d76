// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"regexp"
	"strings"

	"yunion.io/x/ocadm/docs/reference"
)

// Explanation explains a code, independent of any occurrence.
type Explanation struct {
	Code string `json:"code"`
	// Title is the finding in a few words.
	Title string `json:"title"`
	// Text explains the cause and what to do.
	Text string `json:"text"`
}

var heading = regexp.MustCompile(`^### (OCA-[0-9]{4}) (.+)$`)

// Catalogue returns the explanations of all codes, in numerical order: those of docs/reference/findings.md.
func Catalogue() []Explanation {
	var out []Explanation
	for line := range strings.Lines(reference.Findings) {
		line = strings.TrimRight(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			out = append(out, Explanation{Code: m[1], Title: m[2]})
		} else if len(out) > 0 && !strings.HasPrefix(line, "## ") {
			out[len(out)-1].Text += line + "\n"
		}
	}
	for i := range out {
		out[i].Text = strings.TrimSpace(out[i].Text)
	}
	return out
}

// SameCode reports whether what a user typed means a code: "oca-6002" and "6002" are OCA-6002.
func SameCode(code, typed string) bool {
	typed = strings.ToUpper(strings.TrimSpace(typed))
	return typed == code || "OCA-"+typed == code
}

// Area returns the subject of a code, by its exit status.
func Area(code string) string {
	status := ExitCode(code)
	return cmp.Or(areas[status], areas[status/10*10], "other")
}

// areas holds subjects by exit status; from 10 on, all of a decade share one.
var areas = map[int]string{
	ExitPreflight: "preflight", ExitConfig: "configuration", ExitUsage: "usage",
	10: "host", 20: "network, registry, bundle", 30: "runtime, kubelet", 40: "etcd, control plane", 50: "pod network, storage", 60: "database",
	70: "operator, services", 80: "upgrade", 90: "reset residue",
}

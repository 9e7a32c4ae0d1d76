// SPDX-License-Identifier: Apache-2.0

package finding

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// Explanation is what a code means, without the circumstances of one occurrence.
type Explanation struct {
	Code string `json:"code"`
	// Title is the finding in a few words.
	Title string `json:"title"`
	// Text says why it happens and what to do.
	Text string `json:"text"`
}

//go:embed catalogue.md
var catalogue string

var heading = regexp.MustCompile(`^## (OCA-[0-9]{4}) (.+)$`)

// Catalogue is every code there is, in the order of their numbers. It is the text of docs/reference/findings.md.
func Catalogue() ([]Explanation, error) {
	var out []Explanation
	for line := range strings.Lines(catalogue) {
		line = strings.TrimRight(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			out = append(out, Explanation{Code: m[1], Title: m[2]})
			continue
		}
		if strings.HasPrefix(line, "## ") {
			return nil, fmt.Errorf("reading the catalogue of findings: %q is not a heading", line)
		}
		if len(out) > 0 && !strings.HasPrefix(line, "# ") {
			out[len(out)-1].Text += line + "\n"
		}
	}
	for i := range out {
		out[i].Text = strings.TrimSpace(out[i].Text)
	}
	return out, nil
}

// SameCode reports whether a user's text means a code: "oca-6002" and "6002" are OCA-6002.
func SameCode(code, typed string) bool {
	typed = strings.ToUpper(strings.TrimSpace(typed))
	return typed == code || "OCA-"+typed == code
}

// Area names what a code is about, by its exit status.
func Area(code string) string {
	switch n := ExitCode(code); {
	case n == ExitPreflight:
		return "preflight"
	case n == ExitConfig:
		return "configuration"
	case n == ExitUsage:
		return "usage"
	case n >= 10 && n < 20:
		return "host"
	case n < 30 && n >= 20:
		return "network, registry, bundle"
	case n < 40 && n >= 30:
		return "runtime, kubelet"
	case n < 50 && n >= 40:
		return "etcd, control plane"
	case n < 60 && n >= 50:
		return "pod network, storage"
	case n < 70 && n >= 60:
		return "database"
	case n < 80 && n >= 70:
		return "operator, services"
	case n < 90 && n >= 80:
		return "upgrade"
	case n < 100 && n >= 90:
		return "reset residue"
	}
	return "other"
}

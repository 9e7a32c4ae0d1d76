// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

// outputLines is how many lines of a failed program's output are shown.
const outputLines = 12

// Findings prints findings with cause, evidence and remedy.
func Findings(w io.Writer, program string, list finding.List) {
	for _, f := range list {
		head := program + ": " + f.Code + ": "
		if f.Severity == finding.Warning {
			head = "warning " + f.Code + ": "
		}
		fmt.Fprintln(w, head+f.What)
		labelled(w, "why", f.Cause)
		for _, e := range f.Evidence {
			labelled(w, "seen", e)
		}
		labelled(w, "next", f.Remedy)
		if f.Severity == finding.Error && f.Check != "" {
			labelled(w, "or", "--ignore-preflight-errors="+f.Check+" to ignore it")
		}
	}
}

func labelled(w io.Writer, label, text string) {
	if text == "" {
		return
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			label = ""
		} else {
			label += ":"
		}
		fmt.Fprintf(w, "  %-6s%s\n", label, line)
	}
}

// Error prints an error that ends the program: its findings if it has any, otherwise its text and the end of the output of a failed program.
func Error(w io.Writer, program string, err error) {
	if l := finding.Of(err); len(l) > 0 {
		Findings(w, program, l)
		if phase, ok := errors.AsType[*workflow.PhaseError](err); ok {
			fmt.Fprintf(w, "%s: %s stopped in phase %s\n", program, phase.Plan, phase.Phase)
		}
		return
	}
	fmt.Fprintln(w, program+": "+err.Error())
	if out, ok := exec.Output(err); ok {
		all := strings.Split(strings.TrimRight(out, "\n"), "\n")
		for _, line := range all[max(0, len(all)-outputLines):] {
			fmt.Fprintln(w, "  | "+line)
		}
	}
}

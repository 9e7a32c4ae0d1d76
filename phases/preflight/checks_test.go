// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"regexp"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

// Checks are identified by name and code, so both are unique, and every finding of a check has one of its codes.
func TestChecksAreDistinct(t *testing.T) {
	names, codes := map[string]bool{}, map[string]string{}
	shape := regexp.MustCompile(`^OCA-\d{4}$`)
	for _, c := range Checks() {
		if names[c.Name] || c.Short == "" || len(c.Codes) == 0 || c.run == nil || !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(c.Name) {
			t.Errorf("check %q is incomplete or there twice", c.Name)
		}
		names[c.Name] = true
		for _, code := range c.Codes {
			if codes[code] != "" || !shape.MatchString(code) {
				t.Errorf("code %s of %s is malformed, or of %s too", code, c.Name, codes[code])
			}
			codes[code] = c.Name
		}
	}
}

func TestChecksHaveTheirTime(t *testing.T) {
	for _, c := range Checks() {
		if have := Phase(Init).Timeout; c.Timeout >= have {
			t.Errorf("%s may take %s, and the phase ends after %s", c.Name, c.Timeout, have)
		}
	}
}

func TestAllFindingsAreReported(t *testing.T) {
	m := goodMachine(t)
	m.h.Facts.UID, m.h.Facts.CPUs, m.h.Facts.Swap = 1000, 1, []string{"/swap"}
	found := gather(t.Context(), m, checksButJoin(), map[string]float64{})
	if len(found.Errors()) != 3 {
		t.Fatalf("found %v", found)
	}
	if err := report(found, nil, workflow.Discard{}); finding.ExitStatus(err) != finding.ExitPreflight {
		t.Errorf("exit status %d", finding.ExitStatus(err))
	}
	err := report(found, []string{"cpu", "SWAP"}, workflow.Discard{})
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-1001" {
		t.Errorf("after ignoring two: %v", err)
	}
	if err := report(found, []string{"all"}, workflow.Discard{}); err != nil {
		t.Errorf("after ignoring all: %v", err)
	}
}

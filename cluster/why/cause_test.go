// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"testing"
)

// Without literals, an expression is tried on every line of a support bundle, which takes minutes. Only the one that matches any message has no
// literals.
func TestSearched(t *testing.T) {
	for _, c := range searched() {
		if c.Says != nil && len(c.parts) == 0 && c.ID != "component-degraded" {
			t.Errorf("%s has no literal: %s", c.ID, c.Says)
		}
	}
}

// A further rule about a code must not change the IDs of other codes, which scripts compare.
func TestIDsOfAgentCauses(t *testing.T) {
	of := map[string]int{}
	for _, c := range agentCauses() {
		of[c.Code]++
		if want := fmt.Sprintf("agent-%s-%d", c.Code[len("OCA-"):], of[c.Code]); c.ID != want {
			t.Errorf("%s, want %s", c.ID, want)
		}
	}
}

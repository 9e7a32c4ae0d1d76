// SPDX-License-Identifier: Apache-2.0

package why

import "testing"

// Without literals, an expression is tried on every line of a support bundle, which takes minutes. Only the one that matches any message has no
// literals.
func TestSearched(t *testing.T) {
	for _, c := range searched() {
		if c.Says != nil && len(c.parts) == 0 && c.ID != "component-degraded" {
			t.Errorf("%s has no literal: %s", c.ID, c.Says)
		}
	}
}

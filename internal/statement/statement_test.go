// SPDX-License-Identifier: Apache-2.0

package statement

import "testing"

func TestVerb(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT 1": "SELECT", "CREATE USER x": "CREATE USER", "DROP\n DATABASE x": "DROP DATABASE", "SHOW GRANTS": "SHOW GRANTS", "GRANT ALL": "GRANT", "SHOW": "SHOW",
	} {
		if got := Verb(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	if got := Redact("a secret, another, a secret", "secret", "", "another"); got != "a ***, ***, a ***" {
		t.Error(got)
	}
}

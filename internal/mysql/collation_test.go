// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"strings"
	"testing"
)

// A server without a collation of the databases is refused before anything is copied: the copy would fail in the middle.
func TestAccepts(t *testing.T) {
	a := open(t, root(t))
	run(t, a, "CREATE DATABASE words CHARACTER SET latin1", "CREATE TABLE words.t (a VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, b INT, c JSON)")
	if err := a.Accepts(t.Context(), a, "words", "none"); err != nil {
		t.Error(err)
	}
	const foreign = "utf8mb4_nowhere_ci"
	err := a.has(t.Context(), []string{"latin1 latin1_bin", "utf8mb4 " + foreign, "nowhere nowhere_bin"})
	if ClassOf(err) != NoCollation || !strings.Contains(err.Error(), foreign+", nowhere_bin,") || strings.Contains(err.Error(), "latin1") {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// TestContractIsTested looks for the test of each row of the contract with Cluster API.
func TestContractIsTested(t *testing.T) {
	root := os.DirFS("..")
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, dir := range []string{"api", "operatorctl", "test/integration"} {
		err := fs.WalkDir(root, dir, func(name string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(name, "_test.go") {
				for _, m := range function.FindAllStringSubmatch(read(root, name), -1) {
					tests[m[1]] = true
				}
			}
			return err
		})
		require.NoError(t, err)
	}
	rows := 0
	for line := range strings.Lines(read(root, "docs/reference/cluster-api.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(line, "|--") || strings.TrimSpace(cells[2]) == "Test" {
			continue
		}
		rows++
		here, test := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		name := strings.Trim(test, "`")
		switch {
		case test == "–" && !strings.HasPrefix(here, "absent"):
			t.Errorf("a rule that is met has no test: %s", line)
		case test != "–" && !tests[name]:
			t.Errorf("there is no test %s: %s", name, line)
		}
	}
	if rows < 20 {
		t.Errorf("the page has %d rows", rows)
	}
}

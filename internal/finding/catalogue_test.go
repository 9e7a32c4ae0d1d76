// SPDX-License-Identifier: Apache-2.0

package finding_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/docs/reference"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

const root = "../.."

// Every code that the program can show is explained, and no other.
func TestEveryCodeIsExplained(t *testing.T) {
	all := finding.Catalogue()
	explained := map[string]bool{}
	last := ""
	for _, e := range all {
		if e.Code <= last {
			t.Errorf("%s comes after %s", e.Code, last)
		}
		if last = e.Code; e.Text == "" || strings.HasSuffix(e.Title, ".") || finding.Area(e.Code) == "other" {
			t.Errorf("%s: title %q, text %q, area %s", e.Code, e.Title, e.Text, finding.Area(e.Code))
		}
		explained[e.Code] = true
	}
	used := codesInSource(t)
	for _, code := range slices.Sorted(maps.Keys(used)) {
		if !explained[code] {
			t.Errorf("%s (%s) is not explained in docs/reference/findings.md", code, used[code])
		}
	}
	for code := range explained {
		if used[code] == "" {
			t.Errorf("%s is explained and nothing shows it", code)
		}
	}
}

func codesInSource(t *testing.T) map[string]string {
	t.Helper()
	code := regexp.MustCompile(`"(OCA-[0-9]{4})"`)
	used := map[string]string{}
	for _, dir := range []string{"cluster", "cmd", "internal", "operatorctl", "phases"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(raw)) {
				if strings.HasPrefix(strings.TrimSpace(line), "//") {
					continue
				}
				for _, m := range code.FindAllStringSubmatch(line, -1) {
					used[m[1]] = path
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	return used
}

// Each code has its heading below that of its area.
func TestHeadings(t *testing.T) {
	head, _, _ := strings.Cut(reference.Findings, "\n## ")
	want, area := head, ""
	for _, e := range finding.Catalogue() {
		if a := finding.Area(e.Code); a != area {
			area = a
			want += "\n## " + strings.ToUpper(a[:1]) + a[1:] + "\n"
		}
		want += "\n### " + e.Code + " " + e.Title + "\n\n" + e.Text + "\n"
	}
	if d := cmp.Diff(want, reference.Findings); d != "" {
		t.Errorf("docs/reference/findings.md:\n%s", d)
	}
}

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

	"yunion.io/x/ocadm/internal/finding"
)

const root = "../.."

// Every code that the program can show is explained, and no other.
func TestEveryCodeIsExplained(t *testing.T) {
	all, err := finding.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%s (%s) is not explained in internal/finding/catalogue.md", code, used[code])
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
		if err != nil {
			t.Fatal(err)
		}
	}
	return used
}

// docs/reference/findings.md is the catalogue with a header; UPDATE=1 writes it.
func TestDocs(t *testing.T) {
	all, err := finding.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Findings\n\nEvery problem that ocadm reports has a code. The meaning of a code never changes. `ocadm explain CODE` prints these texts offline.\n" +
		"The first two digits are the [exit status](exit-codes.md). This page is generated from `internal/finding/catalogue.md`\n" +
		"(`UPDATE=1 go test ./internal/finding`): a new code goes there, in the next free number of its area.\n")
	area := ""
	for _, e := range all {
		if a := finding.Area(e.Code); a != area {
			area = a
			b.WriteString("\n## " + strings.ToUpper(a[:1]) + a[1:] + "\n")
		}
		b.WriteString("\n### " + e.Code + " " + e.Title + "\n\n" + e.Text + "\n")
	}
	file := filepath.Join(root, "docs", "reference", "findings.md")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/reference/findings.md is not up to date: UPDATE=1 go test ./internal/finding (%v)", err)
	}
}

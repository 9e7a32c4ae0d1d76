// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// page describes how to add a component.
const page = "docs/contributing/adding-a-component.md"

// within is set for the copy's own tests, so that they do not follow the page again.
const within = "OCADM_TEST_WITHIN_A_COPY"

// TestAddingAComponent follows the page literally in a copy of the repository: its file, its line, its commands.
func TestAddingAComponent(t *testing.T) {
	if testing.Short() || os.Getenv(within) != "" {
		t.Skip("builds the program")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	dir := t.TempDir()
	copyRepository(t, root, dir)

	code, shell := blocks(string(text), "go"), blocks(string(text), "sh")
	name := regexp.MustCompile("New file `([^`]+)`").FindStringSubmatch(string(text))
	list := regexp.MustCompile("in `All\\(\\)` of `([^`]+)`").FindStringSubmatch(string(text))
	if len(code) < 2 || len(shell) == 0 || name == nil || list == nil {
		t.Fatalf("the page has %d blocks of Go, %d of commands, files %q and %q", len(code), len(shell), name, list)
	}
	write(t, filepath.Join(dir, name[1]), code[0])
	table, err := os.ReadFile(filepath.Join(dir, list[1]))
	require.NoError(t, err)
	line := code[1]
	if strings.Count(strings.TrimSpace(line), "\n") != 0 {
		t.Errorf("the second step is more than a line: %q", line)
	}
	const last = "\t\tbackup(),\n"
	if !strings.Contains(string(table), last) {
		t.Fatal("the list of components has no backup() to come after")
	}
	write(t, filepath.Join(dir, list[1]), strings.Replace(string(table), last, last+line, 1))

	var out string
	for _, commands := range shell {
		out += run(t, dir, commands)
	}
	for _, want := range []string{"kind: CronJob", "name: default-cronjob-test", "schedule: '* * * * *'", "- echo\n", "- hello world\n", "library/busybox:"} {
		if !strings.Contains(out, want) {
			t.Errorf("what is rendered lacks %q", want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "operatorctl/render/testdata/ce/cronjob-test.yaml")); err != nil {
		t.Error(err)
	}
}

// blocks returns the page's code blocks in one language, without their list indentation.
func blocks(text, language string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^   ```"+language+"\n(.*?)^   ```$").FindAllStringSubmatch(text, -1) {
		var b strings.Builder
		for l := range strings.Lines(m[1]) {
			b.WriteString(strings.TrimPrefix(l, "   "))
		}
		out = append(out, b.String())
	}
	return out
}

// run runs commands in a shell and returns their standard output.
func run(t *testing.T, dir, commands string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false -vet=off", "CGO_ENABLED=0", within+"=1") // lint vets
	var story strings.Builder
	c.Stderr = &story
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s\n%v\n%s%s", commands, err, out, &story)
	}
	return string(out)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// copyRepository copies a checkout without build artifacts.
func copyRepository(t *testing.T, from, to string) {
	t.Helper()
	left := []string{".git", "bin", "dist"}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case relErr != nil:
			return relErr
		case slices.Contains(left, rel) && d.IsDir():
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), raw, 0o644)
	})
	require.NoError(t, err)
}

// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/docs"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/test/require"
)

// Facts in the docs are compared with the program.
const root = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(raw)
}

func TestDocumentedSettings(t *testing.T) {
	defaults := config.Default()
	var b strings.Builder
	b.WriteString("| flag | variable | key in the file | default | of | |\n|---|---|---|---|---|---|\n")
	for _, s := range config.Settings() {
		flag, env := "(the argument)", ""
		if s.Flag != "" {
			flag, env = "`--"+s.Flag+"`", "`"+s.Env()+"`"
		}
		value := config.Text(&defaults, s.Key)
		if strings.Contains(s.Usage, "(default") || value == "[]" {
			value = "" // the text describes it
		}
		if value != "" {
			value = "`" + value + "`"
		}
		var of []string
		for _, c := range []struct {
			name string
			is   config.For
		}{{"init", config.ForInit}, {"join", config.ForJoin}, {"reset", config.ForReset}, {"cluster, component, node", config.ForCloud}, {"operator run", config.ForOperator},
			{"operator install", config.ForInstall}} {
			if s.For&c.is != 0 {
				of = append(of, c.name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n", flag, env, s.Key, value, strings.Join(of, ", "), docs.Cell(s.Usage))
	}
	docs.Block(t, "docs/reference/settings.md", "settings", b.String())
}

func TestDocumentedChecks(t *testing.T) {
	for name, checks := range map[string][]preflight.Check{"checks": preflight.MachineChecks(), "cluster-checks": preflight.ClusterChecks()} {
		var b strings.Builder
		b.WriteString("| check | passes if | codes |\n|---|---|---|\n")
		for _, c := range checks {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, docs.Cell(c.Short), strings.Join(c.Codes, " "))
		}
		docs.Block(t, "docs/reference/preflight.md", name, b.String())
	}
}

// run runs a command that must succeed and returns its standard output.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, story bytes.Buffer
	if status := cmd.Execute(t.Context(), cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &story}, args); status != 0 {
		t.Fatalf("ocadm %s ends with %d: %s", strings.Join(args, " "), status, story.String())
	}
	return out.Bytes()
}

// The example is valid for both commands, and has every setting.
func TestExampleConfiguration(t *testing.T) {
	for _, s := range config.Settings() {
		if s.Flag != "" {
			t.Setenv(s.Env(), "")
		}
	}
	const file = "docs/examples/ocadm.yaml"
	for _, command := range []string{"init", "join"} {
		run(t, "config", "validate", "--config", filepath.Join(root, file), "--for", command)
	}
	text := read(t, file)
	given, err := config.Parse(file, []byte(text))
	require.NoError(t, err)
	for _, s := range config.Settings() {
		section, key, _ := strings.Cut(s.Key, ".")
		_, rest, _ := strings.Cut(text, "\n"+section+":\n")
		lines, _, _ := strings.Cut(rest, "\n\n")
		if _, ok := given[s.Key]; !ok && !strings.Contains("\n"+lines, "\n  # "+key+": ") {
			t.Errorf("%s does not have %s", file, s.Key)
		}
	}
}

func TestExampleClouds(t *testing.T) {
	for file, more := range map[string]string{"cloud": "kind: Ingress\n", "clickhouse": "tcp://192.0.2.6:9000?database=yunioncloud&"} {
		out := string(run(t, "operator", "render", "-f", filepath.Join(root, "docs/examples", file+".yaml")))
		for _, want := range []string{"name: default-keystone\n", "registry.cn-beijing.aliyuncs.com/yunionio/region:v4.0.3\n", more} {
			if !strings.Contains(out, want) {
				t.Errorf("%s renders no %q", file, want)
			}
		}
	}
}

// Every word used by the status, the events and the exit status is explained.
func TestDocumentedWords(t *testing.T) {
	for _, c := range []struct{ source, pattern, doc string }{
		{"api/v1alpha1/status_types.go", `(?m)^\t(?:Phase|Condition)\w+ +(?:Phase +)?= "(\w+)"`, "docs/reference/status.md"},
		{"api/v1alpha1/status_types.go", `(?m)^\t\w+ State = "(\w+)"`, "docs/reference/status.md"},
		{"operatorctl/status/component.go", `(?m)^\tReason\w+ += "(\w+)"`, "docs/reference/status.md"},
		{"operatorctl/status/cluster.go", `set\(v1alpha1\.Condition\w+, \w+, "(\w+)"`, "docs/reference/status.md"},
		{"internal/workflow/phase.go", `EventType = "([\w-]+)"`, "docs/reference/events.md"},
	} {
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(read(t, c.source), -1)
		if len(found) < 3 {
			t.Errorf("%s: %s finds only %v", c.source, c.pattern, found)
		}
		doc := read(t, c.doc)
		for _, m := range found {
			if !strings.Contains(doc, "`"+m[1]+"`") {
				t.Errorf("%s does not explain %s (%s)", c.doc, m[1], c.source)
			}
		}
	}
}

func TestDocumentedExitCodes(t *testing.T) {
	documented := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+)(?:–(\d+))? \|`).FindAllStringSubmatch(read(t, "docs/reference/exit-codes.md"), -1) {
		first, _ := strconv.Atoi(m[1])
		last, err := strconv.Atoi(m[2])
		if err != nil {
			last = first
		}
		for n := first; n <= last; n++ {
			documented[n] = true
		}
	}
	for _, e := range finding.Catalogue() {
		if !documented[finding.ExitCode(e.Code)] {
			t.Errorf("docs/reference/exit-codes.md does not have the status of %s", e.Code)
		}
	}
	for _, n := range []int{finding.ExitOK, finding.ExitOther, finding.ExitPreflight, finding.ExitConfig, finding.ExitUsage, finding.ExitTimeout, finding.ExitInterrupted} {
		if !documented[n] {
			t.Errorf("docs/reference/exit-codes.md does not have %d", n)
		}
	}
}

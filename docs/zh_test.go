// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"yunion.io/x/ocadm/test/require"
)

// translated are the English pages that users need to install and operate a cloud. Each has a counterpart in docs/zh.
var translated = []string{
	"README.md",
	"docs/backup.md",
	"docs/bundles.md",
	"docs/cheat-sheet.md",
	"docs/compatibility.md",
	"docs/compute-nodes.md",
	"docs/api.md",
	"docs/page.md",
	"docs/fleet.md", "docs/machines.md",
	"docs/move.md",
	"docs/certificates.md", "docs/configure.md", "docs/control-plane-settings.md",
	"docs/day2.md",
	"docs/kubernetes-upgrade.md",
	"docs/depot.md",
	"docs/distributions.md",
	"docs/existing-cluster.md",
	"docs/first-steps.md",
	"docs/glossary.md",
	"docs/database.md",
	"docs/high-availability.md",
	"docs/install.md",
	"docs/monitoring/README.md",
	"docs/online.md",
	"docs/operate.md",
	"docs/upgrade.md",
	"docs/quickstart.md",
	"docs/reference/status.md",
	"docs/troubleshooting.md",
}

var (
	header     = regexp.MustCompile(`^<!-- source: (\S+) sha256:([0-9a-f]+) -->\n`)
	comment    = regexp.MustCompile(`(?m)(^|[ \t]+)# .*$`)
	inlineCode = regexp.MustCompile("`[^`]+`")
	unspaced   = regexp.MustCompile("\\p{Han}[A-Za-z0-9`]|[A-Za-z0-9`]\\p{Han}|\\p{Han}[,;:!?()]|[,;:!?()]\\p{Han}")
	bold       = regexp.MustCompile(`\*\*[^*\n]+\*\*\p{Han}?`)
	notBold    = regexp.MustCompile(`[。，：；）]\*\*\p{Han}$`)
)

// digest does not change when a page is only wrapped again.
func digest(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(strings.Fields(text), " "))))
}

func counterpart(page string) string {
	if page == "docs/monitoring/README.md" {
		return "docs/zh/monitoring.md"
	}
	return "docs/zh/" + path.Base(page)
}

// commands are the fenced blocks of a page without comments. Diagrams are left out, because their labels are translated.
func commands(text string) []string {
	var blocks []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "mermaid" {
			continue
		}
		var lines []string
		for line := range strings.Lines(comment.ReplaceAllString(m[2], "")) {
			lines = append(lines, strings.TrimRight(line, " \t\n"))
		}
		blocks = append(blocks, strings.TrimRight(strings.Join(lines, "\n"), "\n"))
	}
	return blocks
}

// quoted are the command lines in running text: code that contains a space.
func quoted(text string) []string {
	var lines []string
	for _, s := range inlineCode.FindAllString(fence.ReplaceAllString(text, ""), -1) {
		if line := strings.Join(strings.Fields(s), " "); strings.Contains(line, " ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// outdated returns what is wrong with the translation of an English page.
func outdated(root fs.FS, page string) []string {
	zh := counterpart(page)
	english, chinese := read(root, page), read(root, zh)
	if chinese == "" {
		return []string{page + " has no translation " + zh}
	}
	head := header.FindStringSubmatch(chinese)
	if head == nil || path.Join("docs/zh", head[1]) != page {
		source, _ := filepath.Rel("docs/zh", page)
		return []string{fmt.Sprintf("%s does not begin with <!-- source: %s sha256:%s -->", zh, source, digest(english))}
	}
	var wrong []string
	if head[2] != digest(english) {
		wrong = append(wrong, fmt.Sprintf("%s translates an older %s: update the translation, then run UPDATE=1 go test ./docs", zh, page))
	}
	ours, theirs := commands(chinese), commands(english)
	for i := range max(len(ours), len(theirs)) {
		if i >= len(ours) || i >= len(theirs) || ours[i] != theirs[i] {
			wrong = append(wrong, fmt.Sprintf("%s: code block %d differs from that of %s", zh, i+1, page))
			break
		}
	}
	have := quoted(chinese)
	for _, line := range quoted(english) {
		if !slices.Contains(have, line) {
			wrong = append(wrong, fmt.Sprintf("%s does not have %s", zh, line))
		}
	}
	return wrong
}

// misspaced returns the places of a Chinese page that miss a space between Chinese and Latin text, mix punctuation, or do not render in bold.
func misspaced(root fs.FS, page string) []string {
	text := linkText.ReplaceAllString(fence.ReplaceAllString(read(root, page), ""), "$1")
	var wrong []string
	found := slices.DeleteFunc(bold.FindAllString(text, -1), func(s string) bool { return !notBold.MatchString(s) })
	for _, place := range append(found, unspaced.FindAllString(text, -1)...) {
		wrong = append(wrong, fmt.Sprintf("%s: spacing or punctuation at %q", page, place))
	}
	return wrong
}

func TestTranslations(t *testing.T) {
	if os.Getenv("UPDATE") != "" {
		update(t)
	}
	root := os.DirFS("..")
	var expected []string
	for _, page := range translated {
		expected = append(expected, counterpart(page))
		for _, wrong := range outdated(root, page) {
			t.Error(wrong)
		}
	}
	pages, err := fs.Glob(root, "docs/zh/*")
	require.NoError(t, err)
	for _, page := range pages {
		if !slices.Contains(expected, page) {
			t.Errorf("%s translates no page that docs/zh_test.go lists", page)
		}
		for _, wrong := range misspaced(root, page) {
			t.Error(wrong)
		}
	}
}

// update writes the digests of the English pages into the translations.
func update(t *testing.T) {
	t.Helper()
	root := os.DirFS("..")
	for _, page := range translated {
		file := filepath.Join("..", counterpart(page))
		text := read(root, counterpart(page))
		m := header.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}
		require.NoError(t, os.WriteFile(file, []byte(text[:m[4]]+digest(read(root, page))+text[m[5]:]), 0o644))
	}
}

// Each defect is reported, and a page without defects is not.
func TestTheChecksFindDefects(t *testing.T) {
	const english = "# Install\n\nRun `ocadm init --dry-run`:\n\n```\nocadm init   # now\n```\n\n```mermaid\na --> b[one]\n```\n"
	const chinese = "# 安装\n\n执行 `ocadm init --dry-run`，参见[上文](#安装)和[英文](../install.md#install)：\n\n```\nocadm init # 立即执行\n```\n\n```mermaid\na --> b[一]\n```\n"
	head := "<!-- source: ../install.md sha256:" + digest(english) + " -->\n"
	for name, c := range map[string]struct{ english, chinese, want string }{
		"nothing":            {english, head + chinese, ""},
		"new line breaks":    {strings.ReplaceAll(english, "Run ", "Run\n"), head + chinese, ""},
		"one byte":           {english + "!", head + chinese, "translates an older docs/install.md"},
		"no translation":     {english, "", "has no translation docs/zh/install.md"},
		"no header":          {english, chinese, "does not begin with <!-- source: ../install.md"},
		"another source":     {english, strings.Replace(head, "install", "operate", 1) + chinese, "does not begin with"},
		"a command":          {english, head + strings.Replace(chinese, "ocadm init #", "ocadm join #", 1), "code block 1 differs"},
		"a missing block":    {english, head + strings.Split(chinese, "```")[0], "code block 1 differs"},
		"a command in prose": {english, head + strings.Replace(chinese, " --dry-run", "", 1), "does not have `ocadm init --dry-run`"},
		"a file":             {english, head + strings.Replace(chinese, "../install", "install2", 1), "leads nowhere"},
		"a heading":          {english, head + strings.Replace(chinese, "(#安装)", "(#部署)", 1), "no such heading"},
		"spacing":            {english, head + strings.Replace(chinese, "执行 `", "执行`", 1), "spacing or punctuation"},
		"punctuation":        {english, head + strings.Replace(chinese, "，", ",", 1) + "安装,", "spacing or punctuation"},
		"bold":               {english, head + chinese + "**注意：**备份", "spacing or punctuation"},
	} {
		root := fstest.MapFS{"docs/install.md": {Data: []byte(c.english)}, "docs/zh/install.md": {Data: []byte(c.chinese)}}
		wrong := slices.Concat(outdated(root, "docs/install.md"), broken(root, "docs/zh/install.md"), misspaced(root, "docs/zh/install.md"))
		if got := strings.Join(wrong, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/test/require"
)

var (
	fence  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline = regexp.MustCompile("`[^`]+`")
	// quotedCommand matches ocadm where a shell starts a command, up to the end of the command.
	quotedCommand = regexp.MustCompile(`(?m)(?:^|[(|;&] ?)(?:sudo )?(?:(?:go run )?\./cmd/|bin/)?ocadm ([^|;&#<>)\n]+)`)
)

// quoted returns the ocadm command lines in a Markdown text, without the word ocadm: those in blocks and those in running text.
func quoted(text string) (blocks, prose []string) {
	for _, b := range fence.FindAllString(text, -1) {
		if strings.ContainsAny(b, "│┌▼") { // a drawing
			continue
		}
		blocks = append(blocks, commandsIn(b)...)
	}
	for _, s := range inline.FindAllString(fence.ReplaceAllString(text, ""), -1) {
		prose = append(prose, commandsIn(strings.Join(strings.Fields(strings.Trim(s, "`")), " "))...)
	}
	return blocks, prose
}

func commandsIn(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.NewReplacer("\\\n", " ", "$(", "|").Replace(text)) {
		for _, m := range quotedCommand.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
			lines = append(lines, m[1])
		}
	}
	return lines
}

// misquoted returns the error in a command line: an unknown command or flag, and if whole, the wrong number of arguments.
func misquoted(top *cobra.Command, line string, whole bool) string {
	words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(line))
	c := top
	for len(words) > 0 && c.HasSubCommands() {
		sub, _, err := c.Find(words[:1])
		if err != nil || sub == c {
			break
		}
		if c, words = sub, words[1:]; c.Name() == "kubeadm" && c.Parent() == top {
			c = kubeadm.NewKubeadmCommand(strings.NewReader(""), io.Discard, io.Discard)
		}
	}
	var args []string
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		if w == "--" {
			args = append(args, words...)
			break
		}
		if !strings.HasPrefix(w, "-") || w == "-" {
			args = append(args, w)
			continue
		}
		name, _, hasValue := strings.Cut(w, "=")
		var f *pflag.Flag
		for _, one := range split(name) {
			if f = flagOf(c, one); f == nil {
				return c.CommandPath() + " has no flag " + one
			}
			if f.Hidden {
				return c.CommandPath() + " has " + one + " only for old scripts"
			}
		}
		if f.NoOptDefVal == "" && !hasValue && len(words) > 0 {
			words = words[1:]
		}
	}
	placeholder := regexp.MustCompile(`^[A-Z…]+$`)
	if len(args) > 0 && c.HasSubCommands() && !strings.Contains(c.Use, " ") && !placeholder.MatchString(args[0]) {
		return c.CommandPath() + " has no command " + args[0]
	}
	if whole && c.Args != nil {
		if err := c.Args(c, args); err != nil {
			return err.Error()
		}
	}
	return ""
}

// split splits "-it" into the flags -i and -t.
func split(name string) []string {
	if strings.HasPrefix(name, "--") {
		return []string{name}
	}
	var all []string
	for _, r := range name[1:] {
		all = append(all, "-"+string(r))
	}
	return all
}

func flagOf(c *cobra.Command, name string) *pflag.Flag {
	c.InitDefaultHelpFlag()
	if long, ok := strings.CutPrefix(name, "--"); ok {
		if f := c.Flags().Lookup(long); f != nil {
			return f
		}
		return c.InheritedFlags().Lookup(long)
	}
	if f := c.Flags().ShorthandLookup(name[1:]); f != nil {
		return f
	}
	return c.InheritedFlags().ShorthandLookup(name[1:])
}

// Every ocadm command line quoted by a document or a help example has existing commands and flags.
func TestQuotedCommandsExist(t *testing.T) {
	top := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	seen := 0
	for _, file := range handWritten(t) {
		blocks, prose := quoted(read(t, file))
		seen += len(blocks) + len(prose)
		for whole, lines := range map[bool][]string{true: blocks, false: prose} {
			for _, line := range lines {
				if wrong := misquoted(top, line, whole); wrong != "" {
					t.Errorf("%s: ocadm %s: %s", file, line, wrong)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d command lines were found", seen)
	}
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		for _, line := range commandsIn(c.Example) {
			if wrong := misquoted(top, line, true); wrong != "" {
				t.Errorf("example of %s: ocadm %s: %s", c.CommandPath(), line, wrong)
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(top)
}

// The comparison itself works.
func TestMisquoted(t *testing.T) {
	top := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	blocks, prose := quoted("Run `ocadm cluster\nrewind` or\n```\nsource <(ocadm diff)\nocadm init --no-such-flag x # why\n```\n")
	if len(blocks) != 2 || len(prose) != 1 {
		t.Fatalf("found %q and %q", blocks, prose)
	}
	for _, line := range append(blocks, append(prose, "cluster status extra", "cluster status -q", "init --upload-certs")...) {
		if misquoted(top, line, true) == "" {
			t.Errorf("ocadm %s is accepted", line)
		}
	}
	for _, line := range []string{"join 192.0.2.11:6443 --token … --enable-host-agent", "cluster status -n tenant-b -o json", "init phase certs apiserver", "explain OCA-6002"} {
		if wrong := misquoted(top, line, true); wrong != "" {
			t.Errorf("ocadm %s: %s", line, wrong)
		}
	}
}

// Flags that docs/reference/settings.md lists as having no effect are hidden flags of init.
func TestFlagsWithoutEffect(t *testing.T) {
	_, list, _ := strings.Cut(read(t, "docs/reference/settings.md"), "that no longer have an effect (")
	list, _, found := strings.Cut(list, ")")
	flags := regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(list, -1)
	if !found || len(flags) == 0 {
		t.Fatal("docs/reference/settings.md lists no such flags")
	}
	start, _, err := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).Find([]string{"init"})
	require.NoError(t, err)
	for _, m := range flags {
		if f := flagOf(start, m[1]); f == nil || !f.Hidden {
			t.Errorf("%s is not a flag of an earlier release", m[1])
		}
	}
}

// docs/contributing/adding-a-component.md quotes a real component.
func TestQuotedComponent(t *testing.T) {
	_, source, _ := strings.Cut(read(t, "operatorctl/catalog/devtool.go"), "\nfunc devtool()")
	var want strings.Builder
	for line := range strings.Lines("func devtool()" + source) {
		want.WriteString("   " + line)
	}
	if !strings.Contains(read(t, "docs/contributing/adding-a-component.md"), "   ```go\n"+want.String()+"   ```\n") {
		t.Error("docs/contributing/adding-a-component.md does not quote operatorctl/catalog/devtool.go as it is")
	}
}

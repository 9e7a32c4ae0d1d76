// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/test/require"
)

// advice is a text of the program that may advise a command.
type advice struct {
	file, text string
	// remedy marks the remedy of a finding: there, ocadm is followed by a command, not by a verb.
	remedy bool
}

// hole replaces what is inserted into a text at run time.
const hole = "NAME"

var (
	verbs    = regexp.MustCompile(`%[+#]?[a-z]|\$\{\w+\}`)
	capitals = regexp.MustCompile(`^\[?[A-Z…]+\]?$`)
	// ends are words and signs that end a command in a sentence.
	ends = []string{"and", "or", "then", "with", "without", "if", "which", "that", "does", "--", "#", "|", "&&", ">", "ocadm"}
	// articles before ocadm, or predicates after it, mean the program rather than a command.
	articles, predicates = []string{"the", "this", "that", "another", "an"}, []string{"installs", "on"}
)

// advices returns the remedies of the program, and its other string constants that name ocadm. Concatenated strings are one text.
func advices(t *testing.T) (out []advice) {
	t.Helper()
	for _, dir := range []string{"cluster", "cmd", "internal", "operatorctl", "phases"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			out = append(out, advicesIn(strings.TrimPrefix(path, root+"/"), f)...)
			return nil
		}))
	}
	return out
}

func advicesIn(file string, f *ast.File) (out []advice) {
	remedies := remediesIn(f)
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := constant(e)
		if !ok {
			return true
		}
		remedy := slices.ContainsFunc(remedies, func(r ast.Expr) bool { return r.Pos() <= e.Pos() && e.End() <= r.End() })
		if remedy || strings.Contains(text, "ocadm ") {
			out = append(out, advice{file: file, text: verbs.ReplaceAllString(text, hole), remedy: remedy})
		}
		return false
	})
	return out
}

// remediesIn returns the expressions in a file that become remedies of findings, or the next commands of causes.
func remediesIn(f *ast.File) (out []ast.Expr) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			at := map[string]int{"finding.New": 3, "finding.Warn": 3, "finding.Errorf": 2}
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && at[x.Name+"."+s.Sel.Name] > 0 && len(n.Args) > at[x.Name+"."+s.Sel.Name] {
					out = append(out, n.Args[at[x.Name+"."+s.Sel.Name]])
				}
			}
		case *ast.KeyValueExpr:
			if k, ok := n.Key.(*ast.Ident); ok && (k.Name == "Remedy" || k.Name == "Next") {
				out = append(out, n.Value)
			}
		case *ast.AssignStmt:
			if s, ok := n.Lhs[0].(*ast.SelectorExpr); ok && s.Sel.Name == "Remedy" {
				out = append(out, n.Rhs...)
			}
		}
		return true
	})
	return out
}

// constant evaluates a string expression, with holes for its variable parts.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, e.Kind == token.STRING && err == nil
	case *ast.ParenExpr:
		return constant(e.X)
	case *ast.BinaryExpr:
		a, first := constant(e.X)
		b, second := constant(e.Y)
		if !first {
			a = hole
		}
		if !second {
			b = hole
		}
		return a + b, e.Op == token.ADD && (first || second)
	}
	return "", false
}

// misadvised returns the errors in a text's ocadm commands: unknown commands or flags.
func misadvised(top *cobra.Command, a advice) (wrong []string) {
	for line := range strings.Lines(a.text) {
		words := strings.Fields(line)
		for i, w := range words {
			if strings.TrimLeft(w, `("'`) != "ocadm" || i+1 == len(words) {
				continue
			}
			program := i > 0 && slices.Contains(articles, words[i-1]) || slices.Contains(predicates, words[i+1])
			if why := misadvisedCommand(top, commandOf(words[i+1:]), a.remedy && !program); why != "" {
				wrong = append(wrong, why)
			}
		}
	}
	return wrong
}

// commandOf returns the words up to the end of a command in a sentence.
func commandOf(words []string) (out []string) {
	for _, w := range words {
		if slices.Contains(ends, w) || strings.HasPrefix(w, "(") {
			return out
		}
		bare := strings.TrimRight(w, `;:,.)'"`)
		out = append(out, bare)
		if bare != w {
			return out
		}
	}
	return out
}

func misadvisedCommand(top *cobra.Command, words []string, strict bool) string {
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
	if len(words) == 0 {
		return ""
	}
	group := c.HasSubCommands() && !ownFlags(c) // it does nothing by itself
	switch {
	case group && capitals.MatchString(words[0]):
		return "" // the command is only known at run time
	case group && !strings.HasPrefix(words[0], "-") && (c != top || strict):
		return c.CommandPath() + " has no command " + words[0]
	case c == top:
		return ""
	}
	for _, w := range words {
		name, _, _ := strings.Cut(strings.Trim(w, "[]"), "=")
		if !strings.HasPrefix(name, "-") || name == "-" {
			continue
		}
		for _, one := range split(strings.TrimSuffix(name, hole)) {
			if f := flagOf(c, one); f == nil || f.Hidden {
				return c.CommandPath() + " has no flag " + one
			}
		}
	}
	return ""
}

func ownFlags(c *cobra.Command) bool {
	own := false
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { own = own || f.Name != "help" })
	return own
}

// Every ocadm command and flag advised by a finding or another text of the program exists. This includes those of kubeadm.
func TestAdvisedCommandsExist(t *testing.T) {
	top := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	remedies := 0
	for _, a := range advices(t) {
		if a.remedy {
			remedies++
		}
		for _, wrong := range misadvised(top, a) {
			t.Errorf("%s: %s: %q", a.file, wrong, a.text)
		}
	}
	if remedies < 200 {
		t.Errorf("only %d remedies with a command were found", remedies)
	}
	blocks, prose := quoted(read(t, "docs/reference/findings.md"))
	for _, line := range append(blocks, prose...) {
		if wrong := misquoted(top, line, false); wrong != "" {
			t.Errorf("docs/reference/findings.md: ocadm %s: %s", line, wrong)
		}
	}
}

// absent matches programs that people use on Kubernetes nodes, but that neither ocadm nor a distribution installs there.
var absent = regexp.MustCompile(`\b(crictl|nerdctl|etcdctl|etcdutl|calicoctl|yq)\b`)

// No remedy uses a program that a node lacks.
func TestAdvisedProgramsExist(t *testing.T) {
	for _, a := range advices(t) {
		if name := absent.FindString(a.text); a.remedy && name != "" {
			t.Errorf("%s: no node has %s: %q", a.file, name, a.text)
		}
	}
	if name := absent.FindString(read(t, "docs/reference/findings.md")); name != "" {
		t.Errorf("docs/reference/findings.md: no node has %s", name)
	}
}

// The comparison itself works, even for a text in several parts.
func TestMisadvised(t *testing.T) {
	top := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	const source = `package x
		func f() {
			finding.New("", "", "", "on this node: ocadm kubeadm init phase kubelet-finalize " + "no-such-phase, then again")
			finding.Errorf("", "", "ocadm clutser status", "%w", nil)
			f.Remedy = fmt.Sprintf("ocadm etcd restroe %s; or: ocadm etcd status", file)
			say("run ocadm node remove " + name + " --no-such-flag; this is what ocadm does")
			say("ocadm kubeadm init phase kubelet-finalize enable-client-cert-rotation --config FILE, ocadm " + command + " --dry-run")
			finding.Warn("", "", "", "use the ocadm of the first node; ocadm cluster backup restore FILE (see ocadm explain CODE)")
		}`
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
	require.NoError(t, err)
	var got []string
	for _, a := range advicesIn("x.go", f) {
		got = append(got, misadvised(top, a)...)
	}
	want := []string{"kubeadm init phase kubelet-finalize has no command no-such-phase", "ocadm has no command clutser", "ocadm etcd has no command restroe",
		"ocadm node remove has no flag --no-such-flag"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

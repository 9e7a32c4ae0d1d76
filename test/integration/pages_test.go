// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// ranBy maps commands of the pages that need machines, a bucket or more time to the tests that run them.
var ranBy = map[string]string{
	"age-keygen -o key.txt":                                                                                                           "TestDisaster",
	"ocadm cluster update --version v4.0.4 --rehearse --wait":                                                                         "TestRehearsal",
	"ocadm cluster rollback --to 3 --keep-databases --wait":                                                                           "TestPoller",
	"ocadm cluster backup create --to s3://backups/cloud --s3-endpoint s3.example.com --recipient age1…":                              "TestStore",
	"ocadm init --bundle ocadm.bundle --restore-from FILE --identity key.txt":                                                         "TestDisaster",
	"ocadm join 10.0.0.20 --token … --discovery-token-ca-cert-hash sha256:… --enable-host-agent":                                      "TestDisaster",
	"ocadm cluster move-database --database-host 10.0.0.9 --database-user ocadm --database-password-file /root/mysql-password --wait": "TestMoveDatabaseFails",
	"ocadm cluster backup restore FILE --identity key.txt --database-host 10.0.0.9 --database-user ocadm --database-password-file " +
		"/root/mysql-password --load-balancer-endpoint 10.0.0.20 --wait": "TestBackup",
}

var (
	fences  = regexp.MustCompile("(?ms)^```\n(.*?)^```")
	comment = regexp.MustCompile(` +#.*`)
)

// commandsOf returns the command lines in the fenced blocks of a page, in order.
func commandsOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	require.NoError(t, err)
	var out []string
	for _, block := range fences.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", "")) {
			if line = strings.Join(strings.Fields(comment.ReplaceAllString(line, "")), " "); line != "" {
				out = append(out, line)
			}
		}
	}
	return out
}

// TestCommandsOfPages runs each command of the pages on updates and backups, in their order, against a cloud, or names the test that does. The
// Chinese pages have the same commands.
func TestCommandsOfPages(t *testing.T) {
	pages := []string{"upgrade.md", "backup.md"}
	tests := testsOf(t)
	var all []string
	for _, page := range pages {
		lines := commandsOf(t, page)
		if zh := commandsOf(t, filepath.Join("zh", page)); !slices.Equal(zh, lines) {
			t.Errorf("zh/%s has other commands: %q, want %q", page, zh, lines)
		}
		all = append(all, lines...)
	}
	for line, test := range ranBy {
		if !slices.Contains(all, line) {
			t.Errorf("no page has %q", line)
		}
		if !slices.Contains(tests, test) {
			t.Errorf("there is no %s, which is to run %q", test, line)
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d commands were found: has the form of the pages changed?", len(all))
	}
	p := &pageTest{programs: newPrograms(t)}
	p.Edit(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationAtOnce + `":"` + strconv.Itoa(p.Cloud().Status.Release.Revision) + `"}},"spec":{"version":"v4.0.3"}}`)
	p.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool { return cr.Status.Version == "v4.0.3" })
	p.UntilReady()
	for _, line := range all {
		if ranBy[line] == "" {
			p.run(t, line)
		}
	}
}

// testsOf returns the names of all tests.
func testsOf(t *testing.T) (names []string) {
	t.Helper()
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
		return err
	})
	require.NoError(t, err)
	return names
}

// pageTest holds the cloud for the commands.
type pageTest struct {
	*programs
	// from is the release before the last update.
	from int
}

// run runs a command with real values in place of the examples.
func (p *pageTest) run(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	line = strings.NewReplacer("age1…", p.recipient, "key.txt", p.key, "/var/backups", p.dir, "FILE", p.file(), "--to 3", "--to "+strconv.Itoa(p.from)).Replace(line)
	switch {
	case strings.HasPrefix(line, "age -d"):
		p.unpacks(t, line)
		return
	case strings.HasPrefix(line, "cat databases"):
		p.loads(line)
		return
	case strings.Contains(line, "operation resume NAME"), strings.Contains(line, "operation cancel NAME"):
		line = strings.ReplaceAll(line, "NAME", p.waiting())
	default:
		line = strings.ReplaceAll(line, "NAME", p.latest())
	}
	line, _, _ = strings.Cut(line, " | ")
	if strings.Contains(line, " backup restore ") {
		line += " --yes" // there is no terminal to confirm
	}
	if rest, is := strings.CutPrefix(line, "kubectl "); is {
		if out, err := p.Cluster.Kubectl(p.Context(), words(rest)...); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		p.settled()
		return
	}
	rest, is := strings.CutPrefix(line, "ocadm ")
	if !is {
		t.Fatalf("nothing runs %q", line)
	}
	p.ocadm(t, strings.Fields(rest))
	for _, o := range p.Operations() {
		if o.Status.Rollout != nil && o.Spec.Action == v1alpha1.ActionUpdate {
			p.from = o.Status.Rollout.From
		}
	}
}

// words returns the words of a command line with single quotes.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 0 {
			out = append(out, strings.Fields(part)...)
		} else if n := len(out) - 1; strings.HasSuffix(out[n], "=") {
			out[n] += part
		}
	}
	return out
}

// ocadm runs the program. A command that follows is ended after its first output.
func (p *pageTest) ocadm(t *testing.T, args []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	var out, story bytes.Buffer
	streams := cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &story}
	watches := slices.Contains(args, "--watch")
	if watches {
		streams.Out = writing(func(text []byte) { out.Write(text); cancel() })
	}
	c := cmd.New(streams)
	c.SetArgs(append(args, "--kubeconfig", p.Cluster.Kubeconfig))
	if args[0] == "explain" {
		c.SetArgs(args)
	}
	err := c.ExecuteContext(ctx)
	if l := finding.Of(err); len(l) > 0 && l[0].Code == "OCA-7066" && args[1] == "rollback" && !slices.Contains(args, "--restore-databases") {
		return // services of the next release have changed their tables: the page says that this is refused, and what to do
	}
	if err != nil && !(watches && out.Len() > 0) {
		t.Fatalf("ocadm %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), story.String())
	}
}

type writing func([]byte)

func (w writing) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

// settled waits until the requested operation has ended.
func (p *pageTest) settled() {
	p.Helper()
	p.Eventually(func() (bool, string) {
		if p.Cloud().Annotations[v1alpha1.AnnotationOperation] != "" {
			return false, "the operator has not seen the annotation"
		}
		for _, o := range p.Operations() {
			if !o.Status.Phase.Final() {
				return false, o.Name + " runs"
			}
		}
		return true, ""
	})
}

// waiting creates an operation that waits for a user.
func (p *pageTest) waiting() string {
	p.Helper()
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: cloud, Action: v1alpha1.ActionCheck}}
	o.GenerateName, o.Annotations = "waiting-", map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationPause}
	p.Create(o)
	p.UntilOperation(o.Name, func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationPending })
	return o.Name
}

// latest returns the name of an operation that has ended.
func (p *pageTest) latest() string {
	p.Helper()
	for _, o := range p.Operations() {
		if o.Status.Phase.Final() {
			return o.Name
		}
	}
	return "none"
}

// file returns the latest backup in the directory.
func (p *pageTest) file() string {
	p.Helper()
	list, err := backup.List(p.Context(), backup.Dir(p.dir))
	require.NoError(p, err)
	if len(list) == 0 {
		return "FILE"
	}
	return filepath.Join(p.dir, list[0].Name)
}

// unpacks performs the page's steps without ocadm, with age's library in place of its program.
func (p *pageTest) unpacks(t *testing.T, line string) {
	t.Helper()
	text, err := os.ReadFile(p.key)
	require.NoError(t, err)
	id, err := age.ParseX25519Identity(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	f, err := os.Open(p.file())
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	plain, err := age.Decrypt(f, id)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(line, " | ")
	c := exec.CommandContext(p.Context(), "sh", "-c", rest)
	c.Dir, c.Stdin = p.dir, plain
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", rest, err, out)
	}
}

// loads loads a database into another one.
func (p *pageTest) loads(line string) {
	p.Helper()
	p.SQL(p.DB, "CREATE DATABASE by_hand")
	line = strings.TrimSuffix(strings.Replace(line, "| mariadb ", "| mariadb --socket="+p.DB.Socket+" --user=root ", 1), " keystone") + " by_hand"
	c := exec.CommandContext(p.Context(), "sh", "-c", line)
	c.Dir, c.Env = p.dir, append(os.Environ(), "MYSQL_PWD="+p.DB.RootPassword)
	if out, err := c.CombinedOutput(); err != nil {
		p.Fatalf("%s: %v: %s", line, err, out)
	}
	if rows := p.SQL(p.DB, "SELECT COUNT(*) FROM by_hand.first"); rows != "2" {
		p.Errorf("%s rows", rows)
	}
}

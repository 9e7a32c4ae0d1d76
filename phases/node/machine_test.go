// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// machine is a fake machine with a record of what was reported and run on it.
type machine struct {
	*host.Host
	rec  *host.Recorder
	root string

	mu       sync.Mutex
	enabled  map[string]bool
	versions map[string]string // what PROGRAM --version prints
	outputs  map[string]string // what a command line prints
	failures map[string]bool   // command lines that fail
	changes  []string
	said     []string
}

func newMachine(t *testing.T, change ...func(*machine)) *machine {
	t.Helper()
	m := &machine{root: t.TempDir(), enabled: map[string]bool{}, outputs: map[string]string{}, failures: map[string]bool{}, versions: map[string]string{
		containerd: "containerd github.com/containerd/containerd/v2 v2.4.2 abc", ctr: "ctr github.com/containerd/containerd/v2 v2.4.2",
		runc: "runc version 1.5.2\ncommit: v1.5.2", kubelet: "Kubernetes " + version.Kubernetes, kubectl: "Client Version: " + version.Kubernetes,
	}}
	m.rec = &host.Recorder{Answer: m.answer}
	m.put(t, "/proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n")
	for _, p := range parameters() {
		m.put(t, "/proc/sys/"+strings.ReplaceAll(p.name, ".", "/"), "0")
	}
	for _, c := range change {
		c(m)
	}
	m.boot(t, false)
	return m
}

// boot creates the host again, as another run of the program would.
func (m *machine) boot(t *testing.T, dryRun bool) {
	t.Helper()
	c := &config.Config{}
	c.Cluster.KubernetesVersion = version.Kubernetes
	c.Run.DryRun = dryRun
	var b *bundle.Bundle
	if m.Host != nil {
		b = m.Bundle
	}
	h, err := host.Fake(t.Context(), m.root, c, m.rec)
	require.NoError(t, err)
	m.Host = h
	h.Bundle = b
}

func (m *machine) answer(c exec.Command) (exec.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := strings.Join(append([]string{path.Base(c.Path)}, c.Args...), " ")
	failed := exec.Result{ExitCode: 1}
	fail := &exec.Error{Argv: []string{line}, ExitCode: 1, Err: errors.New("exit status 1")}
	if m.failures[line] {
		return failed, fail
	}
	if out, ok := m.outputs[line]; ok {
		return exec.Result{Stdout: out}, nil
	}
	if slices.Contains([]string{"--version", "version --client"}, strings.Join(c.Args, " ")) {
		return exec.Result{Stdout: m.versions[path.Base(c.Path)]}, nil
	}
	if path.Base(c.Path) != "systemctl" {
		return exec.Result{}, nil
	}
	units := c.Args[1:]
	switch c.Args[0] {
	case "enable", "disable":
		for _, u := range units {
			m.enabled[u] = c.Args[0] == "enable"
		}
	case "is-enabled":
		if !m.enabled[units[0]] {
			return failed, fail
		}
	case "cat":
		return failed, fail
	}
	return exec.Result{}, nil
}

func (m *machine) put(t *testing.T, name, data string) {
	t.Helper()
	p := filepath.Join(m.root, name)
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o755)))
}

// files returns everything on the machine, with contents, except ocadm's own state.
func (m *machine) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, m.root)
		if name == host.StateDir {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			raw, err := os.ReadFile(p)
			out[name] = string(raw)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

func (m *machine) Info(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

func (m *machine) Output(string) {}

func (m *machine) Waiting(string, string) {}

func (m *machine) Progress(int64, int64, string) {}

func (*machine) Alive() {}

func (m *machine) Changed(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, fmt.Sprintf(format, args...))
}

var _ workflow.Reporter = (*machine)(nil)

// do runs a phase and its children as the runner would, and reports whether there was anything to do.
func (m *machine) do(t *testing.T, p host.Phase) (ran bool, err error) {
	t.Helper()
	for _, c := range p.Phases {
		r, err := m.do(t, c)
		ran = ran || r
		if err != nil {
			return ran, err
		}
	}
	if p.Run == nil {
		return ran, nil
	}
	if p.Check != nil {
		done, err := p.Check(t.Context(), m.Host)
		if err != nil || done {
			return false, err
		}
	}
	if err := p.Run(t.Context(), m.Host, m); err != nil {
		return true, err
	}
	if p.Verify != nil {
		return true, p.Verify(t.Context(), m.Host)
	}
	return true, nil
}

// plan returns what a phase and its children would do.
func (m *machine) plan(t *testing.T, p host.Phase) []string {
	t.Helper()
	var out []string
	for _, c := range p.Phases {
		out = append(out, m.plan(t, c)...)
	}
	if p.Plan != nil {
		lines, err := p.Plan(t.Context(), m.Host)
		if err != nil {
			t.Errorf("planning %s: %v", p.Name, err)
		}
		out = append(out, lines...)
	}
	return out
}

func (m *machine) undo(t *testing.T, p host.Phase) {
	t.Helper()
	m.boot(t, false)
	for _, c := range slices.Backward(p.Phases) {
		m.undo(t, c)
	}
	if p.Undo != nil {
		require.NoError(t, p.Undo(t.Context(), m.Host, m))
	}
}

func (m *machine) must(t *testing.T, p host.Phase) {
	t.Helper()
	if ran, err := m.do(t, p); err != nil || !ran {
		t.Fatalf("%s: ran %v, %v", p.Name, ran, err)
	}
}

// done checks that a phase has nothing left to do, now and in another run of the program.
func (m *machine) done(t *testing.T, p host.Phase) {
	t.Helper()
	m.boot(t, false)
	if ran, err := m.do(t, p); err != nil || ran {
		t.Errorf("%s a second time: ran %v, %v", p.Name, ran, err)
	}
}

func text(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func nodeFiles() []bundle.FileSource {
	var out []bundle.FileSource
	for _, p := range programs() {
		out = append(out, bundle.FileSource{Path: path.Join(binDir, p.name), Mode: 0o755, Open: text("new " + p.name)})
	}
	for _, p := range append(neededPlugins(), "flannel") {
		out = append(out, bundle.FileSource{Path: path.Join(cniDir, p), Mode: 0o755, Open: text("new " + p)})
	}
	return append(out, bundle.FileSource{Path: "/etc/shadow", Mode: 0o644, Open: text("not ours to write")})
}

func writeBundle(t *testing.T, files []bundle.FileSource) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle")
	var images []bundle.ImageSource
	for i, n := range []string{imageOne, imageTwo} {
		images = append(images, bundle.ImageSource{Name: n, Image: imagetest.Image(t, runtime.GOARCH, imagetest.Layer(t, int64(i)))})
	}
	info := bundle.Info{OS: "linux", Arch: runtime.GOARCH, KubernetesVersion: version.Kubernetes}
	require.NoError(t, bundle.Create(t.Context(), file, info, files, images))
	return file
}

func (m *machine) use(t *testing.T, file string) {
	t.Helper()
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	m.Bundle = b
}

func code(err error) string {
	if l := finding.Of(err); len(l) == 1 {
		return l[0].Code
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
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

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

const (
	imageOne = "registry.example/one:v1"
	imageTwo = "registry.example/two:v1"
)

// machine is a fake machine and what was said and run on it.
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

// boot makes the host anew, as another run of the program would.
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// files lists everything on the machine, with contents, but ocadm's own state.
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (m *machine) Info(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}
func (m *machine) Output(string)                 {}
func (m *machine) Waiting(string, string)        {}
func (m *machine) Progress(int64, int64, string) {}
func (*machine) Alive()                          {}
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

// plan is what a phase and its children would do.
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
		if err := p.Undo(t.Context(), m.Host, m); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) must(t *testing.T, p host.Phase) {
	t.Helper()
	if ran, err := m.do(t, p); err != nil || !ran {
		t.Fatalf("%s: ran %v, %v", p.Name, ran, err)
	}
}

// done checks that there is nothing left to do for a phase, now and for another run of the program.
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
	if err := bundle.Create(t.Context(), file, info, files, images); err != nil {
		t.Fatal(err)
	}
	return file
}

func (m *machine) use(t *testing.T, file string) {
	t.Helper()
	b, err := bundle.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	m.Bundle = b
}

func code(err error) string {
	if l := finding.Of(err); len(l) == 1 {
		return l[0].Code
	}
	return ""
}

func TestSoftwareFromBundle(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	before := m.files(t)
	m.must(t, Software())
	want := map[string]string{}
	for n, c := range before {
		want[n] = c
	}
	for _, f := range nodeFiles() {
		if f.Path != "/etc/shadow" {
			want[f.Path] = "new " + path.Base(f.Path)
		}
	}
	if d := cmp.Diff(want, m.files(t)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if st, err := m.Files.Stat(path.Join(binDir, kubelet)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	m.done(t, Software())

	// A file that was damaged is put right.
	m.put(t, path.Join(binDir, runc), "damaged")
	m.must(t, Software())
	if d := cmp.Diff(want, m.files(t)); d != "" {
		t.Errorf("after the repair (-want +got):\n%s", d)
	}

	// Without the bundle there is nothing to download, unless Kubernetes itself is another one.
	b := m.Bundle
	m.Bundle = nil
	m.versions[runc] = "runc version 1.1.0"
	m.done(t, Software())
	m.versions[kubelet] = "Kubernetes v1.30.0"
	if plan := m.plan(t, Software()); len(plan) != 1 || !strings.Contains(plan[0], "kubelet") {
		t.Errorf("plan %q", plan)
	}
	m.Bundle = b

	m.undo(t, Software())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

func TestSoftwareOfOthersIsUsedAndLeft(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		for _, n := range []string{containerd, shim, ctr, runc, kubectl} {
			m.put(t, "/usr/bin/"+n, "old "+n)
		}
		m.put(t, path.Join(cniDir, "bridge"), "old bridge")
		m.versions[kubectl] = "Client Version: v1.20.0" // too old
	})
	m.use(t, writeBundle(t, nodeFiles()))
	before := m.files(t)
	m.must(t, Software())
	var added []string
	for n, c := range m.files(t) {
		if before[n] != c {
			added = append(added, n)
		}
	}
	slices.Sort(added)
	want := []string{"/opt/cni/bin/flannel", "/opt/cni/bin/host-local", "/opt/cni/bin/loopback", "/opt/cni/bin/portmap", "/usr/local/bin/kubectl", "/usr/local/bin/kubelet"}
	if d := cmp.Diff(want, added); d != "" {
		t.Errorf("installed (-want +got):\n%s", d)
	}
	var found []string
	for _, e := range m.Ledger.Found() {
		found = append(found, e.Name+" "+e.Detail)
	}
	if d := cmp.Diff([]string{"/usr/bin/runc v1.5.2", "/usr/bin/ctr v2.4.2", "/usr/bin/containerd-shim-runc-v2 v2.4.2", "/usr/bin/containerd v2.4.2"}, found); d != "" {
		t.Errorf("found (-want +got):\n%s", d)
	}
	m.done(t, Software())
	m.undo(t, Software())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

func TestTooOldContainerdIsReplacedByOurs(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		for _, n := range []string{containerd, shim, ctr} {
			m.put(t, "/usr/bin/"+n, "old "+n)
		}
		m.versions[containerd] = "containerd containerd.io 1.6.20"
	})
	m.use(t, writeBundle(t, nodeFiles()))
	m.versions[containerd] = "containerd x v2.4.2"
	m.must(t, Software())
	for _, n := range []string{containerd, shim, ctr} {
		if raw, err := m.Files.ReadFile(path.Join(binDir, n)); err != nil || string(raw) != "new "+n {
			t.Errorf("%s: %q, %v", n, raw, err)
		}
	}
}

func TestDamagedBundleInstallsNothingWrong(t *testing.T) {
	file := writeBundle(t, nodeFiles())
	m := newMachine(t)
	m.use(t, file)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(raw), "new kubelet") // as stored: too short to be compressed
	if i < 0 {
		t.Fatal("the file is not in the bundle as it is")
	}
	raw[i] = 'N'
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.do(t, Software()); code(err) != bundle.CodeCorrupt {
		t.Errorf("got %v", err)
	}
	if m.Files.Exists(path.Join(binDir, kubelet)) {
		t.Error("a damaged kubelet was installed")
	}
}

func TestCheckBundle(t *testing.T) {
	m := newMachine(t)
	if l := CheckBundle(m.Host, []string{imageOne}); l != nil {
		t.Errorf("without a bundle: %v", l)
	}
	m.use(t, writeBundle(t, nodeFiles()[1:]))
	m.Facts.Arch = "riscv64"
	m.Config.Cluster.KubernetesVersion = "v1.37.0"
	var codes []string
	for _, f := range CheckBundle(m.Host, []string{imageOne, "registry.example/three:v1"}) {
		codes = append(codes, f.Code)
	}
	if d := cmp.Diff([]string{bundle.CodeWrongPlatform, bundle.CodeMissingImages, CodeIncompleteBundle}, codes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m.Facts.Arch = runtime.GOARCH
	if _, err := m.do(t, Software()); len(finding.Of(err)) != 2 {
		t.Errorf("the software phase takes the bundle: %v", err)
	}
}

func TestBrokenProgramIsNamed(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.versions[runc] = "Segmentation fault"
	if _, err := m.do(t, Software()); code(err) != CodeProgramBroken || !strings.Contains(err.Error(), "/usr/local/bin/runc") {
		t.Errorf("got %v", err)
	}
}

func TestDryRunPlansAndChangesNothing(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.boot(t, true)
	before := m.files(t)
	group := ImageGroup{Name: "all", Short: "x", Need: need(imageOne)}
	phases := append([]host.Phase{Software(), Units(), Kernel(), group.phase()}, ResetPhases()...)
	for _, p := range phases {
		plan := m.plan(t, p)
		if len(plan) == 0 && slices.Contains([]string{SoftwarePhase, UnitsPhase, KernelPhase, "all"}, p.Name) {
			t.Errorf("%s: the plan is empty", p.Name)
		}
	}
	for _, p := range append(Software().Phases, phases[1:4]...) {
		if err := p.Run(t.Context(), m.Host, m); !errors.Is(err, host.ErrDryRun) {
			t.Errorf("running %s in a dry run: %v", p.Name, err)
		}
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if m.Files.Exists(host.StateDir) {
		t.Error("the state directory was made")
	}
}

func need(names ...string) func(*host.Host) ([]string, error) {
	return func(*host.Host) ([]string, error) { return names, nil }
}

func TestPlansAreValid(t *testing.T) {
	pre := host.Phase{Name: "preflight", Short: "x", Run: func(context.Context, *host.Host, workflow.Reporter) error { return nil }}
	group := ImageGroup{Name: "all", Short: "x", Need: need()}
	if err := workflow.Validate([]host.Phase{pre, Software(), Kernel(), Units(), Images(group)}); err != nil {
		t.Error(err)
	}
	if err := workflow.Validate(ResetPhases()); err != nil {
		t.Error(err)
	}
}

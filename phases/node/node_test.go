// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const (
	imageOne = "registry.example/one:v1"
	imageTwo = "registry.example/two:v1"
)

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

	// A damaged file is repaired.
	m.put(t, path.Join(binDir, runc), "damaged")
	m.must(t, Software())
	if d := cmp.Diff(want, m.files(t)); d != "" {
		t.Errorf("after the repair (-want +got):\n%s", d)
	}

	// Without the bundle there is nothing to download, unless the version of Kubernetes differs.
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

func TestForeignSoftwareIsUsedAndKept(t *testing.T) {
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

func TestOldContainerdIsReplaced(t *testing.T) {
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
	require.NoError(t, err)
	i := strings.Index(string(raw), "new kubelet") // as stored: too short to be compressed
	if i < 0 {
		t.Fatal("the file is not in the bundle as it is")
	}
	raw[i] = 'N'
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	if _, err := m.do(t, Software()); code(err) != bundle.CodeCorrupt {
		t.Errorf("got %v", err)
	}
	if m.Files.Exists(path.Join(binDir, kubelet)) {
		t.Error("a damaged kubelet was installed")
	}
}

func TestUnsuitableBundle(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()[1:]))
	m.Facts.Arch = "riscv64"
	m.Config.Cluster.KubernetesVersion = "v1.37.0"
	var codes []string
	for _, f := range lacking(m.Host) {
		codes = append(codes, f.Code)
	}
	if d := cmp.Diff([]string{bundle.CodeWrongPlatform, CodeIncompleteBundle}, codes); d != "" {
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

// The depot may have a later bundle than the cluster: a kubelet must not be newer than the API server.
func TestKubeletOfALaterBundle(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.versions[kubelet] = "Kubernetes v1.99.0"
	if _, err := m.do(t, Software()); code(err) != "OCA-4109" {
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

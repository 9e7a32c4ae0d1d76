// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"debug/elf"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ownimage/programtest"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// otherMachine returns an architecture other than that of this test.
func otherMachine() (string, elf.Machine) {
	if runtime.GOARCH == "arm64" {
		return "amd64", elf.EM_X86_64
	}
	return "arm64", elf.EM_AARCH64
}

// useBundleForBoth opens a bundle for two platforms, with ocadm for the other one.
func useBundleForBoth(t *testing.T, h *host.Host, program, ofVersion string) {
	t.Helper()
	other, _ := otherMachine()
	file := func(path, text string) bundle.FileSource {
		return bundle.FileSource{Path: path, Mode: 0o755, Open: func() (io.ReadCloser, error) {
			if text == "" {
				return os.Open(program)
			}
			name := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				return nil, err
			}
			return os.Open(name)
		}}
	}
	name := filepath.Join(t.TempDir(), "bundle")
	err := bundle.Build(t.Context(), name, bundle.Spec{Platforms: []bundle.Platform{
		{Info: bundle.Info{OS: "linux", Arch: runtime.GOARCH, KubernetesVersion: "v1.36.3"}, Files: []bundle.FileSource{file("/usr/local/bin/kubelet", "one")}},
		{Info: bundle.Info{OS: "linux", Arch: other, KubernetesVersion: "v1.36.3", Versions: map[string]string{"ocadm": ofVersion}},
			Files: []bundle.FileSource{file("/usr/local/bin/kubelet", "two"), file(ProgramPath, "")}},
	}})
	require.NoError(t, err)
	b, err := bundle.Open(t.Context(), name)
	require.NoError(t, err)
	if h.Bundle, err = b.On(runtime.GOARCH); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
}

func architectures(t *testing.T, h *host.Host) []string {
	t.Helper()
	s, err := Open(h)
	require.NoError(t, err)
	got, err := s.Architectures(t.Context(), h.Config.OperatorImage())
	require.NoError(t, err)
	slices.Sort(got)
	return got
}

// A bundle for two architectures gives the depot ocadm for both, as a program and as one image.
func TestProgramsOfTheBundle(t *testing.T) {
	h, _ := machine(t)
	other, elfMachine := otherMachine()
	useBundleForBoth(t, h, programtest.Program(t, elfMachine, false, "ocadm "+version.Version), version.Version)
	c := run(t, h, "ocadm-", "bundle-", "ocadm-")
	for _, arch := range []string{runtime.GOARCH, other} {
		if f := c.Files["linux/"+arch+ProgramPath]; f.Size == 0 || f.Mode != programMode {
			t.Errorf("ocadm for %s: %+v; files %q", arch, f, slices.Sorted(maps.Keys(c.Files)))
		}
	}
	if got := architectures(t, h); len(got) != 2 || !c.Images[h.Config.OperatorImage()].MediaType.IsIndex() {
		t.Errorf("the image is for %q", got)
	}
	// An ocadm of another version does not get this version's name.
	h, _ = machine(t)
	useBundleForBoth(t, h, programtest.Program(t, elfMachine, false, "ocadm v9"), "v9")
	run(t, h, "ocadm-", "bundle-")
	if got := architectures(t, h); len(got) != 1 {
		t.Errorf("with another version the image is for %q", got)
	}
}

// A served bundle for two architectures also gives the depot ocadm for both. A program of another version stays a file, and a second run has nothing to do.
func TestProgramsOfAServedBundle(t *testing.T) {
	other, elfMachine := otherMachine()
	for _, v := range []string{version.Version, "v9"} {
		h, _ := machine(t)
		useBundleForBoth(t, h, programtest.Program(t, elfMachine, false, "ocadm "+v), v)
		store, err := depot.Open(t.TempDir(), 0)
		require.NoError(t, err)
		require.NoError(t, store.Fill(t.Context(), "bundle", h.Bundle, nil))
		const token = "abcdef.0123456789abcdef"
		server := httptest.NewTLSServer(depot.Handler(store, &depot.Access{Tokens: depot.OneToken(token)}))
		defer server.Close()
		c := depot.NewClient(server.URL, token, fetch.Fetcher{Client: server.Client()})
		if h.Depot, err = c.Remote(t.Context(), runtime.GOARCH); err != nil {
			t.Fatal(err)
		}
		h.Bundle, h.Config.Node.Bundle = nil, server.URL
		got := run(t, h, "ocadm-", "bundle-", "ocadm-")
		if f := got.Files["linux/"+other+ProgramPath]; f.Size == 0 || f.Mode != programMode {
			t.Errorf("ocadm %s for %s: %+v", v, other, f)
		}
		if archs := architectures(t, h); len(archs) != map[bool]int{true: 2, false: 1}[v == version.Version] {
			t.Errorf("with ocadm %s for %s the image is for %q", v, other, archs)
		}
	}
}

// The operator is not updated to an image that some nodes cannot run. Adding the missing program completes the image.
func TestAddProgram(t *testing.T) {
	h, _ := machine(t)
	useBundle(t, h)
	run(t, h, "ocadm-", "bundle-")
	image := h.Config.OperatorImage()
	other, elfMachine := otherMachine()
	if err := Lacks(t.Context(), h, image, []string{runtime.GOARCH}); err != nil {
		t.Error(err)
	}
	err := Lacks(t.Context(), h, image, []string{runtime.GOARCH, other})
	if l := finding.Of(err); len(l) != 1 || l[0].Code != CodeLacksProgram {
		t.Errorf("before it is added: %v", err)
	}
	wrong := programtest.Program(t, elfMachine, false, "another version")
	if _, err := AddProgram(t.Context(), h, workflow.Discard{}, wrong, image); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != CodeOtherProgram {
		t.Errorf("another version: %v", err)
	}
	file := programtest.Program(t, elfMachine, false, "ocadm "+version.Version)
	for range 2 {
		if arch, err := AddProgram(t.Context(), h, workflow.Discard{}, file, image); err != nil || arch != other {
			t.Fatalf("%s, %v", arch, err)
		}
	}
	if err := Lacks(t.Context(), h, image, []string{runtime.GOARCH, other}); err != nil {
		t.Error(err)
	}
	s, err := Open(h)
	require.NoError(t, err)
	if got, err := s.FileArchitectures(t.Context(), ProgramPath); err != nil || len(got) != 2 {
		t.Errorf("programs for %q, %v", got, err)
	}
}

// Two control-plane nodes have separate roots: neither replaces the other's software or program. The root of an earlier release, which had the same
// name on all nodes, is removed.
func TestRootsOfSeveralNodes(t *testing.T) {
	h, _ := machine(t)
	put(t, h, "/usr/local/bin/kubelet", "kubelet")
	s, err := Open(h)
	require.NoError(t, err)
	f, err := s.AddFile(t.Context(), h.Files.Path(h.Self))
	if err == nil {
		err = s.SetRoot(t.Context(), depot.Root{Name: depot.NodeRoot, Files: map[string]depot.File{"linux/" + runtime.GOARCH + "/old": f}})
	}
	require.NoError(t, err)
	require.NoError(t, h.Files.WriteFile("/usr/local/bin/kubectl", []byte("kubectl"), 0o755))
	c := run(t, h, "ocadm-", "node-node")
	if _, ok := c.Files["linux/"+runtime.GOARCH+"/old"]; ok {
		t.Error("the root of an earlier release is there")
	}
	// The other node's root, as if synchronized.
	require.NoError(t, s.SetRoot(t.Context(), depot.Root{Name: depot.NodeRoot + "-other", Series: depot.NodeSeries("other"), Files: map[string]depot.File{"linux/riscv64/x": f}}))
	for _, r := range roots(t.Context(), h) {
		if done, err := r.done(t.Context(), s); !done || err != nil {
			t.Errorf("%s is to be stored again: %v", r.name, err)
		}
	}
	unused, kept, err := s.Unused(t.Context(), depot.Cluster{Uses: func(string) bool { return false }})
	if err != nil || len(unused) != 0 || len(kept) != 3 {
		t.Errorf("unused %q, kept %q, %v", unused, kept, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

func parse(t *testing.T, raw []byte) artifacts.Table {
	t.Helper()
	table, err := artifacts.Parse(raw)
	require.NoError(t, err)
	return table
}

// Every artifact has its own address and digest for each Kubernetes version, and the linked version is included.
func TestEmbedded(t *testing.T) {
	table := parse(t, artifacts.Embedded)
	seen := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		versions := table.Kubernetes(arch)
		if !slices.Contains(versions, version.Kubernetes) {
			t.Errorf("Kubernetes %s is not pinned for %s: %q", version.Kubernetes, arch, versions)
		}
		minors := map[string]bool{}
		for _, v := range versions {
			minors[semver.MajorMinor(v)] = true
			var names []string
			for _, a := range table.Of(v, arch, "") {
				names = append(names, a.Name)
				if strings.ContainsAny(a.URL, "{}") || !strings.HasPrefix(a.URL, "https://") || !strings.Contains(a.URL, arch) ||
					!strings.Contains(a.URL, strings.TrimPrefix(a.Version, "v")) {
					t.Errorf("%s: address %s", a.Name, a.URL)
				}
				if other := seen[a.SHA256]; other != "" && other != a.URL || !artifacts.IsDigest(a.SHA256) {
					t.Errorf("%s has the digest %q, as %q", a.URL, a.SHA256, other)
				}
				seen[a.SHA256] = a.URL
			}
			if d := cmp.Diff([]string{"containerd", "runc", "cni-plugins", "kubelet", "kubectl"}, names); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		}
		if len(minors) != 2 { // kubeadm installs its own minor version and the previous one
			t.Errorf("minor versions of Kubernetes for %s: %v", arch, minors)
		}
	}
}

// The documentation names the pinned versions.
func TestDocumentedVersions(t *testing.T) {
	page, err := os.ReadFile("../../docs/bundles.md")
	require.NoError(t, err)
	var spans []string
	versions := parse(t, artifacts.Embedded).Kubernetes("amd64") // the latest first
	for i, v := range versions {
		v = strings.TrimPrefix(v, "v")
		switch minor := semver.MajorMinor(versions[i]); {
		case i == 0 || semver.MajorMinor(versions[i-1]) != minor:
			spans = append([]string{v}, spans...)
		case i == len(versions)-1 || semver.MajorMinor(versions[i+1]) != minor:
			spans[0] = v + " to " + spans[0]
		}
	}
	if want := "Kubernetes " + strings.Join(spans, " and "); !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/bundles.md does not say %q", want)
	}
}

func TestAddresses(t *testing.T) {
	table := parse(t, artifacts.Embedded)
	for _, mirror := range []string{"http://10.0.0.1/m", "http://10.0.0.1/m/"} {
		list := table.Of("v1.36.99", "riscv64", mirror)
		last := list[len(list)-1]
		if want := "http://10.0.0.1/m/dl.k8s.io/release/v1.36.99/bin/linux/riscv64/kubectl"; last.URL != want || last.Checksum != want+".sha256" {
			t.Errorf("%s and %s, want %s", last.URL, last.Checksum, want)
		}
		for _, a := range list {
			if a.SHA256 != "" {
				t.Errorf("%s has the digest %s for an architecture that is not in the table", a.Name, a.SHA256)
			}
		}
	}
	for arch, want := range map[string]string{"riscv64": "the checksums of no program for riscv64", "arm64": "the checksums of the programs of Kubernetes v1.36."} {
		l := finding.Of(table.Unpinned(table.Of("v1.36.99", arch, "")[4], arch, "do it"))
		if len(l) != 1 || l[0].Code != artifacts.CodeUnpinned || !strings.Contains(l[0].Cause, want) {
			t.Errorf("%s: %+v, want %q", arch, l, want)
		}
	}
	if list := table.Kubernetes("riscv64"); len(list) > 0 {
		t.Errorf("versions for riscv64: %q", list)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"- {name: a, url: u, digest: x}":                  "digest",
		"- {name: a, url: u, sha256: {v1: {amd64: abc}}}": `a v1 for amd64 has the digest "abc"`,
	} {
		if _, err := artifacts.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Only files that a node needs are extracted from an archive, and an archive without them is refused.
func TestExtract(t *testing.T) {
	pages, raw := artifactstest.Release(t, "v1.36.3", "amd64")
	got := map[string]string{}
	put := func(to string, in io.Reader) error {
		text, err := io.ReadAll(in)
		got[to] = string(text)
		return err
	}
	list := parse(t, raw).Of("v1.36.3", "amd64", "")
	for _, a := range list {
		if err := a.Extract(bytes.NewReader(pages["/"+strings.TrimPrefix(a.URL, "https://")]), put); err != nil {
			t.Error(err)
		}
	}
	want := map[string]string{}
	for _, p := range artifactstest.Plugins {
		want["/opt/cni/bin/"+p] = "new " + p
	}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "kubectl"} {
		want["/usr/local/bin/"+p] = "new " + p
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	other := pages["/"+strings.TrimPrefix(list[2].URL, "https://")]
	if err := list[0].Extract(bytes.NewReader(other), put); err == nil || !strings.Contains(err.Error(), "it contains 0 of the required files") {
		t.Errorf("containerd from the archive of CNI plugins: %v", err)
	}
	if err := list[0].Extract(strings.NewReader("no archive"), put); err == nil {
		t.Error("what is no archive was unpacked")
	}
}

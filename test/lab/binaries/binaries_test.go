// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

func TestEveryModuleHasAVersion(t *testing.T) {
	checkout, err := Checkout()
	require.NoError(t, err)
	for _, m := range modules(version.Kubernetes) {
		has, err := upstreamVersion(checkout+"/test/lab/modules/"+m.Dir, m.Upstream)
		if err != nil || !strings.HasPrefix(has, "v") || m.Version != "" && m.Version != has {
			t.Errorf("%s: version %q, error %v", m.Dir, has, err)
		}
	}
}

// TestKubernetesVersions checks that the lab has every minor version that ocadm installs, and that the error for another patch version names them.
func TestKubernetesVersions(t *testing.T) {
	checkout, err := Checkout()
	require.NoError(t, err)
	for _, v := range []string{version.Kubernetes, Earlier} {
		m := modules(v)[0]
		if has, err := upstreamVersion(checkout+"/test/lab/modules/"+m.Dir, m.Upstream); err != nil || has != v {
			t.Errorf("%s: %q, %v", v, has, err)
		}
	}
	table, err := artifacts.Parse(artifacts.Embedded)
	require.NoError(t, err)
	for _, a := range table.Of(Earlier, "amd64", "") {
		if a.SHA256 == "" {
			t.Errorf("%s %s is not pinned", a.Name, a.Version)
		}
	}
	if _, err := GetFor(t.Context(), "kubelet", "v1.35.0", t.Logf); err == nil || !strings.Contains(err.Error(), Earlier) {
		t.Errorf("a version that the lab does not have: %v", err)
	}
}

func TestBuildArgs(t *testing.T) {
	kubernetes := modules(version.Kubernetes)[0]
	want := []string{
		"-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
	}
	if got := buildArgs(kubernetes, "v1.36.3"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	flannel := module{Cgo: true, Tags: "x", LDFlags: "-X v={version}"}
	want = []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X v=v2 -extldflags -static", "-tags", "x"}
	if got := buildArgs(flannel, "v2"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestUnknownProgram(t *testing.T) {
	if _, err := Path(t.Context(), "nonsense"); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("error %v should name the programs there are", err)
	}
}

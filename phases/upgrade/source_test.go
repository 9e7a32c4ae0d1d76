// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// depotWith returns a depot that has these versions of Kubernetes.
func depotWith(t *testing.T, versions ...string) *depot.Remote {
	t.Helper()
	const token = "abcdef.0123456789abcdef"
	s, err := depot.Open(t.TempDir(), 0)
	require.NoError(t, err)
	images := map[string]v1.Descriptor{}
	for _, v := range versions {
		if images["registry.k8s.io/kube-proxy:"+v], err = s.AddImage(t.Context(), imagetest.Image(t, "amd64", imagetest.Layer(t, 1))); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, s.SetRoot(t.Context(), depot.Root{Name: "bundle-1", Images: images}))
	server := httptest.NewServer(depot.Handler(s, &depot.Access{Tokens: depot.OneToken(token)}))
	t.Cleanup(server.Close)
	r, err := depot.NewClient(server.URL, token, fetch.Fetcher{}).Remote(t.Context(), "amd64")
	require.NoError(t, err)
	return r
}

// "upgrade apply --bundle" was killed after the cluster got the version and before the depot did. A run without the bundle would take the former
// kubelet from the depot, and record that the node is done.
func TestContinueWithoutTheBundle(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		has    []string
		want   string
	}{
		"the depot has only the former version": {SourceDepot, []string{old}, "OCA-4506"},
		"the depot has it":                      {SourceDepot, []string{old, target}, ""},
		"it is downloaded":                      {SourceInternet, []string{old}, ""},
	} {
		h := machine(t)
		require.NoError(t, (Record{From: old, To: target, First: true, Committed: true}).save(h))
		h.Depot = depotWith(t, c.has...)
		u := &Upgrade{Host: h, Target: Target{Version: target, Source: c.source}}
		require.NoError(t, Begin(t.Context(), u, target, target))
		err := u.CheckSource()
		if code(err) != c.want || err != nil && !strings.Contains(finding.Of(err)[0].Remedy, "--bundle") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&Upgrade{Host: machine(t), Target: Target{Source: SourceDepot}}).CheckSource(); err != nil {
		t.Errorf("without a depot: %v", err)
	}
}

// A bundle for another architecture is refused before the upgrade begins, without --kubernetes-version, too.
func TestTargetOfAnotherArchitecture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle")
	require.NoError(t, bundle.Create(t.Context(), file, bundle.Info{OS: "linux", Arch: "arm64", KubernetesVersion: target}, nil, nil))
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	h := machine(t)
	h.Bundle = b
	for _, c := range []struct{ arch, wanted, want string }{
		{"arm64", "", ""}, {"arm64", target, ""}, {"arm64", old, bundle.CodeWrongVersion}, {"amd64", "", bundle.CodeWrongPlatform}, {"amd64", target, bundle.CodeWrongPlatform},
	} {
		h.Facts.Arch = c.arch
		if is, err := NewTarget(t.Context(), h, old, c.wanted); code(err) != c.want || err == nil && is.Version != target {
			t.Errorf("%s, wanted %q: %+v, %v", c.arch, c.wanted, is, err)
		}
	}
}

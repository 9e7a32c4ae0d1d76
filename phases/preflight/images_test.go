// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/test/require"
)

// registryOf returns the address of a registry that gives the same answer to all requests.
func registryOf(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// hasAll answers like a registry that has every image.
func hasAll(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	w.Header().Set("Content-Length", "2")
	w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("1", 64))
}

func TestDiskOfTheDepot(t *testing.T) {
	m := goodMachine(t)
	m.h.Config.Node.Bundle = filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, errors.Join(os.WriteFile(m.h.Config.Node.Bundle, nil, 0o600), os.Truncate(m.h.Config.Node.Bundle, 3*gib)))
	m.disk = func(p string) (uint64, uint64, error) {
		if p == depot.DefaultDir {
			return 2, 4 * gib, nil
		}
		return 1, 100 * gib, nil
	}
	if found := checkDisk(t.Context(), m); len(found) != 1 || !strings.Contains(found[0].Cause, "5.0 GiB are needed") {
		t.Errorf("found %v", found)
	}
}

// A joining node gets the images of every node from the depot. Flannel is needed only if the cluster has it.
func TestImagesOfTheDepot(t *testing.T) {
	const proxy, flannel = "registry.k8s.io/kube-proxy:v1.36.3", "ghcr.io/flannel-io/flannel:v0.28.4"
	all, err := NodeImages(goodMachine(t).h.Config)
	require.NoError(t, err)
	others := slices.DeleteFunc(slices.Clone(all), func(i string) bool { return strings.Contains(i, "flannel") })
	if len(others) == len(all) || !slices.Contains(others, proxy) {
		t.Fatalf("a node needs %q", all)
	}
	for name, tc := range map[string]struct {
		has     []string
		offline bool
		want    string // "" or a part of the evidence
	}{
		"all":                       {all, true, ""},
		"another pod network":       {others, true, ""},
		"a part of flannel":         {append(slices.Clone(others), flannel), true, "flannel-cni-plugin"},
		"no kube-proxy":             {without(all, []string{proxy}), true, proxy},
		"nothing but another image": {[]string{"registry.example.org/x:1"}, true, proxy},
		"pulled":                    {without(all, []string{proxy}), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			root := depot.Root{Images: map[string]v1.Descriptor{}}
			for _, i := range tc.has {
				root.Images[i] = v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: 1, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)},
					Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(root) }))
			t.Cleanup(s.Close)
			if m.h.Depot, err = depot.NewClient(s.URL, "", fetch.Fetcher{Client: s.Client()}).Remote(t.Context(), "amd64"); err != nil {
				t.Fatal(err)
			}
			if m.h.Config.Node.Offline = tc.offline; tc.offline {
				require.NoError(t, m.h.Files.RemoveAll(registry.HostsDir))
			}
			m.kind = Join
			found := checkImages(t.Context(), m)
			if tc.want == "" && len(found) > 0 || tc.want != "" && (len(found) != 1 || !strings.Contains(strings.Join(found[0].Evidence, " "), tc.want)) {
				t.Errorf("got %+v, want %q", found, tc.want)
			}
		})
	}
}

func TestImagesOfARun(t *testing.T) {
	m := goodMachine(t)
	m.h.Config.Cloud.Images = []string{"registry.example.org/keystone:v4.0.4"}
	init, err := Images(m.h.Config, Init)
	require.NoError(t, err)
	join, err := Images(m.h.Config, Join)
	require.NoError(t, err)
	for _, want := range []string{"registry.k8s.io/etcd:3.6.8-0", "ghcr.io/flannel-io/flannel:v0.28.4", "registry.example.org/keystone:v4.0.4"} {
		if !slices.Contains(init, want) {
			t.Errorf("init does not need %s", want)
		}
	}
	if slices.Contains(join, "registry.k8s.io/etcd:3.6.8-0") || !slices.Contains(join, "registry.k8s.io/kube-proxy:v1.36.3") {
		t.Errorf("join needs %v", join)
	}
}

// Images of docker.io come from another host, whose answer shows the problem.
func TestAddressOfDockerHub(t *testing.T) {
	if f := imageFinding(registry.Unreachable, registry.DockerHub, registry.DockerHub, 1); !strings.HasPrefix(f.Remedy, "curl -v https://registry-1.docker.io/v2/; ") {
		t.Error(f.Remedy)
	}
}

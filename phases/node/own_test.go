// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// The program is imported if containerd has no image, or another one, under its name. A bundle is not used.
func TestOwnImage(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	img, err := random.Image(1000, 1)
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	packed := 0
	m.Own = func() (v1.Image, error) { packed++; return img, nil }
	const name = "registry.example/ocadm:v1"
	group := ImageGroup{Name: "operator", Own: true, Need: need(name)}
	if d := cmp.Diff([]string{"import " + name}, m.plan(t, group.phase())); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	if packed > 0 {
		t.Error("the plan packed the program")
	}
	ls := "ctr -n k8s.io images ls"
	for _, before := range []string{"", name + " type sha256:0 1.0 KiB linux/amd64 -\n"} {
		m.outputs[ls] = before
		if done, err := group.phase().Check(t.Context(), m.Host); done || err != nil {
			t.Errorf("with %q: done %v, %v", before, done, err)
		}
		require.NoError(t, group.run(t.Context(), m.Host, m))
		if d := cmp.Diff([]string{name}, m.imported(t)); d != "" {
			t.Errorf("imported (-want +got):\n%s", d)
		}
	}
	m.outputs[ls] = name + " type " + digest.String() + " 1.0 KiB linux/amd64 -\n"
	if done, err := group.phase().Check(t.Context(), m.Host); !done || err != nil {
		t.Errorf("after the import: done %v, %v", done, err)
	}
	if _, ok := m.Ledger.Get(host.KindImage, name); !ok {
		t.Error("the ledger does not have the image")
	}

	m.Own = func() (v1.Image, error) { return nil, errors.New("no program") }
	if _, err := group.phase().Check(t.Context(), m.Host); err == nil || !strings.Contains(err.Error(), "no program") {
		t.Errorf("got %v", err)
	}
}

// Without containerd nothing is imported.
func TestBring(t *testing.T) {
	m := newMachine(t)
	m.Own = func() (v1.Image, error) { return empty.Image, nil }
	group := ImageGroup{Own: true, Need: need("registry.example/ocadm:v1")}
	if brought, err := group.Bring(t.Context(), m.Host, m); brought || err != nil {
		t.Errorf("without containerd: brought %v, %v", brought, err)
	}
	m.put(t, path.Join(binDir, ctr), "x")
	if brought, err := group.Bring(t.Context(), m.Host, m); !brought || err != nil {
		t.Errorf("with containerd: brought %v, %v", brought, err)
	}
	if !m.ran("images import") {
		t.Error("nothing was imported")
	}
	m.Config.Node.CRISocket = "unix:///run/crio/crio.sock"
	if brought, err := group.Bring(t.Context(), m.Host, m); brought || err != nil {
		t.Errorf("with another runtime: brought %v, %v", brought, err)
	}
}

// If containerd briefly does not answer, the node does not count as one without images.
func TestInstalledWithoutAnAnswer(t *testing.T) {
	const ls, image = "ctr -n k8s.io images ls", "registry.k8s.io/pause:3.10"
	m := newMachine(t)
	require.NoError(t, m.Ledger.Record(host.Entry{Kind: host.KindImage, Name: image, Op: host.Created}))
	m.outputs[ls] = "REF TYPE DIGEST SIZE\n"
	if got := Installed(t.Context(), m.Host); len(got.Images) > 0 {
		t.Errorf("an image that is gone: %q", got.Images)
	}
	m.failures[ls] = true
	if got := Installed(t.Context(), m.Host); !slices.Equal(got.Images, []string{image}) {
		t.Errorf("without an answer: %q", got.Images)
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

func TestInForce(t *testing.T) {
	const cloud, other = "r.example:5000/cloud/", "k8s.example/"
	all := []string{cloud + "region:v4.0.3", cloud + "region:v4.0.4", cloud + "host:v4.0.3", cloud + "host:v4.0.4", cloud + "once:v1", other + "pause:3.9", other + "pause:3.10",
		"elsewhere.example/x:1", "elsewhere.example/x:2"}
	for name, tt := range map[string]struct{ used, want []string }{
		"nothing known": {nil, all},
		"one release": {[]string{cloud + "region:v4.0.3", other + "pause:3.10@sha256:aa"},
			[]string{cloud + "region:v4.0.3", cloud + "host:v4.0.3", cloud + "once:v1", other + "pause:3.10", "elsewhere.example/x:1", "elsewhere.example/x:2"}},
		"during an update": {[]string{cloud + "region:v4.0.3", cloud + "keystone:v4.0.4"},
			[]string{cloud + "region:v4.0.3", cloud + "host:v4.0.3", cloud + "host:v4.0.4", cloud + "once:v1", other + "pause:3.9", other + "pause:3.10", "elsewhere.example/x:1", "elsewhere.example/x:2"}},
		"another tag than all": {[]string{cloud + "region:dev"},
			all},
	} {
		if got := inForce(all, tt.used); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A joining machine learns which of several releases the cluster runs.
func TestInForceOfAnotherDepot(t *testing.T) {
	s := newStore(t)
	images := map[string]v1.Descriptor{}
	for i, name := range []string{"r.example/host:v1", "r.example/host:v2"} {
		d, err := s.AddImage(t.Context(), imagetest.Image(t, "amd64", imagetest.Layer(t, int64(i))))
		require.NoError(t, err)
		images[name] = d
	}
	require.NoError(t, s.SetRoot(t.Context(), Root{Name: "x", Images: images}))
	site := listen(t, s, nil)
	for _, tt := range []struct {
		used []string
		err  error
		want int
	}{{[]string{"r.example/region:v2"}, nil, 1}, {nil, errors.New("no answer"), 2}} {
		s.InUse = func(context.Context) ([]string, error) { return tt.used, tt.err }
		r, err := site.client().Remote(t.Context(), "amd64")
		if err != nil || len(r.InForce()) != tt.want || len(r.Contents().Images) != 2 {
			t.Errorf("in force %q, %v; want %d", r.InForce(), err, tt.want)
		}
	}
}

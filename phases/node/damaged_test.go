// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
)

// If a depot has lost an image, only the images that the node cannot do without fail.
func TestDamagedDepot(t *testing.T) {
	lost := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}, Size: 9,
		Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/contents" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(depot.Root{Images: map[string]v1.Descriptor{imageOne: lost}})
	}))
	t.Cleanup(server.Close)
	m := newMachine(t)
	var err error
	if m.Depot, err = depot.NewClient(server.URL, "", fetch.Fetcher{Client: server.Client()}).Remote(t.Context(), "amd64"); err != nil {
		t.Fatal(err)
	}
	group := ImageGroup{Name: "all", Short: "x", Need: need(imageOne)}
	if _, err := m.do(t, group.phase()); code(err) != depot.CodeNoBlob || !strings.Contains(err.Error(), lost.Digest.String()) {
		t.Errorf("an image that the node needs: %v", err)
	}
	group.Optional = true
	if _, err := m.do(t, group.phase()); err != nil {
		t.Errorf("an image that may come later: %v", err)
	}
}

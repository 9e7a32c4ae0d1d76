// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/test/require"
)

// The first node copies everything that a server has. An interrupted copy stores no root, and the next one copies only missing blobs.
func TestTake(t *testing.T) {
	served, own := filled(t), newStore(t)
	var blobs atomic.Int32
	var broken atomic.Bool
	site := listen(t, served, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, blobPrefix) && blobs.Add(1) > 2 && broken.Load() {
				http.NotFound(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	r, err := site.client().Remote(t.Context(), "amd64")
	require.NoError(t, err)
	quiet := func(int64, int64) {}
	blobs.Store(-4) // the manifests and configs, which are read to find the size
	broken.Store(true)
	if err := own.Take(t.Context(), "bundle-x", r, quiet); code(err) != CodeNoBlob {
		t.Fatalf("it did not break off: %v", err)
	}
	if roots, err := own.Roots(); err != nil || len(roots) > 0 {
		t.Fatalf("roots %v, %v", roots, err)
	}
	broken.Store(false)
	var last, all int64
	require.NoError(t, own.Take(t.Context(), "bundle-x", r, func(done, total int64) { last, all = done, total }))
	size, err := r.Size(t.Context())
	if err != nil || size == 0 || last != size || all != size {
		t.Errorf("stored %d of %d bytes, of a size of %d, %v", last, all, size, err)
	}
	if whole, err := own.Complete(t.Context(), "bundle-x"); err != nil || !whole {
		t.Errorf("complete: %v, %v", whole, err)
	}
	want, _ := served.Contents(t.Context())
	if got, err := own.Contents(t.Context()); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
	again, err := site.client().Remote(t.Context(), "amd64")
	if err != nil || again.ID() != r.ID() {
		t.Errorf("the same content is %s and %s, %v", r.ID(), again.ID(), err)
	}
	require.NoError(t, served.SetRoot(t.Context(), Root{Name: "v2", Files: map[string]File{"f": {Digest: served.put(t, "more"), Size: 4}}}))
	if more, err := site.client().Remote(t.Context(), "amd64"); err != nil || more.ID() == r.ID() {
		t.Errorf("other content is %s, too, %v", r.ID(), err)
	}
}

// If the server lacks something that an installation needs, that is a finding before anything changes.
func TestRemoteChecks(t *testing.T) {
	store := filled(t)
	contents, err := store.Contents(t.Context())
	require.NoError(t, err)
	apiserver := Root{Name: "k8s"}
	apiserver.Images = map[string]v1.Descriptor{"mirror.example/k8s/kube-apiserver:v1.35.8": contents.Images[imageA]}
	require.NoError(t, store.SetRoot(t.Context(), apiserver))
	site := listen(t, store, nil)
	amd64, err := site.client().Remote(t.Context(), "amd64")
	require.NoError(t, err)
	arm64, err := site.client().Remote(t.Context(), "arm64")
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		err        error
		code, says string
	}{
		"the version that it has":        {amd64.CheckPlatform("amd64", "v1.35.8"), "", ""},
		"no version is asked for":        {amd64.CheckPlatform("amd64", ""), "", ""},
		"another version":                {amd64.CheckPlatform("amd64", "v1.36.3"), bundle.CodeWrongVersion, "is for Kubernetes v1.35.8, and v1.36.3"},
		"another architecture":           {arm64.CheckPlatform("arm64", "v1.35.8"), bundle.CodeWrongPlatform, "nothing for linux/arm64"},
		"images that it has":             {amd64.CheckImages([]string{imageA, imageB}), "", ""},
		"an image that it does not have": {amd64.CheckImages([]string{imageA, "other:v1"}), bundle.CodeMissingImages, "other:v1"},
	} {
		if got := code(tt.err); got != tt.code || tt.err != nil && !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s %s", name, tt.err, tt.code, tt.says)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
)

// The first node gets an image from its registry. Later ones get it from the depot, even if the registry is gone.
func TestPulledOnce(t *testing.T) {
	p := pullThrough(t)
	digest := p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	if res := p.get(t, p.nodes, "HEAD", "lib/app", "v1"); res.StatusCode != http.StatusNotFound {
		t.Fatalf("the first node gets %d", res.StatusCode)
	}
	// containerd continues with the digest, which it knows from the registry.
	p.get(t, p.nodes, "GET", "lib/app", digest.String())
	p.clock = p.clock.Add(headStart)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.up.Run(ctx); close(done) }()
	err := wait.Until(ctx, "the copy", 10*time.Millisecond, func(context.Context) (bool, string, error) {
		list, err := p.store.Wants()
		return len(list) == 0, "", err
	}, func(string) {})
	cancel()
	<-done
	require.NoError(t, err)
	if n := p.hub.asked("GET /v2/lib/app/blobs/"); n != 2 { // a layer and the configuration
		t.Errorf("%d blobs were downloaded", n)
	}
	p.hub.setDown(true)
	if err := p.pulled(t, "lib/app", "v1"); err != nil {
		t.Errorf("the second node: %v", err)
	}
	if res := p.get(t, p.nodes, "GET", "lib/app", digest.String()); res.StatusCode != http.StatusOK {
		t.Errorf("by its digest: %d", res.StatusCode)
	}
	st, err := p.store.Status(t.Context())
	if err != nil || len(st.Roots) != 1 || st.Roots[0].Image != hubRegistry+"/lib/app:v1" || !st.Roots[0].Complete || len(st.Wanted) != 0 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// If the first mirror lacks a layer, the depot copies the image from the next one, as containerd pulls it.
func TestCopyAfterAMirrorWithoutLayers(t *testing.T) {
	p := pullThrough(t)
	p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	lacks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		p.hub.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(lacks.Close)
	p.up.Registries = func() (registry.Client, error) {
		c, err := p.hub.client()
		c.Endpoints = registry.Machine(hostsFile(fmt.Sprintf("server = %q\n[host.%q]\n", p.hub.URL, lacks.URL)))
		return c, err
	}
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	p.copyAll(t)
	if err := p.pulled(t, "lib/app", "v1"); err != nil {
		t.Error(err)
	}
}

// The depot copies only for nodes: not for joining machines, nor images that only the requesting machine could identify.
func TestWhoMakesTheDepotCopy(t *testing.T) {
	p := pullThrough(t)
	p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.get(t, p.client(t, "system:masters"), "GET", "lib/app", "v1")
	p.ask(t, p.browser(nil), "GET", "/v2/lib/app/manifests/v1?ns="+hubRegistry, "Bearer "+goodToken)
	p.ask(t, p.nodes, "GET", "/v2/hub.example/lib/app/manifests/v1", "")
	for _, own := range []string{"localhost:5000", "127.0.0.1:5000", "localhost"} {
		p.ask(t, p.nodes, "GET", "/v2/lib/app/manifests/v1?ns="+own, "")
	}
	if list, err := p.store.Wants(); err != nil || len(list) > 0 {
		t.Errorf("wanted: %+v, %v", list, err)
	}
	if p.hub.asked("") > 0 {
		t.Errorf("the registry was asked %q", p.hub.log)
	}
}

// A tag that has moved is no longer served, and copied again. Many requests in a short time cause a single request to the registry. If the registry
// does not answer, the depot still serves.
func TestTagThatMoves(t *testing.T) {
	p := pullThrough(t)
	first := p.hub.image(t, "lib/app:dev", imagetest.Layer(t, 1))
	p.get(t, p.nodes, "GET", "lib/app", "dev")
	p.copyAll(t)
	serves := func(want int, digest v1.Hash) {
		t.Helper()
		res := p.get(t, p.nodes, "HEAD", "lib/app", "dev")
		if res.StatusCode != want || want == http.StatusOK && res.Header.Get("Docker-Content-Digest") != digest.String() {
			t.Errorf("the depot answers %d %s, want %d %s", res.StatusCode, res.Header.Get("Docker-Content-Digest"), want, digest)
		}
	}
	before := p.hub.asked("HEAD ")
	for range 5 {
		serves(http.StatusOK, first)
	}
	if n := p.hub.asked("HEAD ") - before; n != 1 {
		t.Errorf("five pulls asked the registry %d times", n)
	}
	second := p.hub.image(t, "lib/app:dev", imagetest.Layer(t, 2))
	serves(http.StatusOK, first) // for a few seconds
	p.clock = p.clock.Add(checkedFor)
	serves(http.StatusNotFound, v1.Hash{})
	if got := p.copyAll(t); !slices.Equal(got, []string{hubRegistry + "/lib/app:dev"}) {
		t.Errorf("copied %q", got)
	}
	serves(http.StatusOK, second)
	p.hub.setDown(true)
	p.clock = p.clock.Add(checkedFor)
	before = len(p.hub.log)
	serves(http.StatusOK, second)
	asked := len(p.hub.log)
	serves(http.StatusOK, second)
	if asked == before || len(p.hub.log) != asked {
		t.Errorf("a registry that is down was asked %d and %d times", asked-before, len(p.hub.log)-asked)
	}
}

// The depot copies only those architectures of an image that its nodes need.
func TestCopyOfSeveralArchitectures(t *testing.T) {
	p := pullThrough(t)
	var index v1.ImageIndex = empty.Index
	children := map[string]v1.Hash{}
	for i, arch := range []string{"amd64", "arm64", "riscv64", "unnamed"} {
		img := imagetest.Image(t, arch, imagetest.Layer(t, int64(i+1)))
		var err error
		if children[arch], err = img.Digest(); err != nil {
			t.Fatal(err)
		}
		of := mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}
		if arch == "unnamed" { // containerd considers it, too
			of.Platform = nil
		}
		index = mutate.AppendManifests(index, of)
	}
	p.hub.put(t, "lib/app:v1", func(tag name.Tag) error { return remote.WriteIndex(tag, index) })
	p.get(t, p.nodes, "HEAD", "lib/app", "v1")
	p.get(t, p.nodes, "GET", "lib/app", children["arm64"].String())
	if got := p.copyAll(t); len(got) != 2 {
		t.Errorf("copied %q", got)
	}
	p.hub.setDown(true)
	for arch, want := range map[string]int{"amd64": http.StatusOK, "arm64": http.StatusOK, "riscv64": http.StatusNotFound, "unnamed": http.StatusOK} {
		if res := p.get(t, p.nodes, "GET", "lib/app", children[arch].String()); res.StatusCode != want {
			t.Errorf("for %s the depot answers %d", arch, res.StatusCode)
		}
	}
	roots, err := p.store.Roots()
	if err != nil || len(roots) != 1 || roots[0].Version != 2 {
		t.Errorf("another depot would not learn of the second architecture: %+v, %v", roots, err)
	}
	// The depot of another control-plane node copies both.
	other := newStore(t)
	c := NewClient(p.URL, goodToken, fetch.Fetcher{Client: p.browser(nil), Attempts: 1})
	if _, err := other.Sync(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Architectures(t.Context(), hubRegistry+"/lib/app:v1"); err != nil || len(got) != 2 {
		t.Errorf("the other depot has %q, %v", got, err)
	}
}

// An image that a pod names by digest is copied under that digest.
func TestCopyByDigest(t *testing.T) {
	p := pullThrough(t)
	digest := p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.get(t, p.nodes, "GET", "lib/app", digest.String())
	if got := p.copyAll(t); !slices.Equal(got, []string{hubRegistry + "/lib/app@" + digest.String()}) {
		t.Fatalf("copied %q", got)
	}
	before := p.hub.asked("")
	if res := p.get(t, p.nodes, "GET", "lib/app", digest.String()); res.StatusCode != http.StatusOK || p.hub.asked("") != before {
		t.Errorf("by its digest: %d, after %d requests", res.StatusCode, p.hub.asked("")-before)
	}
	unused, _, err := p.store.Unused(t.Context(), Cluster{Uses: func(image string) bool { return image == digest.String() }})
	if err != nil || len(unused) > 0 {
		t.Errorf("unused %q, %v", unused, err)
	}
}

// Images still wanted when the depot ended are copied by the next process. Failures are shown, retried later and finally given up.
func TestWantsStay(t *testing.T) {
	p := pullThrough(t)
	p.hub.setDown(true)
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	p.copyAll(t)
	image := hubRegistry + "/lib/app:v1"
	st, err := p.store.Status(t.Context())
	if err != nil || len(st.Wanted) != 1 || st.Wanted[0].Image != image || !strings.Contains(st.Wanted[0].Why, "503") || strings.Contains(st.Wanted[0].Why, "pw") {
		t.Fatalf("status %+v, %v", st.Wanted, err)
	}
	p.up = p.upstream(t)
	if got := p.copyAll(t); len(got) > 0 {
		t.Errorf("copied %q at once", got)
	}
	p.hub.setDown(false)
	p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.clock = p.clock.Add(copyPause)
	if got := p.copyAll(t); !slices.Equal(got, []string{image}) {
		t.Errorf("copied %q", got)
	}
	p.get(t, p.nodes, "GET", "lib/app", "absent")
	p.copyAll(t)
	if list, err := p.store.Wants(); err != nil || len(list) > 0 {
		t.Errorf("what no registry has is still wanted: %+v, %v", list, err)
	}
	require.NoError(t, os.WriteFile(p.store.wantsFile(), []byte("no JSON"), 0o600))
	if p.upstream(t); p.store.Upstream == nil {
		t.Error("a damaged list keeps the depot from copying")
	}
}

// A disk that cannot be written to, such as a full one, keeps no node from pulling what the depot has.
func TestStartOnAFullDisk(t *testing.T) {
	p := pullThrough(t)
	image := p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	p.copyAll(t)
	if err := os.RemoveAll(p.store.tempDir()); err != nil { // nothing can be stored
		t.Fatal(err)
	}
	p.up = p.upstream(t)
	if res := p.get(t, p.nodes, "GET", "lib/app", image.String()); res.StatusCode != http.StatusOK {
		t.Errorf("the depot answers %s", res.Status)
	}
}

// Copies do not fill the disk, and the reason is shown.
func TestNoRoomToCopy(t *testing.T) {
	p := pullThrough(t)
	p.store.reserve = 1 << 60
	p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	if got := p.copyAll(t); len(got) > 0 || p.hub.asked("GET /v2/lib/app/blobs/") > 0 {
		t.Errorf("copied %q to a full disk", got)
	}
	list, err := p.store.Wants()
	if err != nil || len(list) != 1 || list[0].Tries != 0 || !list[0].Next.Equal(p.clock.Add(fullPause)) || !strings.Contains(list[0].Why, "MiB are free") {
		t.Errorf("wanted %+v, %v", list, err)
	}
}

// A prune removes copies that no workload uses and no node has requested for a week. A request keeps them.
func TestPruneCopies(t *testing.T) {
	p := pullThrough(t)
	nobody := func(string) bool { return false }
	p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	p.copyAll(t)
	root := pulledName(hubRegistry + "/lib/app:v1")
	age := func(d time.Duration) {
		t.Helper()
		r, err := p.store.Root(root)
		if r.Since = time.Now().Add(-d); err == nil {
			err = p.store.SetRoot(t.Context(), r)
		}
		require.NoError(t, err)
	}
	kept := func(used func(string) bool, want bool) {
		t.Helper()
		_, list, err := p.store.Unused(t.Context(), Cluster{Uses: used})
		if err != nil || slices.Contains(list, root) != want {
			t.Errorf("kept %q (%v), want it there: %v", list, err, want)
		}
	}
	kept(nobody, true)
	age(keptFor + time.Hour)
	kept(nobody, false)
	kept(func(image string) bool { return image == hubRegistry+"/lib/app:v1" }, true)
	p.get(t, p.nodes, "GET", "lib/app", "v1") // a pod has returned
	kept(nobody, true)
	version := func() int64 { r, _ := p.store.Root(root); return r.Version }
	before := version()
	p.get(t, p.nodes, "GET", "lib/app", "v1")
	if version() != before {
		t.Error("each request changes the root")
	}
	age(keptFor + time.Hour)
	removed, _, freed, err := p.store.Prune(t.Context(), Cluster{Uses: nobody}, 0)
	if err != nil || !slices.Equal(removed, []string{root}) || freed == 0 {
		t.Errorf("removed %q, %d bytes, %v", removed, freed, err)
	}
}

func TestDue(t *testing.T) {
	now := time.Now()
	w := func(image string, next time.Duration, busy bool) Want {
		return Want{Image: image, Since: now, Next: now.Add(next), busy: busy}
	}
	for _, tt := range []struct {
		wants []Want
		image string
		pause time.Duration
	}{
		{nil, "", maxCopyPause},
		{[]Want{w("r/a:1", 0, false), w("r/b:1", -time.Second, false)}, "r/b:1", maxCopyPause},
		{[]Want{w("r/a:1", time.Minute, false), w("r/b:1", time.Second, false)}, "", time.Second},
		{[]Want{w("r/a@sha256:1", -time.Minute, false), w("r/a:1", 0, false)}, "r/a:1", maxCopyPause},
		{[]Want{w("r/a@sha256:1", -time.Minute, false), w("r/a:1", 0, true)}, "", maxCopyPause},
		{[]Want{w("r:5/a@sha256:1", 0, false), w("r:5/b:1", 0, true)}, "r:5/a@sha256:1", maxCopyPause},
		{[]Want{w("r/a:1", 0, true), w("r/a:2", 0, false)}, "", maxCopyPause},
	} {
		wants := map[string]Want{}
		for _, w := range tt.wants {
			wants[w.Image] = w
		}
		if got, pause := due(wants, now); got.Image != tt.image || pause != tt.pause {
			t.Errorf("%+v: %q, %s", tt.wants, got.Image, pause)
		}
	}
}

func TestAfter(t *testing.T) {
	now := time.Now()
	fail := errors.New("timeout")
	w, again := Want{Image: "r/a:1", Since: now}, true
	var pauses []time.Duration
	for again {
		w, again = w.after(fail, now)
		pauses = append(pauses, w.Next.Sub(now))
	}
	if len(pauses) != copyTries || pauses[0] != copyPause || pauses[1] != 2*copyPause || slices.Max(pauses) != maxCopyPause {
		t.Errorf("pauses %s", pauses)
	}
	if _, again := (Want{Since: now}).after(fmt.Errorf("copying: %w", &registry.Error{Kind: registry.Missing, Err: fail}), now); again {
		t.Error("what the registry does not have is tried again")
	}
	if _, again := (Want{Since: now}).after(&registry.Error{Kind: registry.Denied, Err: fail}, now); !again {
		t.Error("a refusal is not tried again")
	}
	full := finding.New(CodeNoSpace, "full", "", "")
	if w, again := (Want{Since: now, Tries: 3}).after(full, now); !again || w.Tries != 3 || !w.Next.Equal(now.Add(fullPause)) {
		t.Errorf("a full disk: %+v", w)
	}
	if _, again := (Want{Since: now.Add(-keptFor - 1)}).after(full, now); again {
		t.Error("a want of last week is still tried")
	}
}

func TestPulledName(t *testing.T) {
	seen := map[string]bool{}
	for _, image := range []string{"docker.io/library/busybox:1.37", "r:5000/a/b_c:v1", "r/a@sha256:" + strings.Repeat("0", 64), "r/" + strings.Repeat("x/", 120) + "y:v1", "r/a:v1", "q/a:v1"} {
		n := pulledName(image)
		if !rootName.MatchString(n) || len(n) > 110 || seen[n] || filepath.Base(n) != n {
			t.Errorf("%s is the root %s", image, n)
		}
		seen[n] = true
	}
}

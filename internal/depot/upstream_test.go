// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/internal/wait"
)

// hub is a registry that wants a login. It counts what it is asked.
type hub struct {
	*httptest.Server
	push name.Registry

	mu   sync.Mutex
	log  []string
	down bool
}

const (
	hubLogin    = "puller:pw"
	hubRegistry = "hub.example"
)

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{}
	store := server.New(server.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(store)
	t.Cleanup(open.Close)
	var err error
	if h.push, err = name.NewRegistry(strings.TrimPrefix(open.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.log = append(h.log, r.Method+" "+r.URL.Path)
		down := h.down
		h.mu.Unlock()
		switch _, password, _ := r.BasicAuth(); {
		case down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case "puller:"+password != hubLogin:
			w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			store.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) setDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

// asked counts requests that begin so.
func (h *hub) asked(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func (h *hub) put(t *testing.T, image string, write func(name.Tag) error) {
	t.Helper()
	repository, tag := splitTag(image)
	if err := write(h.push.Repo(strings.Split(repository, "/")...).Tag(tag)); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) image(t *testing.T, image string, layer v1.Layer) v1.Hash {
	t.Helper()
	img := imagetest.Image(t, "amd64", layer)
	h.put(t, image, func(tag name.Tag) error { return remote.Write(tag, img) })
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// client is what a node's settings make: a mirror for the registry, and a login.
func (h *hub) client() (registry.Client, error) {
	hosts := fmt.Sprintf("server = %q\n", h.URL)
	auth := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, hubRegistry, base64.StdEncoding.EncodeToString([]byte(hubLogin)))
	credentials, err := registry.ParseCredentials([]byte(auth))
	return registry.Client{Credentials: credentials, Endpoints: registry.Machine(func(file string) ([]byte, error) {
		if file == registry.HostsDir+"/"+hubRegistry+"/hosts.toml" {
			return []byte(hosts), nil
		}
		return nil, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	})}, err
}

// through is a depot that copies from a hub, as nodes see it.
type through struct {
	*site
	hub   *hub
	store *Store
	up    *Upstream
	nodes *http.Client
	clock time.Time
}

func pullThrough(t *testing.T) *through {
	t.Helper()
	h, s := newHub(t), newStore(t)
	p := &through{hub: h, store: s, clock: time.Now()}
	p.up = p.upstream(t)
	p.site = listen(t, s, nil)
	p.nodes = p.client(t, "system:nodes")
	return p
}

func (p *through) upstream(t *testing.T) *Upstream {
	t.Helper()
	u, err := NewUpstream(p.store, p.hub.client)
	if err != nil {
		t.Fatal(err)
	}
	u.Fetcher = fetch.Fetcher{Attempts: 1, Pause: time.Millisecond}
	u.arch, u.now = "amd64", func() time.Time { return p.clock }
	return u
}

// client shows a certificate of a group.
func (p *through) client(t *testing.T, group string) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{group}}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, p.ca.Cert, key.Public(), p.ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return p.browser(&tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key})
}

// get asks for a manifest as containerd asks a mirror.
func (p *through) get(t *testing.T, c *http.Client, method, repository, ref string) *http.Response {
	t.Helper()
	res, _ := p.ask(t, c, method, "/v2/"+repository+"/manifests/"+ref+"?ns="+hubRegistry, "")
	return res
}

// copyAll copies what is wanted now, in turn.
func (p *through) copyAll(t *testing.T) (copied []string) {
	t.Helper()
	p.clock = p.clock.Add(headStart)
	for {
		w, _ := p.up.take()
		if w.Image == "" {
			return copied
		}
		err := p.up.copy(t.Context(), w.Image)
		p.up.finish(t.Context(), w, err)
		if err == nil {
			copied = append(copied, w.Image)
		}
	}
}

// pulled is what containerd needs of an image, from the depot alone.
func (p *through) pulled(t *testing.T, repository, ref string) error {
	t.Helper()
	depot, err := name.NewRegistry(strings.TrimPrefix(p.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	there := depot.Repo(strings.Split(repository, "/")...).Tag(ref)
	img, err := remote.Image(there, remote.WithTransport(withNamespace{p.nodes.Transport}), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		in, err := l.Compressed()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
	}
	_, err = img.RawConfigFile()
	return err
}

// withNamespace says which registry is meant, as containerd does.
type withNamespace struct{ next http.RoundTripper }

func (n withNamespace) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("ns", hubRegistry)
	r.URL.RawQuery = q.Encode()
	return n.next.RoundTrip(r)
}

// The first node gets an image from its registry. A later one gets it from the depot, also when the registry is gone.
func TestPulledOnce(t *testing.T) {
	p := pullThrough(t)
	digest := p.hub.image(t, "lib/app:v1", imagetest.Layer(t, 1))
	if res := p.get(t, p.nodes, "HEAD", "lib/app", "v1"); res.StatusCode != http.StatusNotFound {
		t.Fatalf("the first node gets %d", res.StatusCode)
	}
	// containerd goes on with the digest, which it knows from the registry.
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
	if err != nil {
		t.Fatal(err)
	}
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

// Only nodes make the depot copy: not those that join, and nothing that only the asking machine could mean.
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

// A tag that has moved is not served any more, and copied again. Many questions in a short time are one to the registry. A registry that does
// not answer does not keep the depot from serving.
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
	serves(http.StatusOK, first) // for some seconds
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

// Of an image for several architectures the depot takes what its nodes need.
func TestCopyOfSeveralArchitectures(t *testing.T) {
	p := pullThrough(t)
	var index v1.ImageIndex = empty.Index
	children := map[string]v1.Hash{}
	for i, arch := range []string{"amd64", "arm64", "riscv64"} {
		img := imagetest.Image(t, arch, imagetest.Layer(t, int64(i+1)))
		var err error
		if children[arch], err = img.Digest(); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	p.hub.put(t, "lib/app:v1", func(tag name.Tag) error { return remote.WriteIndex(tag, index) })
	p.get(t, p.nodes, "HEAD", "lib/app", "v1")
	p.get(t, p.nodes, "GET", "lib/app", children["arm64"].String())
	if got := p.copyAll(t); len(got) != 2 {
		t.Errorf("copied %q", got)
	}
	p.hub.setDown(true)
	for arch, want := range map[string]int{"amd64": http.StatusOK, "arm64": http.StatusOK, "riscv64": http.StatusNotFound} {
		if res := p.get(t, p.nodes, "GET", "lib/app", children[arch].String()); res.StatusCode != want {
			t.Errorf("for %s the depot answers %d", arch, res.StatusCode)
		}
	}
	roots, err := p.store.Roots()
	if err != nil || len(roots) != 1 || roots[0].Version != 2 {
		t.Errorf("another depot would not learn of the second architecture: %+v, %v", roots, err)
	}
	// The depot of another control-plane node takes over both.
	other := newStore(t)
	c := NewClient(p.URL, goodToken, fetch.Fetcher{Client: p.browser(nil), Attempts: 1})
	if _, err := other.Sync(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Architectures(t.Context(), hubRegistry+"/lib/app:v1"); err != nil || len(got) != 2 {
		t.Errorf("the other depot has %q, %v", got, err)
	}
}

// An image that a pod names by its digest is copied under it.
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

// What was wanted when the depot ended is copied by the next process. What fails is shown, tried again later and at last given up.
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
	if err := os.WriteFile(p.store.wantsFile(), []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.upstream(t); p.store.Upstream == nil {
		t.Error("a damaged list keeps the depot from copying")
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

// A prune removes copies that no workload uses and no node has asked for in a week. Who asks keeps it.
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
		if err != nil {
			t.Fatal(err)
		}
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
	p.get(t, p.nodes, "GET", "lib/app", "v1") // a pod has come back
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

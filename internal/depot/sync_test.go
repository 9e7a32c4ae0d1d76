// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func (s *site) client() *Client {
	return NewClient(s.URL, goodToken, fetch.Fetcher{Client: s.browser(nil), Pause: time.Millisecond})
}

// Two depots at two addresses: each follows what the other adds or removes.
func TestSync(t *testing.T) {
	a, b := filled(t), newStore(t)
	atA, atB := listen(t, a, nil), listen(t, b, nil)
	sync := func(s *Store, from *site, want ...string) {
		t.Helper()
		changed, err := s.Sync(t.Context(), from.client())
		slices.Sort(changed)
		if err != nil || !slices.Equal(changed, want) {
			t.Fatalf("took over %q, %v; want %q", changed, err, want)
		}
	}
	same := func() {
		t.Helper()
		ca, aerr := a.Contents(t.Context())
		cb, berr := b.Contents(t.Context())
		if d := cmp.Diff(ca, cb); d != "" || aerr != nil || berr != nil {
			t.Errorf("%v, %v (-a +b):\n%s", aerr, berr, d)
		}
	}
	names := func(s *Store) (out []string) {
		roots, err := s.Roots()
		require.NoError(t, err)
		for _, r := range roots {
			out = append(out, r.Name)
		}
		return out
	}
	first := names(a)
	sync(b, atA, first...)
	sync(b, atA)
	sync(a, atB)
	same()
	// In the other direction.
	require.NoError(t, b.SetRoot(t.Context(), Root{Name: "later", Files: map[string]File{"f": {Digest: b.put(t, "later"), Size: 5}}}))
	sync(a, atB, "later")
	same()
	if _, err := a.text(t, hashOf(t, "later")); err != nil {
		t.Error(err)
	}
	// What is removed here stays removed.
	if _, err := a.collect(t.Context(), []string{"later"}, -time.Hour); err != nil {
		t.Fatal(err)
	}
	sync(a, atB)
	sync(b, atA, first...)
	same()
	if got := names(b); !slices.Equal(got, []string{"later"}) {
		t.Errorf("roots %q", got)
	}
	// A depot that never had it is not affected.
	sync(newStore(t), atA, "later")
}

// A depot that has lost a blob gets it from another one, although it has the same version of the root.
func TestSyncOfALostBlob(t *testing.T) {
	a, b := filled(t), newStore(t)
	from := listen(t, a, nil).client()
	if _, err := b.Sync(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	roots, err := b.Roots()
	if err != nil || len(roots) != 1 {
		t.Fatal(roots, err)
	}
	for h := range b.reach(t.Context(), roots[0]) {
		file, err := b.blobFile(h)
		if err == nil {
			err = os.Remove(file)
		}
		require.NoError(t, err)
		changed, err := b.Sync(t.Context(), from)
		if done, cerr := b.Complete(t.Context(), roots[0].Name); !done || err != nil || cerr != nil || len(changed) != 1 {
			t.Errorf("without %s: complete %t, took over %q, %v, %v", h, done, changed, err, cerr)
		}
	}
	if changed, err := b.Sync(t.Context(), from); err != nil || len(changed) > 0 {
		t.Errorf("again: %q, %v", changed, err)
	}
}

// The clocks of control-plane nodes differ: the later change wins if it was made with knowledge of the earlier one, whatever the clocks say.
func TestSyncWithWrongClocks(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": 1000 * time.Hour, "behind": -1000 * time.Hour} {
		a, b := newStore(t), newStore(t)
		atA, atB := listen(t, a, nil), listen(t, b, nil)
		f := File{Digest: a.put(t, "text"), Size: 4}
		// The clock of a is wrong, so the root has a wrong time.
		set := func(s *Store, r Root) {
			t.Helper()
			require.NoError(t, s.SetRoot(t.Context(), r))
		}
		sync := func(s *Store, from *site, want int) {
			t.Helper()
			if changed, err := s.Sync(t.Context(), from.client()); err != nil || len(changed) != want {
				t.Fatalf("%s: took over %q, %v; want %d", name, changed, err, want)
			}
		}
		set(a, Root{Name: "x", Since: time.Now().Add(ahead), Files: map[string]File{"f": f}})
		sync(b, atA, 1)
		if _, err := b.collect(t.Context(), nil, 0); err != nil { // a prune on b, whose clock is right
			t.Fatal(err)
		}
		sync(a, atB, 1)
		if roots, err := a.Roots(); err != nil || len(roots) > 0 {
			t.Fatalf("%s: the prune did not reach the other: %v, %v", name, roots, err)
		}
		a.put(t, "text") // stored again
		set(a, Root{Name: "x", Since: time.Now().Add(ahead), Files: map[string]File{"f": f}})
		sync(b, atA, 1)
		sync(a, atB, 0)
		if roots, err := b.Roots(); err != nil || len(roots) != 1 {
			t.Errorf("%s: what was filled again did not reach the other: %v, %v", name, roots, err)
		}
		// Concurrent changes: the content stays on both, rather than the removal.
		if _, err := b.collect(t.Context(), nil, 0); err != nil {
			t.Fatal(err)
		}
		set(a, Root{Name: "x", Files: map[string]File{"f": f, "g": f}})
		sync(b, atA, 1)
		sync(a, atB, 0)
		if roots, err := b.Roots(); err != nil || len(roots) != 1 {
			t.Errorf("%s: removed and filled at the same time: %v, %v", name, roots, err)
		}
	}
}

// An interrupted copy stores no root, and the next one copies only missing blobs.
func TestSyncThatBreaksOff(t *testing.T) {
	a, b := filled(t), newStore(t)
	var blobs atomic.Int32
	var broken atomic.Bool
	broken.Store(true)
	site := listen(t, a, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := blobs.Load(); strings.HasPrefix(r.URL.Path, blobPrefix) {
				if blobs.Add(1); broken.Load() && n >= 2 {
					http.NotFound(w, r)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	if _, err := b.Sync(t.Context(), site.client()); err == nil {
		t.Fatal("it did not break off")
	}
	if roots, err := b.Roots(); err != nil || len(roots) > 0 {
		t.Fatalf("roots %v, %v", roots, err)
	}
	before, _ := b.left(t)
	all, _ := a.left(t)
	broken.Store(false)
	blobs.Store(0)
	if _, err := b.Sync(t.Context(), site.client()); err != nil {
		t.Fatal(err)
	}
	if want := int32(len(all) - len(before)); blobs.Load() != want {
		t.Errorf("%d blobs were asked for, want %d", blobs.Load(), want)
	}
	full := &Store{dir: b.dir, reserve: 1 << 62, sound: b.sound, roots: b.roots}
	require.NoError(t, a.SetRoot(t.Context(), Root{Name: "more", Files: map[string]File{"f": {Digest: a.put(t, "more"), Size: 4}}}))
	if _, err := full.Sync(t.Context(), site.client()); len(finding.Of(err)) == 0 || finding.Of(err)[0].Code != CodeNoSpace {
		t.Errorf("without space: %v", err)
	}
}

// A blob damaged on one depot's disk is no longer in any depot. The other roots are copied nevertheless.
func TestSyncContinuesAfterARootWithoutABlob(t *testing.T) {
	a, b := newStore(t), newStore(t)
	site := listen(t, a, nil)
	for _, name := range []string{"whole", "damaged"} { // the latest comes first
		require.NoError(t, a.SetRoot(t.Context(), Root{Name: name, Files: map[string]File{"f": {Digest: a.put(t, name), Size: int64(len(name))}}}))
	}
	file, err := a.blobFile(hashOf(t, "damaged"))
	if err == nil {
		err = os.Remove(file)
	}
	require.NoError(t, err)
	changed, err := b.Sync(t.Context(), site.client())
	if l := finding.Of(err); len(l) != 1 || l[0].Code != CodeNoBlob || !slices.Equal(changed, []string{"whole"}) {
		t.Errorf("took over %q, %v", changed, err)
	}
}

// An image of several architectures lacks a layer of one of them on the other depot. The other roots are copied nevertheless.
func TestSyncContinuesAfterAnIndexWithoutALayer(t *testing.T) {
	a, b := newStore(t), newStore(t)
	layer := imagetest.Layer(t, 2)
	var images []v1.Descriptor
	for arch, l := range map[string]v1.Layer{"amd64": imagetest.Layer(t, 1), "arm64": layer} {
		d, err := a.AddImage(t.Context(), imagetest.Image(t, arch, l))
		require.NoError(t, err)
		images = append(images, d)
	}
	d, _, err := a.putIndex(t.Context(), images)
	require.NoError(t, err)
	for _, r := range []Root{ // the latest comes first
		{Name: "whole", Files: map[string]File{"f": {Digest: a.put(t, "whole"), Size: 5}}},
		{Name: "damaged", Images: map[string]v1.Descriptor{"registry.example/a:v1": d}},
	} {
		require.NoError(t, a.SetRoot(t.Context(), r))
	}
	h, err := layer.Digest()
	require.NoError(t, err)
	file, err := a.blobFile(h)
	if err == nil {
		err = os.Remove(file)
	}
	require.NoError(t, err)
	changed, err := b.Sync(t.Context(), listen(t, a, nil).client())
	if l := finding.Of(err); len(l) != 1 || l[0].Code != CodeNoBlob || !slices.Equal(changed, []string{"whole"}) {
		t.Errorf("took over %q, %v", changed, err)
	}
}

func TestFollow(t *testing.T) {
	a, b := filled(t), newStore(t)
	site := listen(t, a, nil)
	ctx, stop := context.WithCancel(t.Context())
	rounds := 0
	b.Follow(ctx, time.Millisecond, func(context.Context) ([]*Client, error) {
		if rounds++; rounds == 1 {
			return nil, os.ErrNotExist
		}
		if rounds == 3 {
			stop()
		}
		return []*Client{site.client()}, nil
	})
	ca, _ := a.Contents(t.Context())
	if cb, err := b.Contents(t.Context()); err != nil || !cmp.Equal(ca, cb) {
		t.Errorf("not followed: %v", err)
	}
}

// A joining node sees the files and images of its architecture, and an archive that containerd accepts.
func TestRemote(t *testing.T) {
	store := filled(t)
	site := listen(t, store, nil)
	r, err := site.client().Remote(t.Context(), "amd64")
	require.NoError(t, err)
	var images []string
	for _, i := range r.Contents().Images {
		images = append(images, i.Name)
	}
	if len(images) != 2 || len(r.Contents().Files) == 0 {
		t.Fatalf("contents %+v", r.Contents())
	}
	f, err := r.OpenFile(t.Context(), "/usr/local/bin/kubelet")
	require.NoError(t, err)
	if raw, err := io.ReadAll(f); err != nil || string(raw) != kubeletText || f.Close() != nil {
		t.Errorf("kubelet has %d bytes, %v", len(raw), err)
	}
	if f, err = r.OpenFile(t.Context(), "/usr/local/bin/kubelet"); err != nil || f.Close() != nil { // unread
		t.Error(err)
	}
	size, write, err := r.Archive(t.Context(), images)
	require.NoError(t, err)
	in, out := io.Pipe()
	go func() { out.CloseWithError(write(out)) }()
	copied := newStore(t)
	got, err := copied.AddArchive(t.Context(), in)
	if err != nil || len(got) != 2 || size == 0 {
		t.Fatalf("archive %v of %d bytes, %v", got, size, err)
	}
	if err := copied.SetRoot(t.Context(), Root{Name: "x", Images: got}); err != nil {
		t.Error(err)
	}
	if err := r.CheckArchitecture(); err != nil {
		t.Error(err)
	}
	other, err := site.client().Remote(t.Context(), "arm64")
	if err != nil || len(other.Contents().Files) > 0 {
		t.Fatalf("for arm64: %+v, %v", other, err)
	}
	if l := finding.Of(other.CheckArchitecture()); len(l) != 1 || l[0].Code != CodeNoArchitecture {
		t.Errorf("for arm64: %v", l)
	}
	if _, err := r.OpenFile(t.Context(), "/absent"); err == nil {
		t.Error("an absent file was opened")
	}
	if _, _, err := r.Archive(t.Context(), []string{"absent"}); err == nil {
		t.Error("an absent image was archived")
	}
}

// A root that was damaged on the disk must not take the other roots with it, and comes back from another depot or from a bundle.
func TestSyncOfADamagedRoot(t *testing.T) {
	a, b := filled(t), newStore(t)
	from := listen(t, a, nil).client()
	require.NoError(t, b.SetRoot(t.Context(), Root{Name: "own", Files: map[string]File{"f": {Digest: b.put(t, "own"), Size: 3}}}))
	if _, err := b.Sync(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	whole, err := a.Roots()
	require.NoError(t, err)
	name := whole[0].Name
	for i, repair := range []func() error{
		func() error { _, err := b.Sync(t.Context(), from); return err },
		func() error { r := whole[0]; r.Version = 0; return b.SetRoot(t.Context(), r) },
	} {
		require.NoError(t, os.WriteFile(b.rootFile(name), make([]byte, 512), 0o600))
		if c, err := b.Contents(t.Context()); err != nil || i == 0 && len(c.Files) != 1 {
			t.Errorf("beside a damaged root: %+v, %v", c.Files, err)
		}
		if _, _, _, err := b.Prune(t.Context(), Cluster{}, time.Hour); err != nil {
			t.Errorf("pruning: %v", err)
		}
		if err := repair(); err != nil {
			t.Errorf("repairing: %v", err)
		}
		if done, err := b.Complete(t.Context(), name); !done || err != nil {
			t.Errorf("repaired: %t, %v", done, err)
		}
	}
}

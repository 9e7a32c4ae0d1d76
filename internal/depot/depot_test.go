// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

const (
	imageA  = "registry.example/lib/a:v1"
	imageB  = "registry.example/lib/b:v1"
	kubelet = "linux/amd64/usr/local/bin/kubelet"
)

var kubeletText = strings.Repeat("kubelet", 100000)

func newStore(t *testing.T) *Store {
	t.Helper()
	return reopen(t, filepath.Join(t.TempDir(), "depot"))
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, 0)
	require.NoError(t, err)
	return s
}

func testBundle(t *testing.T) *bundle.Bundle {
	t.Helper()
	shared := imagetest.Layer(t, 1)
	file := filepath.Join(t.TempDir(), "bundle")
	err := bundle.Create(t.Context(), file, bundle.Info{OS: "linux", Arch: "amd64", KubernetesVersion: "v1.36.3"},
		[]bundle.FileSource{{Path: "usr/local/bin/kubelet", Mode: 0o755, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(kubeletText)), nil
		}}},
		[]bundle.ImageSource{{Name: imageA, Image: imagetest.Image(t, "amd64", shared)}, {Name: imageB, Image: imagetest.Image(t, "amd64", shared, imagetest.Layer(t, 2))}})
	require.NoError(t, err)
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func filled(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	require.NoError(t, s.Fill(t.Context(), "v1", testBundle(t), nil))
	return s
}

func hashOf(t *testing.T, text string) v1.Hash {
	t.Helper()
	h, _, err := v1.SHA256(strings.NewReader(text))
	require.NoError(t, err)
	return h
}

func (s *Store) put(t *testing.T, text string) v1.Hash {
	t.Helper()
	h := hashOf(t, text)
	require.NoError(t, s.Put(t.Context(), h, int64(len(text)), strings.NewReader(text)))
	return h
}

func (s *Store) text(t *testing.T, h v1.Hash) (string, error) {
	t.Helper()
	f, err := s.Blob(t.Context(), h)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	return string(raw), err
}

// left returns the files in the directories of blobs and of temporary files.
func (s *Store) left(t *testing.T) (blobs, temps []string) {
	t.Helper()
	for dir, list := range map[string]*[]string{s.blobDir(): &blobs, s.tempDir(): &temps} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			*list = append(*list, e.Name())
		}
	}
	return blobs, temps
}

func TestPut(t *testing.T) {
	s := newStore(t)
	h := s.put(t, "one")
	if got, err := s.text(t, h); got != "one" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := s.Put(t.Context(), h, 3, iotestReader{}); err != nil {
		t.Errorf("a blob that was there was read again: %v", err)
	}
	other := hashOf(t, "another")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"other content": s.Put(t.Context(), other, 7, strings.NewReader("anotheR")),
		"too short":     s.Put(t.Context(), other, 7, strings.NewReader("anoth")),
		"too long":      s.Put(t.Context(), other, 7, strings.NewReader("another one")),
		"broken":        s.Put(t.Context(), other, 7, iotestReader{}),
		"canceled":      s.Put(canceled, other, 7, strings.NewReader("another")),
		"bad digest":    s.Put(t.Context(), v1.Hash{Algorithm: "sha256", Hex: "../../x"}, 1, strings.NewReader("x")),
	} {
		if err == nil {
			t.Errorf("%s: it was stored", name)
		}
	}
	if blobs, temps := s.left(t); len(blobs) != 1 || len(temps) != 0 {
		t.Errorf("left: %q, %q", blobs, temps)
	}
}

// iotestReader is a connection that breaks immediately.
type iotestReader struct{}

func (iotestReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestNoSpace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "depot")
	s, err := Open(dir, 1<<60)
	require.NoError(t, err)
	for name, err := range map[string]error{
		"a blob":   s.Put(t.Context(), hashOf(t, "x"), 1, strings.NewReader("x")),
		"a bundle": s.Fill(t.Context(), "v1", testBundle(t), nil),
	} {
		if l := finding.Of(err); len(l) != 1 || l[0].Code != CodeNoSpace || !strings.Contains(l[0].Remedy, dir) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if blobs, temps := s.left(t); len(blobs)+len(temps) > 0 {
		t.Errorf("left: %q, %q", blobs, temps)
	}
}

// Nodes that join together can read the same blob concurrently; if one gives up, the others are not affected.
func TestManyReaders(t *testing.T) {
	s := newStore(t)
	h := s.put(t, kubeletText)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			if i%4 == 0 {
				if f, err := s.Blob(canceled, h); err == nil { // the others were faster
					return f.Close()
				}
				return nil
			}
			got, err := s.text(t, h)
			if err == nil && got != kubeletText {
				err = fmt.Errorf("got %d bytes", len(got))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A blob damaged on disk is never served: it is absent, and can be stored again.
func TestDamage(t *testing.T) {
	for _, read := range []bool{false, true} {
		s := newStore(t)
		h := s.put(t, "content")
		if read {
			if _, err := s.text(t, h); err != nil {
				t.Fatal(err)
			}
		}
		file, err := s.blobFile(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, []byte("c0ntent"), 0o600))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(1, 0)))
		if got, err := s.text(t, h); !errors.Is(err, ErrAbsent) {
			t.Errorf("read before: %v; got %q, %v", read, got, err)
		}
		s.put(t, "content")
		if got, err := s.text(t, h); got != "content" || err != nil {
			t.Errorf("stored again: %q, %v", got, err)
		}
	}
}

func TestFill(t *testing.T) {
	s, b := newStore(t), testBundle(t)
	var done, total int64
	report := func(d, n int64) {
		if d < done {
			t.Errorf("progress went back from %d to %d", done, d)
		}
		done, total = d, n
	}
	require.NoError(t, s.Fill(t.Context(), "v1", b, report))
	if done == 0 || done != total {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	// Another process sees the same.
	c, err := reopen(t, s.dir).Contents(t.Context())
	require.NoError(t, err)
	want := map[string]File{kubelet: {Digest: hashOf(t, kubeletText), Size: int64(len(kubeletText)), Mode: 0o755}}
	if d := cmp.Diff(want, c.Files); d != "" || len(c.Images) != 2 {
		t.Errorf("%d images; files (-want +got):\n%s", len(c.Images), d)
	}
	for _, i := range b.Contents().Images {
		if got := c.Images[i.Name].Digest.String(); got != i.Digest {
			t.Errorf("%s is %s, want %s", i.Name, got, i.Digest)
		}
	}
	// Manifests and configs of two images, their two layers (one of them shared), and a file.
	if blobs, temps := s.left(t); len(blobs) != 2+2+2+1 || len(temps) > 0 {
		t.Errorf("%d blobs, temporary files %q", len(blobs), temps)
	}
	done = 0
	if err := s.Fill(t.Context(), "v1", b, report); err != nil || done != total {
		t.Errorf("a second time: %d of %d, %v", done, total, err)
	}
}

// A damaged bundle leaves no root that names missing content.
func TestFillFromADamagedBundle(t *testing.T) {
	s, b := newStore(t), testBundle(t)
	raw, err := os.ReadFile(b.Name())
	require.NoError(t, err)
	i := bytes.Index(raw, []byte(`"rootfs"`))
	raw[i+1] = 'R'
	require.NoError(t, os.WriteFile(b.Name(), raw, 0o600))
	if err := s.Fill(t.Context(), "v1", b, nil); err == nil {
		t.Error("it was filled")
	}
	if roots, err := s.Roots(); err != nil || len(roots) > 0 {
		t.Errorf("roots %v, %v", roots, err)
	}
}

func TestRoots(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"", "../x", "a/b", ".x", "x.", "x y"} {
		if err := s.SetRoot(t.Context(), Root{Name: name}); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	if err := s.SetRoot(t.Context(), Root{Name: "v1", Files: map[string]File{"f": {Digest: hashOf(t, "absent")}}}); !errors.Is(err, ErrAbsent) {
		t.Errorf("a root without its blob: %v", err)
	}
	// The later root determines the meaning of a name.
	old, later := File{Digest: s.put(t, "old"), Size: 3}, File{Digest: s.put(t, "later"), Size: 5}
	for _, r := range []Root{{Name: "b", Since: time.Now().Add(time.Hour), Files: map[string]File{"f": old}}, {Name: "a", Files: map[string]File{"f": later, "only": later}}} {
		require.NoError(t, s.SetRoot(t.Context(), r))
	}
	c, err := s.Contents(t.Context())
	require.NoError(t, err)
	if d := cmp.Diff(map[string]File{"f": later, "only": later}, c.Files); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCollect(t *testing.T) {
	s := filled(t)
	d, err := s.AddImage(t.Context(), imagetest.Image(t, "amd64", imagetest.Layer(t, 1), imagetest.Layer(t, 3)))
	require.NoError(t, err)
	require.NoError(t, s.SetRoot(t.Context(), Root{Name: "v2", Images: map[string]v1.Descriptor{"registry.example/c:v2": d}}))
	loose := s.put(t, "of a fill that is under way")
	all, _ := s.left(t)
	if freed, err := s.collect(t.Context(), []string{"v2"}, time.Hour); err != nil || freed > 0 {
		t.Errorf("freed %d bytes that are new, %v", freed, err)
	}
	if got, _ := s.left(t); !slices.Equal(all, got) {
		t.Error("something new is gone")
	}
	if freed, err := s.collect(t.Context(), []string{"v2"}, -time.Hour); err != nil || freed < int64(len(kubeletText)) {
		t.Errorf("freed %d bytes, %v", freed, err)
	}
	if _, err := s.text(t, loose); !errors.Is(err, ErrAbsent) {
		t.Errorf("garbage was kept: %v", err)
	}
	// What the root needs is complete: manifest, config, two layers.
	if blobs, _ := s.left(t); len(blobs) != 4 {
		t.Errorf("%d blobs are left", len(blobs))
	}
	for h := range s.reach(t.Context(), Root{Images: map[string]v1.Descriptor{"x": d}}) {
		if _, err := s.text(t, h); err != nil {
			t.Errorf("%s: %v", h, err)
		}
	}
	if roots, err := s.Roots(); err != nil || len(roots) != 1 {
		t.Errorf("roots %v, %v", roots, err)
	}
}

// Storing an existing blob renews it, so that it survives until its root is stored.
func TestPutRenews(t *testing.T) {
	s := newStore(t)
	h := s.put(t, "text")
	if _, err := s.text(t, h); err != nil {
		t.Fatal(err)
	}
	file, err := s.blobFile(h)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(1, 0)))
	s.put(t, "text")
	if freed, err := s.collect(t.Context(), nil, time.Hour); err != nil || freed > 0 {
		t.Errorf("freed %d, %v", freed, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/test/require"
)

// use reads everything in a bundle as an installer would.
func use(ctx context.Context, raw []byte) (Contents, error) {
	b, err := read(ctx, "test", bytes.NewReader(raw), int64(len(raw)), v1.Hash{})
	if err != nil {
		return Contents{}, err
	}
	return b.Contents(), b.Verify(ctx, nil)
}

func TestCutOff(t *testing.T) {
	raw, err := os.ReadFile(create(t))
	require.NoError(t, err)
	for n := 0; n < len(raw); n += 61 {
		_, err := read(t.Context(), "test", bytes.NewReader(raw[:n]), int64(n), v1.Hash{})
		if c := code(err); c != CodeTruncated && (c != CodeNotABundle || n >= blockSize) {
			t.Fatalf("cut off at %d of %d: got %q, %v", n, len(raw), c, err)
		}
	}
}

// A changed byte is either detected or affects nothing that is used: wrong content is never installed silently.
func TestDamage(t *testing.T) {
	raw, err := os.ReadFile(create(t))
	require.NoError(t, err)
	want, err := use(t.Context(), raw)
	require.NoError(t, err)
	found := 0
	for i := 0; i < len(raw); i += 11 {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			bad := bytes.Clone(raw)
			bad[i] ^= bit
			got, err := use(t.Context(), bad)
			if err == nil {
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("bit %#x of byte %d changed, and the contents with it (-want +got):\n%s", bit, i, d)
				}
				continue
			}
			found++
			if c := code(err); !strings.HasPrefix(c, "OCA-23") {
				t.Fatalf("byte %d: the error is no finding: %v", i, err)
			}
		}
	}
	if found < len(raw)/11 {
		t.Errorf("only %d of %d changes were found", found, len(raw)/11*3)
	}
}

// rewrite changes one entry of an archive and keeps it well-formed.
func rewrite(t *testing.T, raw []byte, name string, change func([]byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		data, rerr := io.ReadAll(r)
		if err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		if h.Name == name {
			if data = change(data); data == nil {
				continue
			}
		}
		require.NoError(t, writeBytes(w, h.Name, data))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestTamperedIndex(t *testing.T) {
	raw, err := os.ReadFile(create(t))
	require.NoError(t, err)
	edit := func(f func(*v1.IndexManifest)) func([]byte) []byte {
		return func(b []byte) []byte {
			var m v1.IndexManifest
			require.NoError(t, json.Unmarshal(b, &m))
			f(&m)
			out, _ := json.Marshal(m)
			return out
		}
	}
	for _, c := range []struct {
		name, want string
		change     func([]byte) []byte
	}{
		{"no index", CodeNotABundle, func([]byte) []byte { return nil }},
		{"not JSON", CodeCorrupt, func([]byte) []byte { return []byte("{") }},
		{"two documents", CodeCorrupt, func(b []byte) []byte { return append(b, "{}"...) }},
		{"no node", CodeNotABundle, edit(func(m *v1.IndexManifest) { m.Manifests = m.Manifests[1:] })},
		{"image dropped", CodeCorrupt, edit(func(m *v1.IndexManifest) { m.Manifests = m.Manifests[:2] })},
		{"images swapped", CodeCorrupt, edit(func(m *v1.IndexManifest) {
			m.Manifests[1].Annotations, m.Manifests[2].Annotations = m.Manifests[2].Annotations, m.Manifests[1].Annotations
		})},
		{"image renamed", CodeCorrupt, edit(func(m *v1.IndexManifest) {
			m.Manifests[1].Annotations = map[string]string{nameAnnotation: "x.example/x:1", refAnnotation: "x.example/x:1"}
		})},
		{"image twice", CodeCorrupt, edit(func(m *v1.IndexManifest) { m.Manifests[2] = m.Manifests[1] })},
		{"wrong digest", CodeCorrupt, edit(func(m *v1.IndexManifest) { m.Manifests[1].Digest.Hex = strings.Repeat("0", 64) })},
		{"wrong size", CodeCorrupt, edit(func(m *v1.IndexManifest) { m.Manifests[1].Size++ })},
		{"wrong media type", CodeCorrupt, edit(func(m *v1.IndexManifest) { m.Manifests[1].MediaType = types.DockerManifestSchema2 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := use(t.Context(), rewrite(t, raw, indexName, c.change)); code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestPathsOutsideAreRefused(t *testing.T) {
	for _, p := range []string{"", "/", ".", "..", "../x", "/../x", "a/../../x", "/a//b", "a/./b", "a/", `a\..\b`, "a\x00b"} {
		a := fileAnnotations(FileInfo{Path: p, Mode: 0o644, Digest: "sha256:" + strings.Repeat("0", 64)})
		if f, err := fileInfo(a); err == nil {
			t.Errorf("%q became %q", p, f.Path)
		}
	}
	a := fileAnnotations(FileInfo{Path: "/usr/bin/x", Mode: 0o644, Digest: "sha256:" + strings.Repeat("0", 64)})
	if _, err := fileInfo(a); err != nil {
		t.Error(err)
	}
	a[modeAnnotation] = "4755"
	if _, err := fileInfo(a); err == nil {
		t.Error("a set-user-id file was taken")
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		data, want string
	}{
		"empty": {"", CodeNotABundle},
		"text":  {strings.Repeat("no bundle at all\n", 100), CodeNotABundle},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(c.data), 0o600))
		if _, err := Open(t.Context(), path); code(err) != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "none")); code(err) != CodeUnreadable || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(t.Context(), dir); code(err) != CodeUnreadable {
		t.Errorf("got %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "b")
	require.NoError(f, Create(f.Context(), path, testInfo, testFiles(), nil))
	raw, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(raw)
	f.Add(raw[:1000])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := read(t.Context(), "fuzz", bytes.NewReader(data), int64(len(data)), v1.Hash{})
		if err != nil {
			if code(err) == "" {
				t.Errorf("the error is no finding: %v", err)
			}
			return
		}
		for _, file := range b.Contents().Files {
			if p, err := cleanPath(file.Path); err != nil || p != file.Path {
				t.Errorf("took the path %q", file.Path)
			}
			if r, err := b.OpenFile(file.Path); err == nil {
				_, _ = io.Copy(io.Discard, r)
				r.Close()
			}
		}
	})
}

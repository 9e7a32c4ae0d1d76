// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

func mustBuild(t *testing.T, path string, s Spec) *Bundle {
	t.Helper()
	require.NoError(t, Build(t.Context(), path, s))
	return open(t, path)
}

func on(t *testing.T, b *Bundle, arch string) *Bundle {
	t.Helper()
	other, err := b.On(arch)
	require.NoError(t, err)
	return other
}

func platformOf(t *testing.T, arch string) Platform {
	info := testInfo
	info.Arch = arch
	return Platform{info, []FileSource{{Path: "/usr/local/bin/kubelet", Mode: 0o755, Open: content("kubelet for " + arch)}},
		[]ImageSource{{Name: imageA, Image: imagetest.Image(t, arch, imagetest.Layer(t, 1))}}}
}

// Each platform has its own files and images; this machine's is the default.
func TestPlatforms(t *testing.T) {
	b := mustBuild(t, filepath.Join(t.TempDir(), "b"), Spec{Platforms: []Platform{platformOf(t, "riscv64"), platformOf(t, runtime.GOARCH)}})
	if d := cmp.Diff([]string{"linux/riscv64", "linux/" + runtime.GOARCH}, b.Platforms()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := b.CheckPlatform(runtime.GOARCH, ""); err != nil {
		t.Error(err)
	}
	other := on(t, b, "riscv64")
	for _, v := range []*Bundle{b, other} {
		in, err := v.OpenFile("/usr/local/bin/kubelet")
		require.NoError(t, err)
		var text bytes.Buffer
		if _, err := text.ReadFrom(in); err != nil || text.String() != "kubelet for "+v.Contents().Info.Arch {
			t.Errorf("%q, %v", text.String(), err)
		}
		if err := v.WriteImages(t.Context(), &text, []string{imageA}); err != nil {
			t.Error(err)
		}
	}
	if b.Contents().Images[0].Digest == other.Contents().Images[0].Digest {
		t.Error("both platforms have the same image")
	}
	if _, err := b.On("s390x"); code(err) != CodeWrongPlatform || !strings.Contains(err.Error(), "linux/riscv64, linux/"+runtime.GOARCH) {
		t.Errorf("got %v", err)
	}
	if err := b.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	twice := Spec{Platforms: []Platform{platformOf(t, "arm64"), platformOf(t, "arm64")}}
	if err := Build(t.Context(), filepath.Join(t.TempDir(), "b"), twice); err == nil {
		t.Error("one platform was taken twice")
	}
}

func TestSignature(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	other, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	dir := t.TempDir()
	unsigned := mustBuild(t, filepath.Join(dir, "a"), Spec{Platforms: []Platform{platformOf(t, "arm64")}})
	signed := mustBuild(t, filepath.Join(dir, "b"), Spec{Platforms: []Platform{platformOf(t, "arm64")}, Key: private})
	if signed.ID() != unsigned.ID() || unsigned.Signed() || !signed.Signed() {
		t.Errorf("signed %v: %s; signed %v: %s", unsigned.Signed(), unsigned.ID(), signed.Signed(), signed.ID())
	}
	if err := signed.CheckSignature(public); err != nil {
		t.Error(err)
	}
	for _, err := range []error{unsigned.CheckSignature(public), signed.CheckSignature(other)} {
		if code(err) != CodeSignature {
			t.Errorf("got %v", err)
		}
	}
	raw, err := os.ReadFile(signed.Name())
	require.NoError(t, err)
	changed := rewrite(t, raw, indexName, func(b []byte) []byte { return append(b, ' ') })
	b, err := read(t.Context(), "changed", bytes.NewReader(changed), int64(len(changed)), v1.Hash{})
	require.NoError(t, err)
	if code(b.CheckSignature(public)) != CodeSignature {
		t.Error("a changed index passed")
	}
}

func TestKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	pkix, err2 := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, errors.Join(err, err2))
	privatePEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix})
	if got, err := SigningKey(privatePEM); err != nil || !got.Equal(private) {
		t.Errorf("private key: %v", err)
	}
	if got, err := PublicKey(publicPEM); err != nil || !got.Equal(public) {
		t.Errorf("public key: %v", err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), publicPEM} {
		if _, err := SigningKey(bad); err == nil {
			t.Errorf("%q was taken for a private key", bad)
		}
	}
	if _, err := PublicKey(privatePEM); err == nil {
		t.Error("a private key was taken for a public one")
	}
}

// A bundle made since another omits the blobs of that one, and is complete together with it.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	origin := &Origin{Name: "kubelet", Version: "v1.36.3", URL: "https://dl.example.org/kubelet", SHA256: "ab"}
	big := strings.Repeat("kubelet", 10000)
	first := Platform{testInfo, []FileSource{{Path: "/usr/local/bin/kubelet", Mode: 0o755, Open: content(big), Origin: origin}},
		[]ImageSource{{Name: imageA, Image: imagetest.Image(t, "amd64", imagetest.Layer(t, 1))}}}
	old := mustBuild(t, filepath.Join(dir, "old.bundle"), Spec{Platforms: []Platform{first}})
	if got := old.Reuse("cd"); len(got) > 0 {
		t.Errorf("another download has %d files", len(got))
	}
	files := append(old.Reuse("ab"), FileSource{Path: "/usr/local/bin/runc", Mode: 0o755, Open: content("runc")})
	second := Platform{testInfo, files, []ImageSource{{Name: imageB, Image: imagetest.Image(t, "amd64", imagetest.Layer(t, 1), imagetest.Layer(t, 2))}}}
	whole := mustBuild(t, filepath.Join(dir, "whole.bundle"), Spec{Platforms: []Platform{second}})
	path := filepath.Join(dir, "new.bundle")
	b := mustBuild(t, path, Spec{Platforms: []Platform{second}, Since: old})
	if d := cmp.Diff(whole.Contents(), b.Contents()); d != "" {
		t.Errorf("(-whole +since):\n%s", d)
	}
	if info := b.Contents().Files[0]; len(files) != 2 || cmp.Diff(origin, info.Origin) != "" {
		t.Errorf("%d files, the first %+v", len(files), info)
	}
	if err := b.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	var images bytes.Buffer
	if err := b.WriteImages(t.Context(), &images, []string{imageB}); err != nil {
		t.Error(err)
	}
	if a, c := size(t, path), size(t, whole.Name()); a > c-3000 { // the other bundle has a layer of 3000 bytes
		t.Errorf("%d bytes, whole %d", a, c)
	}
	// A third continues the second, and is complete together with it.
	third := mustBuild(t, filepath.Join(dir, "third.bundle"), Spec{Platforms: []Platform{first}, Since: b})
	if err := third.Verify(t.Context(), nil); err != nil || third.Since().ID != b.ID() {
		t.Errorf("%v, since %+v", err, third.Since())
	}

	require.NoError(t, os.Rename(old.Name(), filepath.Join(dir, "elsewhere")))
	if _, err := Open(t.Context(), path); code(err) != CodeNoBase {
		t.Errorf("alone: %v", err)
	}
	require.NoError(t, os.Rename(whole.Name(), old.Name()))
	if _, err := Open(t.Context(), path); code(err) != CodeNoBase || !strings.Contains(err.Error(), whole.ID().String()) {
		t.Errorf("beside another: %v", err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	return st.Size()
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

// The first node installs from a served bundle with the line that "bundle serve" prints: programs, images, and its own depot.
func TestInitFromAServedBundle(t *testing.T) {
	s := connect(t)
	file := filepath.Join(t.TempDir(), "test.bundle")
	if out, err := s.create(t, "-o", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := serve(t, file)
	root := t.TempDir()
	// run runs a phase of the printed line on the directory that replaces the machine.
	run := func(phase []string, more ...string) (string, error) {
		args := slices.Concat(phase, server.line[1:], []string{"--rootfs", root, "--node-name", "n", "--node-ip", "192.0.2.1",
			"--image-repository", s.repository()}, more)
		return ocadm(t, args...)
	}
	wrong := func(flag, value string) []string {
		server := slices.Clone(server.line)
		server[slices.Index(server, flag)+1] = value
		return server[1:]
	}
	for name, tt := range map[string]struct {
		args []string
		code string
	}{
		"another token":     {wrong("--bundle-token", "abcdef.0123456789abcdef"), depot.CodeRefused},
		"another authority": {wrong("--bundle-ca-hash", "sha256:"+strings.Repeat("0", 64)), depot.CodeUnreachable},
		"no server":         {wrong("--bundle", "https://127.0.0.1:1"), depot.CodeUnreachable},
	} {
		args := slices.Concat([]string{"init", "phase", "node-files"}, tt.args, []string{"--rootfs", root, "--node-name", "n", "--node-ip", "192.0.2.1"})
		out, err := ocadm(t, args...)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != tt.code || strings.Contains(l[0].Remedy, "token create") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if _, err := os.Stat(filepath.Join(root, "usr")); err == nil {
			t.Errorf("%s: something was installed", name)
		}
	}
	plan, err := run([]string{"init", "phase", "images"}, "--dry-run")
	if err != nil || !strings.Contains(plan, "import "+s.repository()+"/kube-apiserver:"+version.Kubernetes) || strings.Contains(plan, " pull "+s.repository()) {
		t.Errorf("the images are to be %s, %v", plan, err)
	}
	// With a directory as the machine, no program can print its version; the files are installed before that.
	out, err := run([]string{"init", "phase", "node-files"})
	if !has(finding.Of(err), "OCA-2404") {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(root, "usr/local/bin/containerd")); err != nil || string(got) != "new containerd" {
		t.Errorf("containerd is %q, %v", got, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/local/bin/ocadm"), []byte("this program"), 0o755))
	for range 2 {
		if out, err = run([]string{"init", "phase", "depot", "fill"}, "--operator-image", "registry.example.org/x/ocadm:v1"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	store, err := depot.Open(filepath.Join(root, depot.DefaultDir), 0)
	require.NoError(t, err)
	st, err := store.Status(t.Context())
	if err != nil || len(st.Roots) != 2 || !slices.ContainsFunc(st.Roots, func(r depot.RootStatus) bool { return strings.HasPrefix(r.Name, "bundle-") && r.Complete }) {
		t.Errorf("the depot has %+v, %v", st.Roots, err)
	}
	c, err := store.Contents(t.Context())
	if _, ok := c.Files["linux/"+runtime.GOARCH+"/usr/local/bin/kubelet"]; err != nil || !ok {
		t.Errorf("the depot lacks the kubelet (%v): %v", err, c.Files)
	}
	// What the bundle lacks is reported before anything changes.
	if _, err := run([]string{"preflight", "init"}, "--kubernetes-version", "v1.35.8", "--ignore-preflight-errors", "none"); !has(finding.Of(err), "OCA-2306") {
		t.Errorf("for another version: %v", err)
	}
	if err := server.stop(); err != nil {
		t.Error(err)
	}
}

// A server killed between a new key and its certificate creates both again; a pair that matches stays.
func TestBundleServeAfterKill(t *testing.T) {
	s := bundleServer{directory: t.TempDir()}
	crt, key := filepath.Join(s.directory, "tls.crt"), filepath.Join(s.directory, "tls.key")
	secrets := func() string {
		t.Helper()
		if _, err := s.secrets(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 6444}); err != nil {
			t.Fatal(err)
		}
		if _, err := tls.LoadX509KeyPair(crt, key); err != nil {
			t.Error(err)
		}
		raw, err := os.ReadFile(crt)
		require.NoError(t, err)
		return string(raw)
	}
	first := secrets()
	if secrets() != first {
		t.Error("a valid certificate was replaced")
	}
	require.NoError(t, s.newCertificate([]string{"192.0.2.9"}))
	if err := os.WriteFile(crt, []byte(first), 0o600); err != nil { // as before the second write
		t.Fatal(err)
	}
	second := secrets()
	if second == first {
		t.Error("the former certificate stays with another key")
	}
	keyOfSecond, err := os.ReadFile(key)
	require.NoError(t, err)
	require.NoError(t, s.newCertificate([]string{"192.0.2.9"}))
	// As after a kill before the write of the key: the printed hash is that of another CA than the one presented.
	require.NoError(t, errors.Join(os.WriteFile(crt, []byte(second), 0o600), os.WriteFile(key, keyOfSecond, 0o600)))
	if secrets() == second {
		t.Error("the former certificate stays with another CA")
	}
}

// The owner of the directory could have chosen the token, and the authority whose hash is in the command for the first node.
func TestBundleServeInADirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	file := filepath.Join(t.TempDir(), "test.bundle")
	if out, err := connect(t).create(t, "-o", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	require.NoError(t, errors.Join(os.Mkdir(file+".depot", 0o755), os.Chown(file+".depot", 65534, 65534)))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := withBundle(ctx, file, "", func(b *bundle.Bundle) error {
		return newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).serveBundle(ctx, b, bundleServer{listen: "127.0.0.1:0"})
	})
	if _, serr := os.Stat(filepath.Join(file+".depot", "token")); !has(finding.Of(err), "OCA-2329") || serr == nil {
		t.Errorf("served: %v", err)
	}
}

// A token that a power cut left empty is created again: the server would refuse everybody.
func TestBundleServeWithAnEmptyToken(t *testing.T) {
	s := bundleServer{directory: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(s.directory, "token"), nil, 0o600))
	if token, err := s.secrets(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 6444}); err != nil || token == "" {
		t.Errorf("token %q, %v", token, err)
	}
}

func has(l finding.List, code string) bool {
	return slices.ContainsFunc(l, func(f finding.Finding) bool { return f.Code == code })
}

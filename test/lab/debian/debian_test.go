// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/require"
)

func TestParseTargets(t *testing.T) {
	const out = `Packages http://mirror.example/debian bookworm main
DEP-11 http://mirror.example/debian bookworm main
Packages http://mirror.example/debian bookworm-updates main
Packages http://mirror.example/debian bookworm main
Packages http://mirror.example/debian bookworm contrib
Packages http://other.example nodistro main
Packages http://security.example/debian-security bookworm-security main
`
	want := []string{
		"deb [signed-by=" + keyring + "] http://mirror.example/debian bookworm main",
		"deb [signed-by=" + keyring + "] http://mirror.example/debian bookworm-updates main",
		"deb [signed-by=" + keyring + "] http://security.example/debian-security bookworm-security main",
	}
	if got := parseTargets(out); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// apt gives the answers of a Debian 12 machine.
type apt struct{ exec.Runner }

func (apt) Run(context.Context, exec.Command) (exec.Result, error) {
	return exec.Result{Stdout: "Packages http://mirror.example/debian bookworm main\nPackages http://security.example/bookworm bookworm-security main\n"}, nil
}

func TestSourcesOfAnotherRelease(t *testing.T) {
	got, err := sources(t.Context(), apt{}, "trixie")
	want := []string{
		"deb [signed-by=" + keyring + "] http://mirror.example/debian trixie main",
		"deb [signed-by=" + keyring + "] http://security.example/bookworm trixie-security main",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %q (error %v)\nwant %q", got, err, want)
	}
	if _, err := Root(t.Context(), "buzz", nil, t.Logf); err == nil || !strings.Contains(err.Error(), "bullseye, bookworm, trixie") {
		t.Errorf("another release: %v", err)
	}
}

func TestFilterAcquire(t *testing.T) {
	got := filterAcquire("APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://proxy.example\";\nAcquire::IndexTargets::deb::Packages::MetaKey \"x\";\n")
	if want := "Acquire::http::Proxy \"http://proxy.example\";\nAcquire::Languages \"none\";\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFinish(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/share/doc/x"), 0o755))
	tree := Tree{Files: map[string]string{"etc/a": "a", "bin/b": "#!/bin/sh\n"}, Links: map[string]string{"etc/l": "a"}}
	for range 2 { // twice, to check that a link is replaced
		require.NoError(t, finish(tree, root))
	}
	if left, err := filepath.Glob(filepath.Join(root, "usr/share/doc/*")); err != nil || len(left) > 0 {
		t.Errorf("documentation is left: %v, error %v", left, err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "etc/l")); err != nil || string(b) != "a" {
		t.Errorf("the link reads %q, error %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(root, "bin/b")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the script has the mode %v, error %v", info, err)
	}
}

func TestMachineIsFresh(t *testing.T) {
	for _, p := range Machine("").Packages {
		if strings.Contains(p, "containerd") || strings.Contains(p, "kube") || p == "runc" || strings.Contains(p, "networking-plugins") {
			t.Errorf("a fresh machine has %s", p)
		}
	}
}

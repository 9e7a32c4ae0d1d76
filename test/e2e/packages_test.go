// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
)

// releases are the two releases of TestPackages.
var releases = []string{"v0.9.0-dev.1", "v0.9.0-dev.2"}

// TestPackages builds the files of two releases. The tools of each distribution install, upgrade and remove its package.
func TestPackages(t *testing.T) {
	needRoot(t)
	dirs := make([]string, len(releases))
	for i, v := range releases {
		dirs[i] = t.TempDir()
		run(t, "make", "--no-print-directory", "-C", repository, "release", "VERSION="+v, "ARCHS="+runtime.GOARCH, "RELEASE_DIR="+dirs[i])
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = dirs[i]
		if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), "OK") != 6 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("deb", func(t *testing.T) { debPackage(t, one(t, dirs[0], "*.deb"), one(t, dirs[1], "*.deb")) })
	t.Run("rpm", func(t *testing.T) { rpmPackage(t, one(t, dirs[0], "*.rpm"), one(t, dirs[1], "*.rpm")) })
	t.Run("apk", func(t *testing.T) { apkPackage(t, one(t, dirs[0], "*.apk")) })
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// one returns the only file that matches a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v (error %v)", pattern, dir, found, err)
	}
	return found[0]
}

// manager holds what the test of a package manager needs.
type manager struct {
	run func(argv ...string) string
	// install and upgrade get the files of two releases; remove removes the package, and list prints its files.
	install, upgrade, remove, list []string
}

func (m manager) test(t *testing.T) {
	t.Helper()
	is := func(want string) {
		t.Helper()
		if got := m.run("/usr/bin/ocadm", "version", "-o", "short"); got != want {
			t.Fatalf("ocadm %s is installed, want %s", got, want)
		}
	}
	m.run(m.install...)
	is(releases[0])
	m.run(m.upgrade...)
	is(releases[1])
	files := strings.Fields(m.run(m.list...))
	want := []string{
		"/usr/bin/ocadm", "/usr/share/man/man1/ocadm.1.gz", "/usr/share/man/man1/ocadm-cluster-create.1.gz", "/usr/share/bash-completion/completions/ocadm",
		"/usr/share/fish/vendor_completions.d/ocadm.fish",
	}
	for _, f := range want {
		if !strings.Contains("\n"+strings.Join(files, "\n")+"\n", "\n"+f+"\n") {
			t.Errorf("the package has no %s", f)
		}
	}
	m.run(m.remove...)
	if left := m.run("sh", "-c", "ls -d /usr/bin/ocadm /usr/share/bash-completion/completions/ocadm /usr/share/doc/ocadm /usr/share/licenses/ocadm 2>/dev/null || true"); left != "" {
		t.Errorf("left: %s", left)
	}
}

func debPackage(t *testing.T, first, second string) {
	l := up(t, machine.Options{Nodes: 1, Logf: logf(t)})
	n := l.Node(1)
	for i, file := range []string{first, second} {
		require.NoError(t, n.CopyIn(t.Context(), file, fmt.Sprintf("/root/%d.deb", i+1)))
	}
	m := manager{
		run: func(argv ...string) string {
			t.Helper()
			out, errout, err := n.Exec(t.Context(), append([]string{"env", "DEBIAN_FRONTEND=noninteractive"}, argv...)...)
			if err != nil {
				t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out, errout)
			}
			return strings.TrimSpace(out)
		},
		install: []string{"dpkg", "--install", "/root/1.deb"},
		upgrade: []string{"apt-get", "install", "--yes", "/root/2.deb"},
		remove:  []string{"apt-get", "remove", "--yes", "ocadm"},
		list:    []string{"dpkg", "--listfiles", "ocadm"},
	}
	m.test(t)
	distributionsContainerd(t, n, m)
}

// distributionsContainerd installs Debian's containerd, which is too old. Preflight refuses it, and its remedy removes it.
func distributionsContainerd(t *testing.T, n *machine.Node, m manager) {
	m.run(m.install...)
	dir, err := debian.Unpack(t.Context(), logf(t), "containerd", "runc", "libseccomp2")
	require.NoError(t, err)
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(archives) != 3 {
		t.Fatalf("the packages are %v (error %v)", archives, err)
	}
	for i, file := range archives {
		require.NoError(t, n.CopyIn(t.Context(), file, fmt.Sprintf("/root/containerd-%d.deb", i)))
	}
	m.run("sh", "-c", "dpkg --install /root/containerd-*.deb")
	found := func() string {
		return m.run("sh", "-c", "ocadm preflight init --allow-cgroup-v1 --ingress none -o json || true")
	}
	got := found()
	remedy := regexp.MustCompile(`apt-get remove -y \$\([^)]*\)`).FindString(got)
	if !strings.Contains(got, "OCA-3001") || remedy == "" {
		t.Fatalf("preflight beside Debian's containerd:\n%s", got)
	}
	m.run("sh", "-c", remedy)
	if got := found(); strings.Contains(got, "OCA-3001") {
		t.Errorf("preflight without Debian's containerd:\n%s", got)
	}
}

// rpmPackage uses Debian's rpm in a separate file system that contains only rpm.
func rpmPackage(t *testing.T, first, second string) {
	tree, err := debian.Build(t.Context(), debian.Tree{Name: "rpm", Variant: "minbase", Packages: []string{"rpm"}}, logf(t))
	require.NoError(t, err)
	root := filepath.Join(t.TempDir(), "root")
	run(t, "cp", "--archive", tree, root)
	run(t, "cp", first, filepath.Join(root, "1.rpm"))
	run(t, "cp", second, filepath.Join(root, "2.rpm"))
	m := manager{
		run:     func(argv ...string) string { t.Helper(); return run(t, append([]string{"chroot", root}, argv...)...) },
		install: []string{"rpm", "--install", "/1.rpm"},
		upgrade: []string{"rpm", "--upgrade", "/2.rpm"},
		remove:  []string{"rpm", "--erase", "ocadm"},
		list:    []string{"sh", "-c", "rpm --verify ocadm && rpm --query --list ocadm"},
	}
	m.run("rpm", "--checksig", "--nosignature", "/1.rpm", "/2.rpm")
	m.test(t)
}

// apkPackage checks the format of an Alpine package, because Debian has no apk: two gzip streams, a description, and files that match its digests.
func apkPackage(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	in := bufio.NewReader(bytes.NewReader(raw))
	z, err := gzip.NewReader(in)
	require.NoError(t, err)
	z.Multistream(false)
	control := contents(t, z)
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	info := string(control[".PKGINFO"])
	for _, want := range []string{`pkgname = ocadm`, `pkgver = 0\.9\.0\S*`, fmt.Sprintf("datahash = %x", sha256.Sum256(rest)), `arch = (x86_64|aarch64)`} {
		if !regexp.MustCompile("(?m)^" + want + "$").MatchString(info) {
			t.Errorf("no %s in\n%s", want, info)
		}
	}
	if z, err = gzip.NewReader(bytes.NewReader(rest)); err != nil {
		t.Fatal(err)
	}
	files := contents(t, z)
	for _, want := range []string{"usr/bin/ocadm", "usr/share/zsh/site-functions/_ocadm", "usr/share/man/man1/ocadm-init.1.gz"} {
		if len(files[want]) == 0 {
			t.Errorf("the package has no %s", want)
		}
	}
}

func contents(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the description ends without the two blocks of zeros
			return out
		}
		require.NoError(t, err)
		if out[h.Name], err = io.ReadAll(a); err != nil {
			t.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package version_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

const root = "../.."

// The files that scripts/pin-k8s.sh changes.
var pinned = []string{"go.mod", "test/lab/modules/kubernetes/go.mod", "internal/version/version.go", "Makefile"}

// The constant, go.mod, the lab's module and the linker flags have the same version. This does not rely on the script.
func TestKubernetesIsPinnedOnce(t *testing.T) {
	number := strings.TrimPrefix(version.Kubernetes, "v1.")
	minor, _, _ := strings.Cut(number, ".")
	for _, file := range pinned[:2] {
		text := read(t, filepath.Join(root, file))
		if !strings.Contains(text, "\tk8s.io/kubernetes "+version.Kubernetes+"\n") {
			t.Errorf("%s does not require k8s.io/kubernetes %s", file, version.Kubernetes)
		}
		replaced := regexp.MustCompile(`(?m)^\tk8s\.io/\S+ => (\S+) v0\.(\S+)$`).FindAllStringSubmatch(text, -1)
		if len(replaced) < 30 {
			t.Errorf("%s replaces %d staging modules", file, len(replaced))
		}
		for _, m := range replaced {
			if m[2] != number {
				t.Errorf("%s has %s at v0.%s, want v0.%s", file, m[1], m[2], number)
			}
		}
	}
	for _, flag := range []string{"gitVersion=" + version.Kubernetes + " ", "gitMajor=1 ", "gitMinor=" + minor + "\n"} {
		if !strings.Contains(read(t, filepath.Join(root, "Makefile")), "k8s.io/component-base/version."+flag) {
			t.Errorf("the Makefile does not set %s", strings.TrimSpace(flag))
		}
	}
}

// The script finds nothing to do in this tree, reports other versions, and sets them.
func TestPinScript(t *testing.T) {
	dir := t.TempDir()
	for _, file := range append(pinned, "scripts/pin-k8s.sh") {
		write(t, filepath.Join(dir, file), read(t, filepath.Join(root, file)))
	}
	if out, err := pin(t, dir, "--check"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	earlier := strings.NewReplacer(version.Kubernetes, "v1.35.9", "v0."+strings.TrimPrefix(version.Kubernetes, "v1."), "v0.35.9")
	for _, file := range pinned {
		whole := read(t, filepath.Join(dir, file))
		other := earlier.Replace(whole)
		if file == "go.mod" { // it defines the version for all others
			other = strings.Replace(other, "\tk8s.io/kubernetes v1.35.9\n", "\tk8s.io/kubernetes "+version.Kubernetes+"\n", 1)
		}
		write(t, filepath.Join(dir, file), other)
		if out, err := pin(t, dir, "--check"); err == nil || !strings.Contains(out, ": "+file+";") {
			t.Errorf("%s at another version is not found: %v\n%s", file, err, out)
		}
		if got := read(t, filepath.Join(dir, file)); got != other {
			t.Errorf("--check changed %s", file)
		}
		if out, err := pin(t, dir); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := read(t, filepath.Join(dir, file)); got != whole {
			t.Errorf("%s is not as it was:\n%s", file, got)
		}
	}
	for _, wrong := range []string{"1.36", "--chek", "v2.0.0"} {
		if out, err := pin(t, dir, wrong); err == nil || !strings.Contains(out, "usage") {
			t.Errorf("%q is accepted: %s", wrong, out)
		}
	}
}

// pin runs a directory's script. The version that this test was built with is in the module cache, so nothing is downloaded.
func pin(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, "scripts/pin-k8s.sh")}, args...)...)
	c.Env = append(os.Environ(), "GOPROXY=off")
	out, err := c.CombinedOutput()
	return string(out), err
}

// The version of a checkout comes from VERSION. It is an image tag, and a semantic version that precedes the release itself.
func TestVersionOfACheckout(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "scripts/version.sh"), read(t, filepath.Join(root, "scripts/version.sh")))
	write(t, filepath.Join(dir, "VERSION"), "v0.7.0\n")
	run := func(program string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", program, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	is := func(want string) {
		t.Helper()
		if got := run("bash", "scripts/version.sh"); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("%q, want %s", got, want)
		}
	}
	is("v0.7.0-dev") // a source archive
	git := func(args ...string) {
		t.Helper()
		run("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "one")
	is(`v0\.7\.0-dev\.g[0-9a-f]{10}`)
	git("tag", "v0.6.0")
	is(`v0\.7\.0-dev\.g[0-9a-f]{10}`)
	git("tag", "-a", "v0.7.0", "-m", "release")
	is(`v0\.7\.0`)
	if commit := run("bash", "scripts/version.sh", "--commit"); commit != run("git", "rev-parse", "HEAD") {
		t.Errorf("commit %q", commit)
	}
	write(t, filepath.Join(dir, "VERSION"), "v0.7.0\n\n")
	is(`v0\.7\.0-dev\.g[0-9a-f]{10}\.dirty`)
	if commit := run("bash", "scripts/version.sh", "--commit"); !strings.HasSuffix(commit, "-dirty") {
		t.Errorf("commit %q", commit)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func TestRewrite(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct{ ref, repo, want string }{
		{"ghcr.io/flannel-io/flannel:v1", "", "ghcr.io/flannel-io/flannel:v1"},
		{"ghcr.io/flannel-io/flannel:v1", "10.0.0.1:5000/mirror", "10.0.0.1:5000/mirror/flannel:v1"},
		{"ghcr.io/flannel-io/flannel:v1", "10.0.0.1:5000/mirror/", "10.0.0.1:5000/mirror/flannel:v1"},
		{"localhost:5000/busybox", "r.example/x", "r.example/x/busybox"},
		{"localhost:5000/a/busybox:1" + digest, "r.example:443", "r.example:443/busybox:1" + digest},
		{"busybox", "r", "r/busybox"},
		{"busybox" + digest, "r", "r/busybox" + digest},
	} {
		if got := Rewrite(c.ref, c.repo); got != c.want {
			t.Errorf("Rewrite(%q, %q) = %q, want %q", c.ref, c.repo, got, c.want)
		}
	}
}

func TestSplitIsTheInverseOfString(t *testing.T) {
	for _, ref := range []string{"a", "a:1", "h:5000/a", "h:5000/a:1", "h:5000/a/b:1@sha256:00", "a@sha256:00"} {
		if got := Split(ref).String(); got != ref {
			t.Errorf("Split(%q).String() = %q", ref, got)
		}
	}
	if r := Split("h:5000/a"); r.Tag != "" || r.Repository != "h:5000/a" {
		t.Errorf("a port was taken for a tag: %+v", r)
	}
}

func TestTable(t *testing.T) {
	table, err := Load()
	require.NoError(t, err)
	if ref, err := table.Ref("mariadb", "10.0.0.1:5000/m"); err != nil || ref != "10.0.0.1:5000/m/mariadb:10.11" {
		t.Errorf("mariadb = %q, %v", ref, err)
	}
	if _, err := table.Ref("nonsense", ""); err == nil {
		t.Error("an unknown image was found")
	}
	last := map[string]string{}
	for _, i := range table {
		ref := i.Ref("r")
		if other, double := last[ref]; double {
			t.Errorf("%s and %s fall together in a private registry", i.Name, other)
		}
		last[ref] = i.Name
	}
	if got := OperatorRef("", "v1"); got != DefaultRepository+"/ocadm:v1" {
		t.Errorf("OperatorRef = %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown field": "- {name: a, repository: r, tag: t, for: f, digset: x}",
		"no tag":           "- {name: a, repository: r, for: f}",
		"occurs twice":     "- {name: a, repository: r, tag: t, for: f}\n- {name: a, repository: r, tag: t, for: f}",
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(name, "twice") && !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	for ref, want := range map[string]string{
		"zexi/ocadm:dev": "Always", "r.io:5000/x/ocadm:latest": "Always", "r.io/ocadm:lzx-dev": "Always",
		"r.io/ocadm:v0.2.0": "IfNotPresent", "r.io/ocadm:8c02f71": "IfNotPresent", "r.io/ocadm:v0.2.0-dirty": "IfNotPresent",
		"r.io/ocadm:v0.0.0-dev": "IfNotPresent", // the version of this program, which the node has
	} {
		if got := PullPolicy(ref); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
}

func TestAt(t *testing.T) {
	for in, want := range map[string]string{
		"example.org/you/ocadm:v1": "example.org/you/ocadm:v2", "localhost:5000/ocadm@sha256:0": "localhost:5000/ocadm:v2",
	} {
		if got := At(in, "v2"); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestRepositoryOf(t *testing.T) {
	image := Image{Name: "traefik", Repository: "docker.io/library/traefik", Tag: "v3.6.12"}
	for ref, want := range map[string]string{
		"docker.io/library/traefik:v3.0.0":           "",
		"10.0.0.1:5000/mirror/traefik:v3.0.0":        "10.0.0.1:5000/mirror",
		"r.example.com/traefik@sha256:0123456789abc": "r.example.com",
		"traefik:v3.0.0":                             "",
	} {
		if got := image.RepositoryOf(ref); got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
		if got := Split(image.Ref(want)).Repository; want != "" && got != Split(ref).Repository {
			t.Errorf("%s: a newer one would come from %s", ref, got)
		}
	}
}

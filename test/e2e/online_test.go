// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/lab/mirror"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestOnlineDefaults installs without a bundle and with a user's default settings. The projects' host names resolve to a mirror of all addresses on
// this host, whose CA the machine trusts.
func TestOnlineDefaults(t *testing.T) {
	if os.Getenv("OCADM_TEST_ONLINE") == "" {
		t.Skip("make online")
	}
	needRoot(t)
	ctx := t.Context()
	s, o := online(t, 1)
	internet, err := mirror.StartInternet(s.Lab.Host(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = internet.Close() })
	s.reaches(t, 1)
	const authority = "/usr/local/share/ca-certificates/lab.crt"
	require.NoError(t, s.Lab.Node(1).Write(ctx, authority, 0o644, bytes.NewReader(internet.CA)))
	if _, err := s.On(ctx, 1, "update-ca-certificates"); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{scenario.Ocadm, "init", "--onecloud-version", version}, scenario.MachineFlags()...)
	s.initOnline(t, argv)
	if lacking := internet.Lacking(); len(lacking) > 0 {
		t.Errorf("the internet of the lab lacks %v", lacking)
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// initOnline creates a cluster with a cloud and fetches its console.
func (s *suite) initOnline(t *testing.T, argv []string) {
	t.Helper()
	ctx := t.Context()
	if err := s.Timed("init without a bundle", func() error { _, err := s.On(ctx, 1, argv...); return err }); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	if err := s.AllAvailable(ctx); err != nil {
		t.Error(err)
	}
	if page, err := s.Web(ctx); err != nil || !strings.Contains(strings.ToLower(page), "<html") {
		t.Errorf("the console: %.80q, %v", page, err)
	}
	if to, err := s.Ingress(ctx); err != nil || !strings.HasPrefix(to, "https://") {
		t.Errorf("port 80 sends browsers to %q, %v", to, err)
	}
}

// TestOnline installs without a bundle on a machine that reaches only a proxy. Behind it is a mirror of all addresses, whose images require a login.
// All downloads of ocadm and containerd use the proxy, and no traffic of the cluster does.
func TestOnline(t *testing.T) {
	needRoot(t)
	const canary = "Canary-91c3$\"x"
	ctx := t.Context()
	j, o := online(t, 2)
	o.Proxy, o.Registry = mirror.Account{User: "proxy", Password: "pw-of-proxy"}, mirror.Account{User: "puller", Password: canary}
	server, err := mirror.Start(j.Lab.Host(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	const credentials = "/run/docker.json"
	config := fmt.Sprintf(`{"auths":{%q:{"username":"puller","password":%q}}}`, mirror.Host, canary)
	require.NoError(t, j.Lab.Node(1).Write(ctx, credentials, 0o600, strings.NewReader(config)))
	argv := []string{"env", "HTTP_PROXY=" + server.Proxy, "HTTPS_PROXY=" + server.Proxy, scenario.Ocadm}
	flags := []string{"--mirror", "http://" + mirror.Host + "/files", "--onecloud-version", version, "--node-ip", j.Lab.Node(1).Address.String()}
	for _, registry := range []string{"registry.k8s.io", "ghcr.io", "docker.io", "registry.cn-beijing.aliyuncs.com"} {
		flags = append(flags, "--registry-mirror", registry+"=http://"+mirror.Host+"/"+registry)
	}
	flags = append(flags, scenario.MachineFlags()...)
	// Before anything changes: the login is missing.
	out, err := j.On(ctx, 1, append(append(argv, "preflight", "init"), flags...)...)
	if err == nil || !strings.Contains(err.Error()+out, "OCA-2103") || !strings.Contains(err.Error()+out, "docker.io/library/traefik:") {
		t.Fatalf("preflight without a login: %v\n%s", err, out)
	}
	before := len(server.Refused()) // the registries behind the mirrors
	flags = append(flags, "--registry-config", credentials)
	j.initOnline(t, append(append(argv, "init"), flags...))
	if refused := server.Refused()[before:]; len(refused) > 0 {
		t.Errorf("the proxy was asked for %v", refused)
	}
	for command, want := range map[string]string{
		"cat /etc/kubernetes/manifests/*.yaml | grep -ci _proxy":                                                                  "0",
		"stat -c %a /etc/containerd/certs.d/docker.io/hosts.toml /var/lib/kubelet/config.json /etc/containerd/proxy.env":          "600\n600\n600",
		"grep -rlF 'Canary-91c3' /var/log/ocadm /var/lib/ocadm/*.jsonl /etc/systemd; journalctl --no-pager | grep -c Canary":      "0",
		"kubectl --kubeconfig /etc/kubernetes/admin.conf get ds -n traefik traefik -o jsonpath={..imagePullSecrets[0].name}":      "ocadm-registry",
		"kubectl --kubeconfig /etc/kubernetes/admin.conf get oc -n onecloud default -o jsonpath={.spec.imagePullSecrets[0].name}": "ocadm-registry",
	} {
		out, err := j.On(ctx, 1, "sh", "-c", command+"; true")
		if got := strings.TrimSpace(out); err != nil || got != want {
			t.Errorf("%s prints %q, want %q (%v)", command, got, want, err)
		}
	}
	j.pulledOnce(t, server, credentials, config, flags)
	t.Logf("containerd pulled %d MiB, ocadm downloaded %d MiB", server.Served("containerd")>>20, server.Served("Go-http-client")>>20)
	var times strings.Builder
	j.Report(&times)
	t.Logf("times\n%s", times.String())
}

// pulledOnce joins machine 2, which pulls a new image through the proxy. After the upstream is gone, machine 1 gets the image from its depot, which has copied it.
func (s *suite) pulledOnce(t *testing.T, server *mirror.Server, credentials, config string, flags []string) {
	t.Helper()
	ctx := t.Context()
	const image = "registry.cn-beijing.aliyuncs.com/yunionio/s3gateway:" + version
	require.NoError(t, s.Lab.Node(2).Write(ctx, credentials, 0o600, strings.NewReader(config)))
	join := []string{"--http-proxy", server.Proxy, "--https-proxy", server.Proxy, "--registry-config", credentials}
	for i, f := range flags {
		if f == "--registry-mirror" {
			join = append(join, f, flags[i+1])
		}
	}
	require.NoError(t, s.Join(ctx, 2, join...))
	s.lacks(t, 1, image)
	s.lacks(t, 2, image)
	// containerd gets these variables from its unit.
	argv := []string{"env", "HTTP_PROXY=" + server.Proxy, "NO_PROXY=" + s.Lab.Node(1).Address.String(), "ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir",
		"/etc/containerd/certs.d", image}
	if out, err := s.On(ctx, 2, argv...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.copied(t, image)
	require.NoError(t, server.Close())
	if out, err := s.pull(t, 1, image); err != nil {
		t.Errorf("without upstream: %v\n%s", err, out)
	}
	log, err := s.Kubectl(ctx, "-n", "kube-system", "logs", "ocadm-depot-node1", "-c", "depot")
	if err != nil || strings.Contains(log, "Canary") || strings.Contains(log, "pw-of-proxy") {
		t.Errorf("the log of the depot (%v) is\n%s", err, log)
	}
	s.shell(t, 1, `for p in $(pgrep -f ' depot ([s]erve|[r]enew) '); do tr '\0' ' ' < /proc/$p/cmdline | cut -c1-20 >&2; grep -E 'VmHWM|RssAnon' /proc/$p/status >&2; `+
		`cat /sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/$p/cgroup)/memory.max_usage_in_bytes >&2; done`)
}

// copied waits until the depot of machine 1 has copied an image.
func (s *suite) copied(t *testing.T, image string) {
	t.Helper()
	s.until(t, "the copy of "+image, func(ctx context.Context) (bool, string, error) {
		out, err := s.On(ctx, 1, scenario.Ocadm, "depot", "status", "-o", "json")
		var st depot.Status
		if err == nil {
			err = json.Unmarshal([]byte(out), &st)
		}
		has := slices.ContainsFunc(st.Roots, func(r depot.RootStatus) bool { return r.Image == image && r.Complete })
		return has, fmt.Sprintf("%+v", st.Wanted), err
	})
}

// online creates fresh machines with only ocadm, and returns what a mirror must offer them.
func online(t *testing.T, nodes int) (*suite, mirror.Options) {
	t.Helper()
	ctx, log := t.Context(), logf(t)
	lab := labName(t) + "-online"
	lock(t, lab, log)
	ocadm, _, err := scenario.Build(ctx, repository, version, "", log)
	require.NoError(t, err)
	dir := t.TempDir()
	downloads, err := assemble.Release(ctx, dir, log)
	require.NoError(t, err)
	pinned := filepath.Join(dir, "bin", "ocadm")
	if err := errors.Join(os.Mkdir(filepath.Dir(pinned), 0o755), downloads.Pin(ocadm, pinned)); err != nil { //nolint:gosec // no secret
		t.Fatal(err)
	}
	list, err := assemble.Images(ctx, &assemble.Options{CloudVersion: version, Logf: log})
	require.NoError(t, err)
	if err := machine.Down(ctx, lab, log); err != nil && !errors.Is(err, machine.ErrNoLab) {
		t.Fatal(err)
	}
	l, err := machine.Up(ctx, machine.Options{Name: lab, Nodes: nodes, Ocadm: pinned, Logf: log})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newSuite(t, l), mirror.Options{Images: list, Files: downloads.Files}
}

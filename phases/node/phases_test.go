// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func (m *machine) ran(part string) bool {
	for _, c := range m.rec.Calls() {
		if strings.Contains(c, part) {
			return true
		}
	}
	return false
}

func TestUnits(t *testing.T) {
	m := newMachine(t)
	before := m.files(t)
	m.must(t, Units())
	for name, want := range map[string]string{
		"/etc/systemd/system/containerd.service":                "ExecStart=/usr/local/bin/containerd\n",
		"/etc/systemd/system/kubelet.service":                   "ExecStart=/usr/local/bin/kubelet\n",
		"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
		"/etc/containerd/config.toml":                           "sandbox = 'registry.k8s.io/pause:3.10.2'\n",
	} {
		raw, err := m.Files.ReadFile(name)
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, raw)
		}
		if i := strings.IndexAny(string(raw), "{}"); i >= 0 {
			t.Errorf("%s: something was not filled in: %s", name, raw[i:])
		}
	}
	for _, c := range []string{"systemctl daemon-reload", "systemctl enable kubelet.service containerd.service", "systemctl restart containerd.service"} {
		if !m.ran(c) {
			t.Errorf("%q was not run: %q", c, m.rec.Calls())
		}
	}
	if m.ran("start kubelet") {
		t.Error("the kubelet was started")
	}
	m.done(t, Units())

	m.boot(t, false)
	require.NoError(t, Units().Undo(t.Context(), m.Host, m))
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
	for _, u := range []string{"disable --now kubelet.service", "disable --now containerd.service"} {
		if !m.ran(u) {
			t.Errorf("%q was not run", u)
		}
	}
}

func TestForeignUnitsAreUsedAndKept(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		for _, n := range []string{containerd, shim, ctr} {
			m.put(t, "/usr/bin/"+n, "old "+n)
		}
		m.put(t, containerdConfig, "theirs")
		m.outputs["systemctl cat containerd.service"] = "[Service]"
		m.enabled[containerdUnit] = true
	})
	m.must(t, Units())
	if m.Files.Exists("/etc/systemd/system/containerd.service") {
		t.Error("a unit of ours stands over theirs")
	}
	if raw, _ := m.Files.ReadFile(containerdConfig); string(raw) != "theirs" {
		t.Error("their configuration was changed")
	}
	require.NoError(t, Units().Undo(t.Context(), m.Host, m))
	if m.ran("disable --now containerd.service") {
		t.Error("their containerd was stopped for good")
	}

	m.outputs["containerd config dump"] = "disabled_plugins = ['io.containerd.grpc.v1.cri']\n"
	if _, err := m.do(t, Units()); code(err) != CodeRuntimeUnusable {
		t.Errorf("a containerd without its part for Kubernetes: %v", err)
	}
}

func TestContainerdDoesNotStart(t *testing.T) {
	m := newMachine(t)
	m.failures["systemctl restart containerd.service"] = true
	m.outputs["journalctl -u containerd.service -n 20 --no-pager -o cat"] = "one\ntwo\n"
	_, err := m.do(t, Units())
	if code(err) != CodeRuntimeDown {
		t.Fatalf("got %v", err)
	}
	if d := cmp.Diff([]string{"one", "two"}, finding.Of(err)[0].Evidence); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

func TestOtherRuntimeIsKept(t *testing.T) {
	m := newMachine(t)
	m.Config.Node.CRISocket = "unix:///run/crio/crio.sock"
	m.must(t, Units())
	if m.Files.Exists(containerdConfig) || m.ran("containerd") {
		t.Errorf("containerd was touched: %q", m.rec.Calls())
	}
	if (ImageGroup{}).phase().Skip(m.Host) == "" {
		t.Error("images are imported into a runtime that is not containerd")
	}
}

func TestKernel(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		m.put(t, "/proc/sys/fs/inotify/max_user_watches", "1000000\n")
		m.put(t, "/proc/sys/net/ipv4/tcp_retries2", "15\n")
	})
	// A parameter that a container may not set.
	require.NoError(t, m.Files.RemoveAll("/proc/sys/net/netfilter"))
	m.must(t, Kernel())
	for name, want := range map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.tcp_retries2": "7", "fs.inotify.max_user_watches": "1000000"} {
		if got, err := m.Files.Sysctl(name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	raw, err := m.Files.ReadFile(sysctlFile)
	require.NoError(t, err)
	for _, want := range []string{"\nnet.ipv4.ip_forward = 1\n", "\n-fs.inotify.max_user_watches = 1000000\n"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s lacks %q:\n%s", sysctlFile, want, raw)
		}
	}
	if len(m.said) != 1 || !strings.Contains(m.said[0], "nf_conntrack_tcp_be_liberal") {
		t.Errorf("said %q", m.said)
	}
	m.done(t, Kernel())
	require.NoError(t, Kernel().Undo(t.Context(), m.Host, m))
	if got, _ := m.Files.Sysctl("net.ipv4.tcp_retries2"); got != "15" {
		t.Errorf("tcp_retries2 is %q after the undo", got)
	}
	if m.Files.Exists(sysctlFile) || m.Files.Exists(modulesFile) {
		t.Error("files are left after the undo")
	}
}

func TestKernelWithoutAFeature(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/proc/filesystems", "nodev\tsysfs\n")
	m.failures["modprobe overlay"] = true
	if _, err := m.do(t, Kernel()); code(err) != CodeKernelFeature || !strings.Contains(err.Error(), "overlay") {
		t.Errorf("got %v", err)
	}
	m = newMachine(t)
	require.NoError(t, m.Files.RemoveAll("/proc/sys/net/ipv4/ip_forward"))
	if _, err := m.do(t, Kernel()); code(err) != CodeKernelParameter || !strings.Contains(err.Error(), "ip_forward") {
		t.Errorf("got %v", err)
	}
}

// imported returns the images passed to ctr.
func (m *machine) imported(t *testing.T) []string {
	t.Helper()
	for i, c := range m.rec.Calls() {
		if !strings.HasSuffix(c, "images import --local -") {
			continue
		}
		r := tar.NewReader(strings.NewReader(m.rec.Input()[i]))
		for {
			h, err := r.Next()
			require.NoError(t, err)
			if h.Name == "index.json" {
				break
			}
		}
		var idx v1.IndexManifest
		require.NoError(t, json.NewDecoder(r).Decode(&idx))
		var names []string
		for _, d := range idx.Manifests {
			names = append(names, d.Annotations["io.containerd.image.name"])
		}
		return names
	}
	return nil
}

func TestImages(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	row := func(i int) string {
		info := m.Bundle.Contents().Images[i]
		return fmt.Sprintf("%s application/vnd.oci.image.manifest.v1+json %s 2.0 KiB linux/amd64 -\n", info.Name, info.Digest)
	}
	ls := "ctr -n k8s.io images ls"
	m.outputs[ls] = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n" + row(0)
	group := ImageGroup{Name: "all", Short: "x", Need: need(imageOne, imageTwo)}
	err := group.phase().Run(t.Context(), m.Host, m)
	require.NoError(t, err)
	if d := cmp.Diff([]string{imageTwo}, m.imported(t)); d != "" {
		t.Errorf("imported (-want +got):\n%s", d)
	}
	if err := group.phase().Verify(t.Context(), m.Host); code(err) != CodeImport {
		t.Errorf("an image that is not there after all: %v", err)
	}
	m.outputs[ls] += row(1)
	if err := group.phase().Verify(t.Context(), m.Host); err != nil {
		t.Error(err)
	}
	m.done(t, group.phase())

	// An image of the same name but different content is imported again.
	m.outputs[ls] = strings.Replace(m.outputs[ls], "sha256:", "sha256:0", 1)
	if done, err := group.phase().Check(t.Context(), m.Host); err != nil || done {
		t.Errorf("done %v, %v", done, err)
	}
	group.Need = need("registry.example/three:v1")
	if _, err := group.phase().Check(t.Context(), m.Host); code(err) != bundle.CodeMissingImages {
		t.Errorf("got %v", err)
	}

	// If the check is ignored, the bundle's images are imported, and the kubelet pulls the other one.
	m.Config.Run.IgnorePreflightErrors = []string{BundleCheck}
	m.outputs[ls] = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n" + row(0)
	group.Need = need(imageOne, imageTwo, "registry.example/three:v1")
	require.NoError(t, group.phase().Run(t.Context(), m.Host, m))
	if d := cmp.Diff([]string{imageTwo}, m.imported(t)); d != "" {
		t.Errorf("imported (-want +got):\n%s", d)
	}
	m.outputs[ls] += row(1)
	require.NoError(t, group.phase().Verify(t.Context(), m.Host))
}

func TestImagesOfADamagedBundle(t *testing.T) {
	file := writeBundle(t, nodeFiles())
	m := newMachine(t)
	m.use(t, file)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	i := strings.Index(string(raw), `"rootfs"`) // in an image's config
	raw[i+1] = 'R'
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	if err := (ImageGroup{Name: "all", Need: need(imageOne, imageTwo)}).run(t.Context(), m.Host, m); code(err) != bundle.CodeCorrupt {
		t.Errorf("got %v", err)
	}
}

func TestImportThatFails(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.failures["ctr -n k8s.io images import --local -"] = true
	err := (ImageGroup{Name: "all", Need: need(imageOne)}).run(t.Context(), m.Host, m)
	if code(err) != CodeImport || errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A bundle for another architecture has images of the same names: none of them replaces an image of this machine.
func TestImagesOfAnotherArchitecture(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.Facts.Arch = "s390x"
	if err := (ImageGroup{Name: "all", Need: need(imageOne)}).run(t.Context(), m.Host, m); code(err) != bundle.CodeWrongPlatform || len(m.changes) > 0 {
		t.Errorf("%v, changed %q", err, m.changes)
	}
}

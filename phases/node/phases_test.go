// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/templates/nodefiles"
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
	if err := Units().Undo(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
	for _, u := range []string{"disable --now kubelet.service", "disable --now containerd.service"} {
		if !m.ran(u) {
			t.Errorf("%q was not run", u)
		}
	}
}

func TestUnitsOfOthersAreUsedAndLeft(t *testing.T) {
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
	if err := Units().Undo(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	if m.ran("disable --now containerd.service") {
		t.Error("their containerd was stopped for good")
	}

	m.outputs["containerd config dump"] = "disabled_plugins = ['io.containerd.grpc.v1.cri']\n"
	if _, err := m.do(t, Units()); code(err) != CodeRuntimeUnusable {
		t.Errorf("a containerd without its part for Kubernetes: %v", err)
	}
}

func TestContainerdThatDoesNotStart(t *testing.T) {
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

func TestOtherRuntimeIsLeftAlone(t *testing.T) {
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
	// One that a container may not set.
	if err := m.Files.RemoveAll("/proc/sys/net/netfilter"); err != nil {
		t.Fatal(err)
	}
	m.must(t, Kernel())
	for name, want := range map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.tcp_retries2": "7", "fs.inotify.max_user_watches": "1000000"} {
		if got, err := m.Files.Sysctl(name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	raw, err := m.Files.ReadFile(sysctlFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nnet.ipv4.ip_forward = 1\n", "\n-fs.inotify.max_user_watches = 1000000\n"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s lacks %q:\n%s", sysctlFile, want, raw)
		}
	}
	if len(m.said) != 1 || !strings.Contains(m.said[0], "nf_conntrack_tcp_be_liberal") {
		t.Errorf("said %q", m.said)
	}
	m.done(t, Kernel())
	if err := Kernel().Undo(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
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
	if err := m.Files.RemoveAll("/proc/sys/net/ipv4/ip_forward"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.do(t, Kernel()); code(err) != CodeKernelParameter || !strings.Contains(err.Error(), "ip_forward") {
		t.Errorf("got %v", err)
	}
}

// imported are the images in what ctr was given.
func (m *machine) imported(t *testing.T) []string {
	t.Helper()
	for i, c := range m.rec.Calls() {
		if !strings.HasSuffix(c, "images import --local -") {
			continue
		}
		r := tar.NewReader(strings.NewReader(m.rec.Input()[i]))
		for {
			h, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if h.Name == "index.json" {
				break
			}
		}
		var idx v1.IndexManifest
		if err := json.NewDecoder(r).Decode(&idx); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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

	// An image of the same name and other content is imported again.
	m.outputs[ls] = strings.Replace(m.outputs[ls], "sha256:", "sha256:0", 1)
	if done, err := group.phase().Check(t.Context(), m.Host); err != nil || done {
		t.Errorf("done %v, %v", done, err)
	}
	group.Need = need("registry.example/three:v1")
	if _, err := group.phase().Check(t.Context(), m.Host); code(err) != bundle.CodeMissingImages {
		t.Errorf("got %v", err)
	}
}

func TestImagesOfADamagedBundle(t *testing.T) {
	file := writeBundle(t, nodeFiles())
	m := newMachine(t)
	m.use(t, file)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(raw), `"rootfs"`) // in an image's config
	raw[i+1] = 'R'
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
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

// asNode makes the machine a node, as init's and join's first phase does.
func (m *machine) asNode(t *testing.T) {
	t.Helper()
	if err := owned.Note(m.Host, true); err != nil {
		t.Fatal(err)
	}
}

func TestResetTakesBackEverything(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	before := m.files(t)
	m.asNode(t)
	for _, p := range []host.Phase{Software(), Kernel(), Units()} {
		m.must(t, p)
	}
	m.outputs["iptables-nft-save"] = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -j THEIRS\nCOMMIT\n"
	m.outputs["nft list tables"] = "table ip kube-proxy\ntable inet filter\n"
	m.outputs["ctr -n k8s.io containers ls -q "+podLabel] = "abc\n"
	m.outputs["ctr -n k8s.io containers ls -q"] = "abc\n"
	m.outputs["ctr -n k8s.io tasks ls -q"] = "abc\nnerdctls\n"
	m.put(t, "/var/lib/containerd/x", "")
	m.put(t, "/run/netns/cni-0d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5", "")
	m.put(t, "/var/lib/cni/networks/cbr0/10.40.0.2", "")
	if err := m.Files.WriteFile("/etc/ocadm/other", []byte("written by another phase"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A download that was cut off by the end of init.
	if err := m.Files.Mkdir(downloadDir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.put(t, downloadDir+"/0123456789abcdef-kubelet", "a part")
	m.boot(t, false)
	phases := ResetPhases()
	for _, p := range phases {
		_, err := m.do(t, p)
		if p.Name == "pod-network" { // the kernel of this machine does not forget
			if code(err) != "OCA-9002" {
				t.Fatalf("%s: %v", p.Name, err)
			}
			delete(m.outputs, "nft list tables")
			delete(m.outputs, "iptables-nft-save")
			_, err = m.do(t, p)
		}
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	if m.Files.Exists(downloadDir) {
		t.Errorf("%s is left", downloadDir)
	}
	for i, c := range m.rec.Calls() {
		if strings.HasPrefix(c, "iptables-nft-restore") {
			if d := cmp.Diff("*nat\n-D PREROUTING -j KUBE-SERVICES\n-F KUBE-SERVICES\n-X KUBE-SERVICES\nCOMMIT\n", m.rec.Input()[i]); d != "" {
				t.Errorf("rules (-want +got):\n%s", d)
			}
		}
	}
	if !m.ran("iptables-nft-restore --noflush") || !m.ran("tasks delete --force abc") || m.ran("delete --force nerdctls") {
		t.Errorf("ran %q", m.rec.Calls())
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the reset (-want +got):\n%s", d)
	}
	// Twice is no harm.
	m.boot(t, false)
	for _, p := range phases {
		if _, err := m.do(t, p); err != nil {
			t.Errorf("%s a second time: %v", p.Name, err)
		}
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after two resets (-want +got):\n%s", d)
	}
}

// What is in the ledger and cannot be taken back is residue.
func TestResidue(t *testing.T) {
	m := newMachine(t)
	if err := m.Ledger.Record(host.Entry{Kind: host.KindUnit, Name: "kubelet.service", Op: host.Created}); err != nil {
		t.Fatal(err)
	}
	phases := ResetPhases()
	if _, err := m.do(t, phases[len(phases)-1]); code(err) != CodeResidue {
		t.Errorf("got %v", err)
	}
}

// The data of a containerd goes with the ocadm that installed it, unless others keep something in it.
func TestDataOfContainerd(t *testing.T) {
	const data = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *machine)
		after  func(*testing.T, *machine)
		gone   bool
	}{
		{name: "ours", gone: true},
		{name: "there before", before: func(t *testing.T, m *machine) { m.put(t, data, "theirs") }},
		{name: "images of others", after: func(_ *testing.T, m *machine) {
			m.outputs["ctr namespaces ls -q"] = "default\nk8s.io\nempty\n"
			m.outputs["ctr -n default images ls -q"] = "docker.io/library/nginx:1\n"
		}},
		{name: "a container of others among the pods", after: func(_ *testing.T, m *machine) {
			m.outputs["ctr namespaces ls -q"] = "k8s.io\n"
			m.outputs["ctr -n k8s.io containers ls -q"] = "nerdctls\n"
		}},
		{name: "the first release's ledger", gone: true, after: func(t *testing.T, m *machine) {
			if err := m.Ledger.Forget(host.KindData, containerdData); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.use(t, writeBundle(t, nodeFiles()))
			if tt.before != nil {
				tt.before(t, m)
			}
			m.asNode(t)
			m.must(t, Software())
			m.must(t, Units())
			m.put(t, data, "x")
			m.put(t, "/run/containerd/s/abc", "a socket")
			if tt.after != nil {
				tt.after(t, m)
			}
			m.boot(t, false)
			inv, err := InventoryOf(t.Context(), m.Host)
			if err != nil || slices.ContainsFunc(inv.Removes, func(l string) bool { return strings.HasPrefix(l, containerdData) }) != tt.gone ||
				slices.ContainsFunc(inv.Keeps, func(l string) bool { return strings.HasPrefix(l, containerdData) }) == tt.gone {
				t.Errorf("the inventory is %+v, %v", inv, err)
			}
			for _, p := range ResetPhases() {
				if _, err := m.do(t, p); err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
			}
			if m.Files.Exists(data) == tt.gone || m.Files.Exists("/run/containerd/s/abc") == tt.gone {
				t.Errorf("gone %t", !m.Files.Exists(data))
			}
		})
	}
}

// Shims of every containerd keep their sockets in one directory.
func TestDirectoriesOfAnotherContainerdStay(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.put(t, "/opt/containerd/bin/x", "")
	m.put(t, "/run/nri/theirs", "")
	m.put(t, "/run/containerd/s/theirs", "a socket")
	m.asNode(t)
	m.must(t, Software())
	m.put(t, "/run/containerd/containerd.sock", "")
	m.put(t, "/var/lib/containerd/x", "")
	if err := removeRuntimeData(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"/opt/containerd/bin/x": true, "/run/nri/theirs": true, "/run/containerd/s/theirs": true,
		"/run/containerd/containerd.sock": false, "/var/lib/containerd": false} {
		if m.Files.Exists(name) != stays {
			t.Errorf("%s is there: %t", name, !stays)
		}
	}
}

func TestShimsOfOthersKeepTheirSockets(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.asNode(t)
	m.must(t, Software())
	m.put(t, "/run/containerd/s/abc", "a socket")
	m.put(t, "/run/containerd/io.containerd.grpc.v1.cri/x", "")
	m.put(t, "/proc/77/cmdline", "/usr/bin/"+shim+"\x00-namespace\x00moby\x00-address\x00/run/docker/containerd/containerd.sock\x00")
	if err := removeRuntimeData(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	if !m.Files.Exists("/run/containerd/s/abc") || m.Files.Exists("/run/containerd/io.containerd.grpc.v1.cri") {
		t.Error("want the socket there and our state gone")
	}
}

func TestResetMayKeepImages(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.asNode(t)
	m.must(t, Software())
	m.Config.Run.Keep = []string{config.KeepImages}
	m.put(t, "/var/lib/containerd/x", "")
	if err := m.Ledger.Record(host.Entry{Kind: host.KindImage, Name: "registry.k8s.io/pause:3.10.2", Op: host.Created}); err != nil {
		t.Fatal(err)
	}
	for _, p := range ResetPhases() {
		if _, err := m.do(t, p); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	if !m.Files.Exists("/var/lib/containerd/x") || m.ran("images rm") {
		t.Errorf("the images are gone; ran %q", m.rec.Calls())
	}
	if left := m.Ledger.Created(); len(left) != 1 || left[0].Kind != host.KindData || left[0].Name != containerdData {
		t.Errorf("the ledger holds %v, want whose the images are", left)
	}
	// A reset that keeps nothing can still prove whose they are.
	m.boot(t, false)
	for _, p := range ResetPhases() {
		if _, err := m.do(t, p); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	if m.Files.Exists("/var/lib/containerd/x") {
		t.Error("the images are still there")
	}
}

// A containerd that ocadm could not use is still somebody's: its containers and images are not ocadm's to remove.
func TestResetLeavesTheDataOfAContainerdThatIsTooOld(t *testing.T) {
	const data, task = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "/run/containerd/io.containerd.runtime.v2.task/moby/1/rootfs"
	m := newMachine(t, func(m *machine) {
		m.put(t, "/usr/bin/"+containerd, "old")
		m.versions[containerd] = "containerd containerd.io 1.6.20"
	})
	m.put(t, data, "theirs")
	m.put(t, "/proc/self/mounts", "overlay "+task+" overlay rw 0 0\n")
	m.asNode(t)
	if left := dataDirs(m.Host); len(left) > 0 {
		t.Errorf("of others, and taken for ocadm's: %q", left)
	}
	for _, p := range ResetPhases() {
		if _, err := m.do(t, p); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	if !m.Files.Exists(data) {
		t.Error("the data of somebody else's containerd is gone")
	}
}

func TestResetLeavesDataOfHostVolumes(t *testing.T) {
	m := newMachine(t)
	m.asNode(t)
	m.put(t, "/opt/cloud/workspace/disks/vm", "a disk")
	m.put(t, "/etc/yunion/host.conf", nodefiles.Host)
	m.put(t, "/etc/yunion/lbagent.conf", nodefiles.LBAgent+"edited: true\n")
	theirs := []string{"/opt/cloud/workspace/disks2", "/opt/cloud/workspace/servers/theirs", "/etc/telegraf/mine.d", "/opt/telegraf", "/etc/openvswitch/mine"}
	for _, d := range append(theirs, "/opt/cloud/workspace/data/glance") {
		if err := os.MkdirAll(m.Files.Path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeRuntimeData(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	for _, d := range theirs {
		if !m.Files.Exists(d) {
			t.Errorf("an empty directory of somebody else's is gone: %s", d)
		}
	}
	if m.Files.Exists("/opt/cloud/workspace/data") || !m.Files.Exists("/opt/cloud/workspace/disks/vm") {
		t.Error("want the empty directories gone and the data there")
	}
	if m.Files.Exists("/etc/yunion/host.conf") || !m.Files.Exists("/etc/yunion/lbagent.conf") {
		t.Error("want the file of the agents gone, and the one that was edited there")
	}
}

// A disk that its owner mounted where containers keep their data is emptied and stays.
func TestResetLeavesMountedDisks(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.must(t, Software())
	m.put(t, "/proc/self/mounts", "/dev/sdb1 /var/lib/containerd ext4 rw 0 0\n")
	m.put(t, "/var/lib/containerd/lost+found/x", "the file system's own")
	m.put(t, "/var/lib/containerd/x", "an image")
	if err := removeRuntimeData(t.Context(), m.Host, m); err != nil {
		t.Fatal(err)
	}
	if m.Files.Exists("/var/lib/containerd/x") || !m.Files.Exists("/var/lib/containerd/lost+found") {
		t.Error("want the disk empty but for lost+found")
	}
	if got := dataDirs(m.Host); len(got) > 0 {
		t.Errorf("left after: %q", got)
	}
}

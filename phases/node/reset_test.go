// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/templates/nodefiles"
	"yunion.io/x/ocadm/test/require"
)

// asNode makes the machine a node, like the first phase of init and join.
func (m *machine) asNode(t *testing.T) {
	t.Helper()
	require.NoError(t, owned.Note(m.Host, true))
}

func TestResetUndoesEverything(t *testing.T) {
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
	require.NoError(t, m.Files.WriteFile("/etc/ocadm/other", []byte("written by another phase"), 0o600))
	// A manifest of kubeadm that was changed while its static pod was stopped, and is gone with the node.
	const stopped = "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/etcd.yaml"
	m.put(t, stopped, "--listen-client-urls=https://192.0.2.1:2379")
	require.NoError(t, m.Files.WriteFile(stopped, []byte("--listen-client-urls=https://192.0.2.9:2379"), 0o600))
	require.NoError(t, m.Files.RemoveAll("/etc/kubernetes/tmp"))
	// A download interrupted by the end of init.
	require.NoError(t, m.Files.Mkdir(downloadDir, 0o700))
	m.put(t, downloadDir+"/0123456789abcdef-kubelet", "a part")
	m.boot(t, false)
	phases := ResetPhases()
	for _, p := range phases {
		_, err := m.do(t, p)
		if p.Name == "pod-network" { // this machine's kernel keeps its state
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
	// A second time does no harm.
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

// Ledger entries that cannot be undone are residue.
func TestResidue(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, m.Ledger.Record(host.Entry{Kind: host.KindUnit, Name: "kubelet.service", Op: host.Created}))
	phases := ResetPhases()
	if _, err := m.do(t, phases[len(phases)-1]); code(err) != CodeResidue {
		t.Errorf("got %v", err)
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
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	if !m.Files.Exists("/run/containerd/s/abc") || m.Files.Exists("/run/containerd/io.containerd.grpc.v1.cri") {
		t.Error("want the socket there and our state gone")
	}
}

// A shim that no containerd knows is killed with its containers; one of another containerd stays.
func TestResetEndsLostShims(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.asNode(t)
	m.must(t, Software())
	m.put(t, "/proc/77/cmdline", "/usr/bin/"+shim+"\x00-namespace\x00moby\x00-address\x00/run/docker/containerd/containerd.sock\x00")
	m.put(t, "/proc/88/cmdline", "/usr/local/bin/"+shim+"\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00"+socket+"\x00")
	m.put(t, "/proc/88/task/88/children", "90 91 ")
	m.rec.Answer = func(c exec.Command) (exec.Result, error) {
		if strings.Join(c.Args, " ") == `-c kill -KILL "$@" sh 88 90 91` {
			return exec.Result{}, os.RemoveAll(filepath.Join(m.root, "proc/88"))
		}
		return m.answer(c)
	}
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	if _, others := shims(m.Host); len(others) != 1 {
		t.Errorf("%q", others)
	}
}

func TestResetMayKeepImages(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.asNode(t)
	m.must(t, Software())
	m.Config.Run.Keep = []string{config.KeepImages}
	m.put(t, "/var/lib/containerd/x", "")
	require.NoError(t, m.Ledger.Record(host.Entry{Kind: host.KindImage, Name: "registry.k8s.io/pause:3.10.2", Op: host.Created}))
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
	// A reset that keeps nothing can still prove who made them.
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

// A containerd that ocadm could not use still has an owner: ocadm must not remove its containers and images.
func TestResetLeavesTheDataOfAContainerdThatIsTooOld(t *testing.T) {
	const data, task = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "/run/containerd/io.containerd.runtime.v2.task/moby/1/rootfs"
	m := newMachine(t, func(m *machine) {
		m.put(t, "/usr/bin/"+containerd, "old")
		m.versions[containerd] = "containerd containerd.io 1.6.20"
	})
	m.put(t, data, "theirs")
	m.put(t, "/proc/self/mountinfo", "1 1 0:9 / "+task+" rw - overlay overlay rw\n")
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
		t.Error("the data of a foreign containerd is gone")
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
		require.NoError(t, os.MkdirAll(m.Files.Path(d), 0o755))
	}
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	if m.Files.Exists("/etc/yunion/host.conf") {
		t.Error("the file of the agents is still there")
	}
	// The cloud of an earlier release writes the earlier file, also when the operator is of this one.
	earlier, _, _ := strings.Cut(nodefiles.Host, "# host-image reads")
	m.put(t, "/etc/yunion/host.conf", earlier)
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	for _, d := range theirs {
		if !m.Files.Exists(d) {
			t.Errorf("a foreign empty directory is gone: %s", d)
		}
	}
	if m.Files.Exists("/opt/cloud/workspace/data") || !m.Files.Exists("/opt/cloud/workspace/disks/vm") {
		t.Error("want the empty directories gone and the data there")
	}
	if m.Files.Exists("/etc/yunion/host.conf") || !m.Files.Exists("/etc/yunion/lbagent.conf") {
		t.Error("want the file of the agents gone, and the one that was edited there")
	}
}

// If a disk is mounted where containers keep their data, the disk is emptied but stays mounted.
func TestResetLeavesMountedDisks(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.must(t, Software())
	m.put(t, "/proc/self/mountinfo", "1 1 8:17 / /var/lib/containerd rw - ext4 /dev/sdb1 rw\n")
	m.put(t, "/var/lib/containerd/lost+found/x", "the file system's own")
	m.put(t, "/var/lib/containerd/x", "an image")
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	if m.Files.Exists("/var/lib/containerd/x") || !m.Files.Exists("/var/lib/containerd/lost+found") {
		t.Error("want the disk empty but for lost+found")
	}
	if got := dataDirs(m.Host); len(got) > 0 {
		t.Errorf("left after: %q", got)
	}
}

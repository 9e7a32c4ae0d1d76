// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

type reporter struct {
	workflow.Discard
	said []string
}

func (r *reporter) Info(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *reporter) Changed(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// machine returns a directory that stands in for a machine, with these files. firstRelease gives it a ledger of ocadm's first release, without an entry for the node.
func machine(t *testing.T, role string, firstRelease bool, files ...string) (*host.Host, *host.Recorder) {
	t.Helper()
	root := t.TempDir()
	put := func(name, data string) {
		p := filepath.Join(root, name)
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o600)))
	}
	for _, f := range files {
		name, data, _ := strings.Cut(f, "=")
		put(name, data)
	}
	kind := map[string]string{controlPlane: "InitConfiguration", worker: "JoinConfiguration"}[role]
	if firstRelease {
		put(configFile, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: "+kind+"\n")
		ledger := `{"time":"2026-11-01T10:00:00Z","kind":"dir","name":"/etc/ocadm","op":"created"}
{"time":"2026-11-01T10:00:01Z","kind":"file","name":"/etc/ocadm/kubeadm.yaml","op":"created"}
`
		put(host.LedgerFile, ledger)
	}
	rec := &host.Recorder{}
	c := &config.Config{}
	c.Node.Name = "n1"
	h, err := host.Fake(t.Context(), root, c, rec)
	require.NoError(t, err)
	return h, rec
}

// foreign returns other programs' files in a node's directories.
func foreign() []string {
	return []string{
		"/var/lib/etcd/default/member/snap/db=a standalone etcd", "/etc/kubernetes/other.conf=x", "/etc/kubernetes/pki/mine.crt=x",
		"/etc/kubernetes/manifests/mine.yaml=x", "/var/lib/kubelet/config.json=credentials", "/var/lib/kubelet/seccomp/mine.json=x", "/var/lib/kubelet/.dockerconfigjson=x",
		"/var/lib/cni/networks/mynet/10.4.0.2=abc", "/etc/cni/net.d/87-podman.conflist=x", "/var/log/pods/notes.txt=x",
		`/var/lib/cni/results/mynet-abc-eth0={"kind":"cniCacheV1","networkName":"mynet","cniArgs":[["IgnoreUnknown","1"]]}`,
		`/var/lib/cni/flannel/theirs={"name":"other"}`,
	}
}

// nodes returns a node's own files: those of a worker, and the additional ones of a control plane.
func nodes() (worker, more []string) {
	worker = []string{
		"/etc/kubernetes/kubelet.conf=x", "/etc/kubernetes/pki/ca.crt=x", "/var/lib/kubelet/config.yaml=x", "/var/lib/kubelet/pods/1/etc-hosts=x",
		"/var/lib/kubelet/pki/kubelet-client-current.pem=x", "/var/lib/kubelet/pki/.kubelet-client-2026-11-26-02-21-02.pem.ocadm=half",
		"/var/lib/kubelet/.1753224078=half", "/run/flannel/.subnet.env=half", "/var/lib/cni/networks/cbr0/10.40.0.2=abc", "/etc/cni/net.d/10-flannel.conflist=x",
		"/var/log/pods/kube-system_kube-proxy-x_0d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5/c/0.log=x", "/run/flannel/subnet.env=FLANNEL_NETWORK=10.40.0.0/16\n",
		`/var/lib/cni/results/cbr0-def-eth0={"kind":"cniCacheV1","networkName":"cbr0","cniArgs":[["K8S_POD_NAMESPACE","default"]]}`,
		`/var/lib/cni/flannel/def={"name":"cbr0"}`,
	}
	more = []string{"/etc/kubernetes/admin.conf=x", "/etc/kubernetes/pki/ca.key=x", "/etc/kubernetes/pki/etcd/ca.crt=x",
		"/etc/kubernetes/manifests/etcd.yaml=x", "/var/lib/etcd/member/wal/1=x", "/etc/kubernetes/pki/.ocadm-room=", "/etc/kubernetes/.admin.conf.ocadm=half"}
	return worker, more
}

func tree(t *testing.T, h *host.Host) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(h.Files.Root, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(p, h.Files.Path(host.StateDir)) {
			raw, err := os.ReadFile(p)
			out[strings.TrimPrefix(p, h.Files.Root)] = string(raw)
			return err
		}
		return err
	})
	require.NoError(t, err)
	return out
}

func clean(t *testing.T, h *host.Host) {
	t.Helper()
	require.NoError(t, Keep(h))
	for _, f := range Files(h) {
		require.NoError(t, Remove(h, f))
	}
	require.NoError(t, RemoveCNIState(h, &reporter{}))
	RemoveEmpty(h)
}

func TestOnlyTheNodesFilesGo(t *testing.T) {
	own, more := nodes()
	for _, tt := range []struct {
		name, role   string
		firstRelease bool
		extra, stays []string
	}{
		{name: "worker", role: worker},
		{name: "worker of the first release", role: worker, firstRelease: true},
		{name: "control plane", role: controlPlane, extra: more},
		{name: "control plane of the first release", role: controlPlane, firstRelease: true, extra: more},
		// A worker has no etcd: data in its place belongs to others.
		{name: "etcd beside a worker", role: worker, firstRelease: true, stays: []string{"/var/lib/etcd/member/wal/1=theirs", "/etc/kubernetes/pki/ca.key=theirs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := map[string]string{}
			for _, f := range append(foreign(), tt.stays...) {
				name, data, _ := strings.Cut(f, "=")
				want[name] = data
			}
			h, _ := machine(t, tt.role, tt.firstRelease, append(foreign(), tt.stays...)...)
			if !tt.firstRelease {
				require.NoError(t, Note(h, tt.role == controlPlane))
			}
			for _, f := range append(own, tt.extra...) {
				name, data, _ := strings.Cut(f, "=")
				p := h.Files.Path(name)
				require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o600)))
			}
			clean(t, h)
			if d := cmp.Diff(want, tree(t, h)); d != "" {
				t.Errorf("after the reset (-want +got):\n%s", d)
			}
			if !NodeOf(h).Made {
				t.Error("the proof is gone before the rest is done")
			}
			if h.Files.Exists("/run/flannel") || h.Files.Exists("/var/lib/kubelet/pods") {
				t.Error("empty directories of the node are left")
			}
			if err := Forget(h); err != nil || NodeOf(h).Made {
				t.Errorf("still a node, %v", err)
			}
		})
	}
}

// Without a ledger, nothing belongs to ocadm, whatever its name.
func TestNothingIsRemovedWithoutALedger(t *testing.T) {
	own, more := nodes()
	h, rec := machine(t, controlPlane, false, append(own, more...)...)
	before := tree(t, h)
	clean(t, h)
	if err := RemoveNetwork(t.Context(), h, &reporter{}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, tree(t, h)); d != "" || len(rec.Calls()) > 0 {
		t.Errorf("ran %q (-before +after):\n%s", rec.Calls(), d)
	}
	if len(Foreign(h)) == 0 {
		t.Error("the signs of the other's node are not seen")
	}
}

// A file with a node's name that existed before stays; if ocadm then changes it, the ledger restores it.
func TestExistingFilesAreKept(t *testing.T) {
	h, _ := machine(t, controlPlane, false, "/etc/kubernetes/pki/ca.crt=a person's", "/etc/kubernetes/pki/ca.key=a person's", "/sys/class/net/cni0/x=",
		"/var/lib/cni/networks/cbr0/10.4.0.2=theirs", "/etc/kubernetes/admin.conf=theirs")
	require.NoError(t, Note(h, true))
	require.NoError(t, h.Files.WriteFile("/etc/kubernetes/admin.conf", []byte("ocadm's"), 0o600))
	require.NoError(t, h.Files.WriteFile("/etc/kubernetes/pki/sa.key", []byte("ocadm's"), 0o600))
	clean(t, h)
	n, err := NetworkOf(t.Context(), h)
	if err != nil || len(n.List()) > 0 {
		t.Errorf("network %q, %v", n.List(), err)
	}
	for _, e := range h.Ledger.Created() {
		if e.Kind == host.KindFile {
			if err := h.Files.Undo(e); err != nil {
				t.Error(err)
			}
		}
	}
	want := map[string]string{"/etc/kubernetes/pki/ca.crt": "a person's", "/etc/kubernetes/pki/ca.key": "a person's", "/etc/kubernetes/admin.conf": "theirs",
		"/var/lib/cni/networks/cbr0/10.4.0.2": "theirs", "/sys/class/net/cni0/x": ""}
	if d := cmp.Diff(want, tree(t, h)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A mount that cannot be unmounted keeps its contents.
func TestMountsAreNeverEmptied(t *testing.T) {
	h, _ := machine(t, worker, true, "/var/lib/kubelet/pods/1/volumes/v/data=of a volume",
		"/proc/self/mountinfo=1 1 8:16 / /var/lib/kubelet/pods/1/volumes/v rw - ext4 /dev/sdb rw\n2 1 0:9 / /var/lib/kubelet/pods/2/a\\040b rw - tmpfs x rw\n"+
			"3 1 8:32 / /var/log/pods rw - ext4 /dev/sdc rw\n")
	got, err := Mounts(h)
	if d := cmp.Diff([]string{"/var/lib/kubelet/pods/2/a b", "/var/lib/kubelet/pods/1/volumes/v"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if err := Remove(h, "/var/lib/kubelet/pods"); err == nil || !h.Files.Exists("/var/lib/kubelet/pods/1/volumes/v/data") {
		t.Errorf("the data of a mounted volume is gone: %v", err)
	}
}

// A killed pod leaves the image volume mounted on its node. A person's own mount there stays.
func TestVolumeOfImagesIsUnmounted(t *testing.T) {
	const theirs = "61 1 8:17 / " + ImagesDir + " rw shared:9 - ext4 /dev/sdb1 rw\n"
	const ours = "62 1 8:1 /opt/local-path-provisioner/pvc-1_onecloud_default-glance " + ImagesDir + " rw shared:1 - ext4 /dev/sda1 rw\n"
	const block = "63 1 252:0 / " + ImagesDir + " rw shared:1 - ext4 /dev/rbd0 rw\n"
	const ofPod = kubeletDir + "/pods/1/volumes/kubernetes.io~csi/pvc-2/mount"
	const kubelets = "64 1 252:0 / " + ofPod + " rw shared:1 - ext4 /dev/rbd0 rw\n"
	for name, c := range map[string]struct {
		mounts string
		want   []string
	}{
		"a volume of another storage class": {block + kubelets, []string{ofPod, ImagesDir}}, "a disk while pods have others": {theirs + kubelets, []string{ofPod}},
		"none": {"", nil}, "a person's": {theirs, nil}, "a volume": {ours, []string{ImagesDir}}, "both": {theirs + ours, []string{ImagesDir}},
		"a person's over it": {ours + theirs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := machine(t, controlPlane, true, "/proc/self/mountinfo="+c.mounts)
			got, err := Mounts(h)
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
		})
	}
}

// The kernel lists mounts by their real names. Contents of a pod's mount are not removed with the kubelet's directories if these are behind a link.
func TestMountsBehindALinkAreNeverEmptied(t *testing.T) {
	const volume = "/data/kubelet/pods/1/volumes/v"
	h, _ := machine(t, worker, true, volume+"/precious=x", "/var/lib/x=", "/proc/self/mountinfo=1 1 8:16 / "+volume+" rw - ext4 /dev/sdb rw\n")
	require.NoError(t, os.Symlink("../../data/kubelet", h.Files.Path(kubeletDir)))
	if got, err := Mounts(h); err != nil || len(got) != 1 || got[0] != kubeletDir+"/pods/1/volumes/v" {
		t.Errorf("%q, %v", got, err)
	}
	if RemoveEmpty(h); !h.Files.Exists(kubeletDir) {
		t.Error("the link of a directory that is not empty is gone")
	}
	// A directory that stands in for a machine cannot unmount anything.
	if err := Remove(h, kubeletDir+"/pods"); err == nil || !h.Files.Exists(volume+"/precious") {
		t.Errorf("removed: %v", err)
	}
}

// The image volume is also found if the workspace or the kubelet's directory is behind a link.
func TestVolumeOfImagesBehindALink(t *testing.T) {
	const elsewhere = "/data" + ImagesDir
	h, _ := machine(t, worker, true, elsewhere+"/x=", "/data/kubelet/x=", "/var/lib/x=", "/opt/x=",
		"/proc/self/mountinfo=63 1 252:0 / "+elsewhere+" rw shared:1 - ext4 /dev/rbd0 rw\n64 1 252:0 / /data/kubelet/pods/1/volumes/v rw shared:1 - ext4 /dev/rbd0 rw\n")
	for link, to := range map[string]string{"/opt/cloud": "../data/opt/cloud", kubeletDir: "../../data/kubelet"} {
		require.NoError(t, os.Symlink(to, h.Files.Path(link)))
	}
	if got, err := Mounts(h); err != nil || len(got) != 1 || got[0] != ImagesDir {
		t.Errorf("%q, %v", got, err)
	}
}

// A directory that its owner has moved behind a link is emptied there, and the link stays.
func TestLinkedDirectoryIsEmptied(t *testing.T) {
	const linked = "/var/lib/containerd"
	h, _ := machine(t, worker, true, "/data/containerd/layers/1=x", "/var/lib/x=", "/proc/self/mountinfo=")
	require.NoError(t, os.Symlink("../../data/containerd", h.Files.Path(linked)))
	if err := Remove(h, linked); err != nil || h.Files.Exists("/data/containerd/layers") || !h.Files.Exists(linked) {
		t.Errorf("%v", err)
	}
	if !Disk(h, linked) {
		t.Error("the link is left over")
	}
}

// After an unfinished reset, the machine may become another kind of node. If a control plane passed for a worker, the next reset would leave its keys and its etcd.
func TestRoleAfterAResetThatDidNotEnd(t *testing.T) {
	h, _ := machine(t, worker, false)
	require.NoError(t, Note(h, false))
	require.NoError(t, h.Files.WriteFile(configFile, []byte("kind: JoinConfiguration\n"), 0o600))
	require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: "kubeadm join phase kubelet-start", Op: host.Found}))
	if err := Note(h, true); err != nil || NodeOf(h) != (Node{Made: true}) || len(h.Ledger.Found(host.KindPhase)) == 0 {
		t.Errorf("a node changes its role: %+v, %v", NodeOf(h), err)
	}
	clean(t, h)
	if !NodeOf(h).Made {
		t.Fatal("the reset has ended")
	}
	if err := Note(h, false); err != nil || len(h.Ledger.Found(host.KindPhase)) > 0 {
		t.Errorf("what kubeadm did for the former node is left: %v", err)
	}
	if err := Note(h, true); err != nil || NodeOf(h) != (Node{Made: true, ControlPlane: true}) {
		t.Errorf("after the worker: %+v, %v", NodeOf(h), err)
	}
}

// Directories that existed before the node, and those on a mounted disk, stay, whether empty or not.
func TestEmptyDirectoriesOfVolumes(t *testing.T) {
	const before, after, disk = "/etc/openvswitch", "/opt/cloud/workspace/servers", "/opt/cloud/workspace/data"
	h, _ := machine(t, "", false)
	mkdir := func(dirs ...string) {
		for _, d := range dirs {
			require.NoError(t, os.MkdirAll(h.Files.Path(d), 0o755))
		}
	}
	mkdir(before, "/lib/modules", "/usr/libexec/kubernetes")
	require.NoError(t, Note(h, false))
	mkdir(after, disk+"/glance", "/var/lib/ocadm/etcd", "/etc/telegraf", "/etc/yunion/common", "/etc/yunion/pki", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
	require.NoError(t, h.Files.WriteFile("/proc/self/mountinfo", []byte("1 1 8:17 / "+disk+" rw - xfs /dev/sdb1 rw\n"), 0o644))
	RemoveEmpty(h)
	for d, stays := range map[string]bool{
		before: true, "/lib/modules": true, "/usr/libexec/kubernetes": true, disk + "/glance": true,
		after: false, "/var/lib/ocadm/etcd": false, "/etc/telegraf": false, "/etc/yunion": false, "/usr/libexec/kubernetes/kubelet-plugins": false,
	} {
		if h.Files.Exists(d) != stays {
			t.Errorf("%s: stays %v, want %v", d, !stays, stays)
		}
	}
}

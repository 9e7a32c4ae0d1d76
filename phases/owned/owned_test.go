// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

type reporter struct{ said []string }

func (r *reporter) Info(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}
func (r *reporter) Output(string)                 {}
func (r *reporter) Waiting(string, string)        {}
func (r *reporter) Progress(int64, int64, string) {}
func (*reporter) Alive()                          {}
func (r *reporter) Changed(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// machine is a directory that stands for a machine, with these files on it. firstRelease gives it a ledger as ocadm's first release
// wrote it, without an entry for the node.
func machine(t *testing.T, role string, firstRelease bool, files ...string) (*host.Host, *host.Recorder) {
	t.Helper()
	root := t.TempDir()
	put := func(name, data string) {
		p := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	return h, rec
}

// foreign are files of others in a node's directories.
func foreign() []string {
	return []string{
		"/var/lib/etcd/default/member/snap/db=a standalone etcd", "/etc/kubernetes/other.conf=x", "/etc/kubernetes/pki/mine.crt=x",
		"/etc/kubernetes/manifests/mine.yaml=x", "/var/lib/kubelet/config.json=credentials", "/var/lib/kubelet/seccomp/mine.json=x",
		"/var/lib/cni/networks/mynet/10.4.0.2=abc", "/etc/cni/net.d/87-podman.conflist=x", "/var/log/pods/notes.txt=x",
		`/var/lib/cni/results/mynet-abc-eth0={"kind":"cniCacheV1","networkName":"mynet","cniArgs":[["IgnoreUnknown","1"]]}`,
		`/var/lib/cni/flannel/theirs={"name":"other"}`,
	}
}

// nodes are a node's own files, on a worker and what a control plane has more.
func nodes() (worker, more []string) {
	worker = []string{
		"/etc/kubernetes/kubelet.conf=x", "/etc/kubernetes/pki/ca.crt=x", "/var/lib/kubelet/config.yaml=x", "/var/lib/kubelet/pods/1/etc-hosts=x",
		"/var/lib/kubelet/pki/kubelet-client-current.pem=x", "/var/lib/cni/networks/cbr0/10.40.0.2=abc", "/etc/cni/net.d/10-flannel.conflist=x",
		"/var/log/pods/kube-system_kube-proxy-x_0d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5/c/0.log=x", "/run/flannel/subnet.env=FLANNEL_NETWORK=10.40.0.0/16\n",
		`/var/lib/cni/results/cbr0-def-eth0={"kind":"cniCacheV1","networkName":"cbr0","cniArgs":[["K8S_POD_NAMESPACE","default"]]}`,
		`/var/lib/cni/flannel/def={"name":"cbr0"}`,
	}
	more = []string{"/etc/kubernetes/admin.conf=x", "/etc/kubernetes/pki/ca.key=x", "/etc/kubernetes/pki/etcd/ca.crt=x",
		"/etc/kubernetes/manifests/etcd.yaml=x", "/var/lib/etcd/member/wal/1=x"}
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func clean(t *testing.T, h *host.Host) {
	t.Helper()
	if err := Keep(h); err != nil {
		t.Fatal(err)
	}
	files, err := Files(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := Remove(h, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveCNIState(h, &reporter{}); err != nil {
		t.Fatal(err)
	}
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
		// A worker has no etcd: whatever is in its place is someone else's.
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
				if err := Note(h, tt.role == controlPlane); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range append(own, tt.extra...) {
				name, data, _ := strings.Cut(f, "=")
				p := h.Files.Path(name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o600)); err != nil {
					t.Fatal(err)
				}
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

// Without a ledger nothing is ocadm's, whatever it is called.
func TestWithoutALedgerNothingGoes(t *testing.T) {
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

// What has a node's name and was there before stays; what ocadm then changes is kept for the ledger to restore.
func TestWhatWasThereBeforeStays(t *testing.T) {
	h, _ := machine(t, controlPlane, false, "/etc/kubernetes/pki/ca.crt=a person's", "/etc/kubernetes/pki/ca.key=a person's", "/sys/class/net/cni0/x=",
		"/var/lib/cni/networks/cbr0/10.4.0.2=theirs", "/etc/kubernetes/admin.conf=theirs")
	if err := Note(h, true); err != nil {
		t.Fatal(err)
	}
	if err := h.Files.WriteFile("/etc/kubernetes/admin.conf", []byte("ocadm's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Files.WriteFile("/etc/kubernetes/pki/sa.key", []byte("ocadm's"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// A mount that cannot be let go of keeps what it shows.
func TestMountsAreNeverEmptied(t *testing.T) {
	h, _ := machine(t, worker, true, "/var/lib/kubelet/pods/1/volumes/v/data=of a volume",
		"/proc/self/mounts=/dev/sdb /var/lib/kubelet/pods/1/volumes/v ext4 rw 0 0\nx /var/lib/kubelet/pods/2/a\\040b tmpfs rw 0 0\n/dev/sdc /var/log/pods ext4 rw 0 0\n")
	got, err := Mounts(h)
	if d := cmp.Diff([]string{"/var/lib/kubelet/pods/2/a b", "/var/lib/kubelet/pods/1/volumes/v"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if err := Remove(h, "/var/lib/kubelet/pods"); err == nil || !h.Files.Exists("/var/lib/kubelet/pods/1/volumes/v/data") {
		t.Errorf("the data of a mounted volume is gone: %v", err)
	}
}

// A pod that was killed leaves the volume of images mounted on its node. What a person mounted there stays.
func TestVolumeOfImagesIsUnmounted(t *testing.T) {
	const theirs = "61 1 8:17 / " + ImagesDir + " rw shared:9 - ext4 /dev/sdb1 rw\n"
	const ours = "62 1 8:1 /opt/local-path-provisioner/pvc-1_onecloud_default-glance " + ImagesDir + " rw shared:1 - ext4 /dev/sda1 rw\n"
	const block = "63 1 252:0 / " + ImagesDir + " rw shared:1 - ext4 /dev/rbd0 rw\n"
	const kubelets = "64 1 252:0 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-2/mount rw shared:1 - ext4 /dev/rbd0 rw\n"
	for name, c := range map[string]struct {
		mounts string
		want   []string
	}{
		"a volume of another storage class": {block + kubelets, []string{ImagesDir}}, "a disk while pods have others": {theirs + kubelets, nil},
		"none": {"", nil}, "a person's": {theirs, nil}, "a volume": {ours, []string{ImagesDir}}, "both": {theirs + ours, []string{ImagesDir}},
		"a person's over it": {ours + theirs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := machine(t, controlPlane, true, "/proc/self/mounts=", "/proc/self/mountinfo="+c.mounts)
			got, err := Mounts(h)
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
		})
	}
}

func TestPodNamespacesOfOthersStay(t *testing.T) {
	const a, b = "cni-0d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5", "cni-1d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5"
	h, _ := machine(t, worker, true, "/run/netns/"+a+"=", "/run/netns/"+b+"=", "/run/netns/cni-mine=", "/run/netns/blue=",
		`/var/lib/cni/results/mynet-abc-eth0={"networkName":"mynet","result":{"interfaces":[{"sandbox":"/var/run/netns/`+b+`"}]}}`)
	n, err := NetworkOf(t.Context(), h)
	if d := cmp.Diff([]string{"network name space /run/netns/" + a}, n.List()); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestWhereItCannotLookItSaysSo(t *testing.T) {
	missing := func(names ...string) func(exec.Command) (exec.Result, error) {
		return func(c exec.Command) (exec.Result, error) {
			for _, n := range names {
				if c.Path == n {
					return exec.Result{ExitCode: -1}, &exec.Error{Argv: []string{c.Path}, Err: &osexec.Error{Name: n, Err: osexec.ErrNotFound}}
				}
			}
			if len(c.Args) > 0 && c.Args[0] == "--version" {
				return exec.Result{Stdout: "iptables v1.8.9 (nf_tables)\n"}, nil
			}
			return exec.Result{}, nil
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(exec.Command) (exec.Result, error)
		legacy string
		want   string // in the cause; empty is clean
	}{
		{name: "all there", answer: missing()},
		{name: "no nft", answer: missing("nft"), want: "nft list tables"},
		{name: "one iptables for all", answer: missing("iptables-nft-save", "iptables-legacy-save")},
		{name: "no iptables", answer: missing("iptables-nft-save", "iptables-save", "iptables"), want: "iptables-nft-save"},
		{name: "legacy tables and no program for them", answer: missing("iptables-legacy-save"), legacy: "nat\nfilter\n", want: "iptables-legacy-save"},
		{name: "no legacy tables", answer: missing("iptables-legacy-save"), legacy: ""},
		{name: "nft fails", want: "nft list tables", answer: func(c exec.Command) (exec.Result, error) {
			if c.Path == "nft" {
				return exec.Result{ExitCode: 1}, &exec.Error{Argv: []string{"nft"}, ExitCode: 1, Err: errors.New("exit status 1")}
			}
			return exec.Result{}, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, rec := machine(t, worker, true, "/proc/net/ip_tables_names="+tt.legacy)
			rec.Answer = tt.answer
			for what, err := range map[string]error{
				"looking": func() error { _, err := NetworkOf(t.Context(), h); return err }(), "removing": RemoveNetwork(t.Context(), h, &reporter{}),
			} {
				l := finding.Of(err)
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case tt.want != "" && (len(l) != 1 || l[0].Code != CodeCannotLook || !strings.Contains(l[0].Cause, tt.want)):
					t.Errorf("%s: got %v, want a finding that names %s", what, err, tt.want)
				}
			}
		})
	}
}

func TestTablesOfTheNodeGo(t *testing.T) {
	h, rec := machine(t, worker, true)
	rec.Answer = func(c exec.Command) (exec.Result, error) {
		switch c.Path {
		case "nft":
			return exec.Result{Stdout: "table ip kube-proxy\ntable inet filter\ntable ip6 flannel-ipv6\ntable ip kube-proxy2\n"}, nil
		case "iptables-nft-save":
			return exec.Result{Stdout: ourRules}, nil
		}
		return exec.Result{}, nil
	}
	if err := RemoveNetwork(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	calls := strings.Join(rec.Calls(), "\n")
	for _, want := range []string{"nft delete table ip kube-proxy\n", "nft delete table ip6 flannel-ipv6", "iptables-nft-restore --noflush"} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q was not run:\n%s", want, calls)
		}
	}
	if strings.Contains(calls, "inet filter") || strings.Contains(calls, "kube-proxy2") || strings.Contains(calls, "legacy") {
		t.Errorf("ran\n%s", calls)
	}
}

// Rules of published ports in nftables: of a table that others share, only those of the node's pods go.
func TestPublishedPortsInNFTables(t *testing.T) {
	const rules = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "cni_hostport", "handle": 1}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "hostports", "handle": 8, "comment": "def", "expr": []}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "hostports", "handle": 9, "comment": "abc", "expr": []}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "prerouting", "handle": 10, "expr": []}}]}`
	pod := `/var/lib/cni/results/cbr0-def-eth0={"containerId":"def","networkName":"cbr0","cniArgs":[["K8S_POD_NAMESPACE","default"]]}`
	theirs := `/var/lib/cni/results/mynet-abc-eth0={"containerId":"abc","networkName":"mynet","cniArgs":[["IgnoreUnknown","1"]]}`
	for _, tt := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"the node alone", []string{pod}, []string{"nft delete table ip cni_hostport"}},
		{"others, too", []string{pod, theirs}, []string{"nft delete rule ip cni_hostport hostports handle 8"}},
		{"only others", []string{theirs}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, rec := machine(t, worker, true, tt.files...)
			rec.Answer = func(c exec.Command) (exec.Result, error) {
				switch strings.Join(append([]string{c.Path}, c.Args...), " ") {
				case "nft list tables":
					return exec.Result{Stdout: "table ip cni_hostport\n"}, nil
				case "nft -j list table ip cni_hostport":
					return exec.Result{Stdout: rules}, nil
				}
				return exec.Result{}, nil
			}
			if err := RemoveNetwork(t.Context(), h, &reporter{}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range rec.Calls() {
				if strings.HasPrefix(c, "nft delete") {
					got = append(got, c)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Directories that were there before a node was, and those on a mounted disk, stay, be they empty or not.
func TestEmptyDirectoriesOfVolumes(t *testing.T) {
	const before, after, disk = "/etc/openvswitch", "/opt/cloud/workspace/servers", "/opt/cloud/workspace/data"
	h, _ := machine(t, "", false)
	mkdir := func(dirs ...string) {
		for _, d := range dirs {
			if err := os.MkdirAll(h.Files.Path(d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	mkdir(before, "/lib/modules", "/usr/libexec/kubernetes")
	if err := Note(h, false); err != nil {
		t.Fatal(err)
	}
	mkdir(after, disk+"/glance", "/etc/telegraf", "/etc/yunion/common", "/etc/yunion/pki", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
	if err := h.Files.WriteFile("/proc/self/mounts", []byte("/dev/sdb1 "+disk+" xfs rw 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	RemoveEmpty(h)
	for d, stays := range map[string]bool{
		before: true, "/lib/modules": true, "/usr/libexec/kubernetes": true, disk + "/glance": true,
		after: false, "/etc/telegraf": false, "/etc/yunion": false, "/usr/libexec/kubernetes/kubelet-plugins": false,
	} {
		if h.Files.Exists(d) != stays {
			t.Errorf("%s: stays %v, want %v", d, !stays, stays)
		}
	}
}

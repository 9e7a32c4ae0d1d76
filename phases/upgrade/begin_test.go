// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

func code(err error) string {
	for _, f := range finding.Of(err) {
		return f.Code
	}
	return ""
}

// place writes a static pod with an image version into the directory of the kubelet or of the upgrade.
func place(t *testing.T, h *host.Host, dir, name, version string) {
	t.Helper()
	file := h.Files.Path(filepath.Join(dir, name+".yaml"))
	text := "spec: {containers: [{name: " + name + ", image: \"registry/" + name + ":" + version + "\"}]}"
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)))
}

const (
	live   = "/etc/kubernetes/manifests"
	before = kubernetes.UpgradeDir + "/before"
	staged = kubernetes.UpgradeDir + "/manifests"
)

// A record survives, continues with its own version or a newer one, and refuses an older one.
func TestBegin(t *testing.T) {
	h := machine(t)
	if r, err := Unfinished(h); r != nil || err != nil {
		t.Fatalf("before: %+v, %v", r, err)
	}
	was := Record{From: old, To: target, First: true, Committed: true, Cordoned: true, Snapshot: "x"}
	require.NoError(t, was.save(h))
	u := &Upgrade{Host: h}
	if err := Begin(t.Context(), u, old, target); err != nil || u.Record != was {
		t.Errorf("%+v, %v", u.Record, err)
	}
	want := Record{From: old, To: "v1.36.4", Earlier: target, Cordoned: true}
	if err := Begin(t.Context(), u, old, "v1.36.4"); err != nil || u.Record != want {
		t.Errorf("a newer version: %+v, %v", u.Record, err)
	}
	if err := Begin(t.Context(), u, old, "v1.36.2"); code(err) != "OCA-4514" {
		t.Errorf("an older version: %v", err)
	}
	if st, err := os.Stat(h.Files.Path(recordFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// An upgrade that was killed before it replaced anything does not block another version. One that has replaced a static pod blocks older versions.
func TestBeginAnother(t *testing.T) {
	h := machine(t)
	k := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: old}}}).Build()
	require.NoError(t, (Record{From: old, To: target, First: true, Snapshot: "x"}).save(h))
	for _, v := range []string{"v1.36.2", "v1.36.4"} {
		u := &Upgrade{Host: h, K: k, ControlPlane: true}
		if err := Begin(t.Context(), u, old, v); err != nil || u.Record.To != v || u.Record.From != old || u.Record.First || u.Record.Earlier != "" {
			t.Errorf("to %s: %+v, %v", v, u.Record, err)
		}
	}
	place(t, h, before, "etcd", "1")
	place(t, h, live, "etcd", "2")
	u := &Upgrade{Host: h, K: k, ControlPlane: true}
	if err := Begin(t.Context(), u, old, "v1.36.2"); code(err) != "OCA-4514" {
		t.Errorf("an older version after a static pod was replaced: %v", err)
	}
	if err := Begin(t.Context(), u, old, "v1.36.4"); err != nil || u.Record.Snapshot != "x" {
		t.Errorf("a newer version after a static pod was replaced: %+v, %v", u.Record, err)
	}
}

// The cluster has moved on while an upgrade was unfinished. The kept files stay, the manifests of the earlier version are removed, and a failure returns to it.
func TestMoveOn(t *testing.T) {
	const newer = "v1.36.4"
	for name, c := range map[string]struct {
		was  Record
		back bool // returns to the earlier version
	}{
		"committed":     {Record{From: old, To: target, Committed: true, Cordoned: true}, true},
		"not committed": {Record{From: old, To: target}, false},
	} {
		h := machine(t)
		file := h.Files.Path(keptKubelet)
		require.NoError(t, errors.Join(c.was.save(h), os.WriteFile(file, []byte("old"), 0o755)))
		place(t, h, live, "etcd", target)
		place(t, h, staged, "etcd", target)
		place(t, h, before, "etcd", old)
		u := &Upgrade{Host: h, ControlPlane: true}
		u.K = fake.NewClientBuilder().Build()
		if err := Begin(t.Context(), u, old, newer); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(u.staged()) > 0 {
			t.Errorf("%s: the manifests of another version are taken for new ones", name)
		}
		begin := beginStep()
		if begun(u) != "" || u.OnFailure() != workflow.Rollback {
			t.Errorf("%s: it does not begin: %s", name, begun(u))
		}
		require.NoError(t, begin.Run(t.Context(), u, nil))
		r, err := Unfinished(h)
		if err != nil || r == nil || r.To != newer || r.Cordoned != c.was.Cordoned || h.Files.Text(keptKubelet) != "old" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if h.Files.Exists(staged) || h.Files.Exists(before) == c.back {
			t.Errorf("%s: staged manifests %t, previous ones %t", name, h.Files.Exists(staged), h.Files.Exists(before))
		}
		place(t, h, live, "etcd", old) // the previous ones were restored
		if c.back {
			place(t, h, live, "etcd", target)
		}
		require.NoError(t, begin.Undo(t.Context(), u, nil))
		switch r, err := Unfinished(h); {
		case err != nil:
			t.Error(err)
		case c.back && (r == nil || *r != c.was || h.Files.Text(keptKubelet) != "old"):
			t.Errorf("%s: it went back to %+v", name, r)
		case !c.back && r != nil:
			t.Errorf("%s: it left %+v", name, r)
		}
	}
}

// While a node waited for its turn, another one gave the cluster a newer version: this node must not take it back.
func TestTurnAfterAnotherVersion(t *testing.T) {
	for cluster, want := range map[string]string{old: "", target: "", "v1.36.4": "OCA-4501"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
			Data: map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + cluster + "\n"}}
		u := &Upgrade{Host: machine(t), K: fake.NewClientBuilder().WithObjects(cm).Build(), Record: Record{From: old, To: target, First: true}}
		if err := u.notOvertaken(t.Context()); code(err) != want || err != nil && want == "" {
			t.Errorf("the cluster has %s: %v", cluster, err)
		}
	}
}

// A run that continues keeps the snapshot from before it replaced a static pod, and takes a new one if none was replaced: the first may be days old.
func TestSnapshotOfAnEarlierRun(t *testing.T) {
	h := machine(t)
	file := snapshotDir + "/etcd-20261101T000000Z-r1.db"
	place(t, h, before, "etcd", "1")
	require.NoError(t, errors.Join(os.MkdirAll(h.Files.Path(snapshotDir), 0o700), os.WriteFile(h.Files.Path(file), nil, 0o600)))
	u := &Upgrade{Host: h, Record: Record{From: old, To: target, First: true, Snapshot: file}}
	for version, want := range map[string]bool{"1": false, "2": true} {
		place(t, h, live, "etcd", version)
		if done, err := snapshotStep().Check(t.Context(), u); done != want || err != nil {
			t.Errorf("etcd %s: the snapshot counts: %t, %v", version, done, err)
		}
	}
}

// An unfinished upgrade does not allow a version older than the cluster's.
func TestBeginBack(t *testing.T) {
	h := machine(t)
	require.NoError(t, (Record{From: old, To: target, Committed: true}).save(h))
	if err := Begin(t.Context(), &Upgrade{Host: h}, "v1.36.4", target); code(err) != "OCA-4501" {
		t.Errorf("%v", err)
	}
}

// A packaged kubelet is found at its own path, is not kept, and is not replaced.
func TestPackagedKubelet(t *testing.T) {
	const packaged = "/usr/bin/kubelet"
	h := machine(t)
	asked := ""
	h.Exec = &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		asked = c.Path
		return exec.Result{Stdout: "Kubernetes " + old}, nil
	}}
	h.Facts.Programs = map[string]host.Program{"kubelet": {Path: packaged, Version: target}}
	place(t, h, filepath.Dir(kubeletFile), "x", "1")
	u := &Upgrade{Host: h, Record: Record{From: old, To: target}}
	if err := restartKubelet(t.Context(), u, nil); asked != packaged || code(err) != "OCA-4513" {
		t.Errorf("asked %q: %v", asked, err)
	}
	require.NoError(t, errors.Join(os.MkdirAll(h.Files.Path(kubernetes.UpgradeDir), 0o700), os.WriteFile(h.Files.Path(kubeletFile), []byte("stray"), 0o755)))
	if err := keepKubelet(h); err != nil || h.Files.Exists(keptKubelet) {
		t.Errorf("kept %t, %v", h.Files.Exists(keptKubelet), err)
	}
	if err := putKubeletBack(t.Context(), u, nil); err == nil || !strings.Contains(err.Error(), packaged) {
		t.Errorf("putting it back: %v", err)
	}
}

// A node of another architecture cannot run the program of the first one.
func TestThisOcadm(t *testing.T) {
	err := ThisOcadm("v1.99.0")
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4501" || !strings.Contains(f[0].Remedy, runtime.GOARCH) || strings.Contains(f[0].Remedy, "/usr/local/bin") {
		t.Errorf("%v", err)
	}
}

// Files left by an upgrade that was interrupted at its end do not count as those that this one keeps.
func TestBeginAfterLeftovers(t *testing.T) {
	h := machine(t)
	place(t, h, before, "etcd", "v1.34.1")
	place(t, h, live, "etcd", old)
	for name, text := range map[string]string{keptKubelet: "of v1.34.1", kubeletFile: "of " + old} {
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(h.Files.Path(name)), 0o755), os.WriteFile(h.Files.Path(name), []byte(text), 0o755)))
	}
	u := &Upgrade{Host: h, Record: Record{From: old, To: target}}
	require.NoError(t, beginStep().Run(t.Context(), u, nil))
	if h.Files.Exists(before) || h.Files.Text(keptKubelet) != "of "+old {
		t.Errorf("previous manifests %t, kept kubelet %q", h.Files.Exists(before), h.Files.Text(keptKubelet))
	}
	if r, err := Unfinished(h); err != nil || r == nil || r.To != target {
		t.Errorf("%+v, %v", r, err)
	}
}

// A record whose static pods are no longer compared must be completed before patches are applied. Otherwise an interrupted run goes on.
func TestBeginReconfigure(t *testing.T) {
	k := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: target}}}).Build()
	for name, c := range map[string]struct {
		before          *Record
		flag            bool
		code            string
		wantReconfigure bool
	}{
		"new":                     {nil, true, "", true},
		"without the flag":        {nil, false, "", false},
		"interrupted":             {&Record{From: target, To: target, Reconfigure: true}, true, "", true},
		"continued without it":    {&Record{From: target, To: target, Reconfigure: true, Committed: true}, false, "", true},
		"interrupted at its end":  {&Record{From: target, To: target, Reconfigure: true, Committed: true}, true, "OCA-4514", true},
		"after an upgrade's pods": {&Record{From: old, To: target, Committed: true}, true, "OCA-4514", true},
	} {
		h := machine(t)
		if c.before != nil {
			require.NoError(t, c.before.save(h))
		}
		u := &Upgrade{Host: h, K: k, ControlPlane: true, Reconfigure: c.flag}
		if err := Begin(t.Context(), u, target, target); code(err) != c.code || u.Record.Reconfigure != c.wantReconfigure {
			t.Errorf("%s: %v, %+v", name, err, u.Record)
		}
	}
}

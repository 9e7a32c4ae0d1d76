// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

func TestPlans(t *testing.T) {
	for name, steps := range map[string][]Step{"control plane": ControlPlaneSteps(), "node": NodeSteps()} {
		if err := workflow.Validate(steps); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const old, target = "v1.35.8", "v1.36.3"

func plane(name, version string) Node {
	n := Node{Name: name, ControlPlane: true, Ready: true, Kubelet: version, StaticPods: map[string]string{"etcd": "3.6.8-0"}}
	for _, p := range kubernetes.StaticPods()[1:] {
		n.StaticPods[p] = version
	}
	return n
}

func follower(name, version string) Node { return Node{Name: name, Ready: true, Kubelet: version} }

func proxy(version string) []Addon {
	return []Addon{{Name: "coredns", Version: "v1.12.3"}, {Name: proxyName, Version: version}}
}

func TestLeft(t *testing.T) {
	half := plane("node1", target)
	half.Kubelet = old
	pods := plane("node1", old)
	pods.StaticPods["kube-apiserver"] = target
	for name, c := range map[string]struct {
		is   Inventory
		want []string
	}{
		"nothing":         {Inventory{Version: target, Nodes: []Node{plane("node1", target), follower("node2", target)}}, nil},
		"all":             {Inventory{Version: old, Nodes: []Node{plane("node1", old), plane("node2", old), follower("node3", old)}}, []string{"node1 apply", "node2 node", "node3 node"}},
		"first is done":   {Inventory{Version: target, Nodes: []Node{plane("node1", target), plane("node2", old)}}, []string{"node2 node"}},
		"kubelet is left": {Inventory{Version: target, Nodes: []Node{half}}, []string{"node1 node"}},
		"half-way":        {Inventory{Version: old, Nodes: []Node{pods}}, []string{"node1 apply"}},
		"addons are left": {Inventory{Version: target, Nodes: []Node{plane("node1", target), follower("node2", target)}, Addons: proxy(old)}, []string{"node1 node addons"}},
		"addons come last": {Inventory{Version: target, Nodes: []Node{plane("node1", target), plane("node2", old), follower("node3", old)}, Addons: proxy(old)},
			[]string{"node2 node addons", "node3 node"}},
		"addons are done": {Inventory{Version: target, Nodes: []Node{plane("node1", target)}, Addons: proxy(target)}, nil},
	} {
		var got []string
		list := Left(c.is, Target{Version: target})
		if list == nil {
			t.Errorf("%s: scripts get null in place of a list", name)
		}
		for _, w := range list {
			line := w.Node + " " + strings.TrimPrefix(w.Command, "ocadm upgrade ")
			if slices.Contains(w.Does, "CoreDNS and kube-proxy to the versions of "+target) {
				line += " addons"
			}
			got = append(got, line)
			if len(w.Does) == 0 || w.Interrupts == "" {
				t.Errorf("%s: %+v", name, w)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	well := func() (Inventory, Facts) {
		return Inventory{Version: old, Nodes: []Node{plane("node1", old), follower("node2", old)}},
			Facts{Etcd: []etcd.Observed{{Name: "node1", Answers: true}}, Snapshot: now.Add(-time.Hour), Free: 2, Needed: 1}
	}
	for name, c := range map[string]struct {
		change func(*Inventory, *Facts)
		to     string
		want   string // CODE:severity, sorted
	}{
		"well":               {func(*Inventory, *Facts) {}, target, ""},
		"back":               {func(i *Inventory, _ *Facts) { i.Version = "v1.36.4" }, target, "OCA-4501:error"},
		"two minors":         {func(i *Inventory, _ *Facts) { i.Version = "v1.34.1" }, target, "OCA-4501:error"},
		"newer than ocadm":   {func(*Inventory, *Facts) {}, "v1.37.0", "OCA-4501:error"},
		"old kubelet":        {func(i *Inventory, _ *Facts) { i.Nodes[1].Kubelet = "v1.32.9" }, target, "OCA-4501:error"},
		"three minors older": {func(i *Inventory, _ *Facts) { i.Nodes[1].Kubelet = "v1.33.0" }, target, ""},
		"plane down":         {func(i *Inventory, _ *Facts) { i.Nodes[0].Ready = false }, target, "OCA-4502:error"},
		"worker down":        {func(i *Inventory, _ *Facts) { i.Nodes[1].Ready = false }, target, "OCA-4502:warning"},
		"silent member":      {func(_ *Inventory, f *Facts) { f.Etcd[0] = etcd.Observed{Name: "node1"} }, target, "OCA-4147:error"},
		"learner":            {func(_ *Inventory, f *Facts) { f.Etcd[0].Learner = true }, target, "OCA-4137:error"},
		"dead learner":       {func(_ *Inventory, f *Facts) { f.Etcd[0] = etcd.Observed{Learner: true} }, target, "OCA-4137:error"},
		"alarm":              {func(_ *Inventory, f *Facts) { f.Etcd[0].Alarms = []string{"NOSPACE"} }, target, "OCA-4147:error"},
		"no etcd":            {func(_ *Inventory, f *Facts) { f.EtcdProblem = "refused" }, target, "OCA-4147:error"},
		"no snapshot":        {func(_ *Inventory, f *Facts) { f.Snapshot = time.Time{} }, target, "OCA-4511:warning"},
		"old snapshot":       {func(_ *Inventory, f *Facts) { f.Snapshot = now.Add(-4 * time.Hour) }, target, "OCA-4511:warning"},
		"future snapshot":    {func(_ *Inventory, f *Facts) { f.Snapshot = now.Add(4 * time.Hour) }, target, "OCA-4511:warning"},
		"disk":               {func(_ *Inventory, f *Facts) { f.Free = 0 }, target, "OCA-4509:error"},
		"other kubelet":      {func(_ *Inventory, f *Facts) { f.ForeignKubelet = "/usr/bin/kubelet" }, target, "OCA-4513:error"},
		"expired":            {func(_ *Inventory, f *Facts) { f.Certificates = finding.New("OCA-4301", "x", "", "y") }, target, "OCA-4301:error"},
		"expires soon":       {func(_ *Inventory, f *Facts) { f.Certificates = finding.New("OCA-4401", "x", "", "y") }, target, "OCA-4401:warning"},
		"cut off here":       {func(i *Inventory, f *Facts) { f.CutOff, i.Nodes[0].Ready, i.Nodes[0].Here = true, false, true }, target, ""},
		"cut off elsewhere":  {func(i *Inventory, f *Facts) { f.CutOff, i.Nodes[0].Ready = true, false }, target, "OCA-4502:error"},
		"removed API":        {func(i *Inventory, _ *Facts) { i.Deprecated = []Deprecated{{"a/v1beta1 b", "1.36"}} }, target, "OCA-4510:error"},
		"later removed API":  {func(i *Inventory, _ *Facts) { i.Deprecated = []Deprecated{{"a/v1beta1 b", "1.37"}} }, target, "OCA-4510:warning"},
	} {
		i, f := well()
		c.change(&i, &f)
		var got []string
		for _, x := range Judge(i, Target{Version: c.to}, f, now) {
			got = append(got, x.Code+":"+string(x.Severity))
			if x.Remedy == "" {
				t.Errorf("%s: no remedy: %+v", name, x)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDeprecatedIn(t *testing.T) {
	got := deprecatedIn(`# HELP apiserver_requested_deprecated_apis x
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.37",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.37",resource="flowschemas",subresource="status",version="v1beta3"} 1
apiserver_requests{group="x",removed_release="1.37"} 1
`)
	if want := []Deprecated{{"flowcontrol.apiserver.k8s.io/v1beta3 flowschemas", "1.37"}}; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func machine(t *testing.T) *host.Host {
	t.Helper()
	c := config.Default()
	c.Node.Name = "node1"
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	return h
}

// The kubelet is kept unchanged and executable, and the new one does not replace a kept one.
func TestKeepKubelet(t *testing.T) {
	h := machine(t)
	put := func(name, text string) {
		file := h.Files.Path(name)
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)))
	}
	put(kubeletFile, "old")
	require.NoError(t, os.MkdirAll(h.Files.Path(kubernetes.UpgradeDir), 0o700))
	for _, text := range []string{"new", "newer"} {
		require.NoError(t, keepKubelet(h))
		put(kubeletFile, text)
	}
	if got := h.Files.Text(keptKubelet); got != "old" {
		t.Errorf("kept %q", got)
	}
	if st, err := h.Files.Stat(keptKubelet); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
}

// A worker that fails after the drain keeps its record and the previous kubelet, even if the next run fails earlier. One that fails at the start leaves nothing.
func TestWorkerGoesOn(t *testing.T) {
	h := machine(t)
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(h.Files.Path(kubeletFile)), 0o755), os.WriteFile(h.Files.Path(kubeletFile), []byte("old"), 0o755)))
	run := func(u *Upgrade, images error) error {
		steps := ControlPlaneSteps()
		at := slices.IndexFunc(steps, func(s Step) bool { return s.Name == "images" })
		steps[at] = Step{Name: "images", Short: "Import images", Run: func(context.Context, *Upgrade, workflow.Reporter) error { return images }}
		_, err := workflow.Runner[*Upgrade]{Plan: "upgrade node", Phases: steps}.Run(t.Context(), u, workflow.Options{OnFailure: u.OnFailure()})
		return err
	}
	first := func() *Upgrade { return &Upgrade{Host: h, Record: Record{From: old, To: target}} }
	noRuntime := errors.New("containerd does not answer")
	if err := run(first(), noRuntime); !errors.Is(err, noRuntime) {
		t.Fatal(err)
	}
	if r, err := Unfinished(h); r != nil || err != nil {
		t.Errorf("nothing was changed, and there is a record: %+v, %v", r, err)
	}
	u := first()
	require.NoError(t, run(u, nil))
	u.Record.Cordoned = true // the drain step; then the software is replaced, and containerd does not restart
	require.NoError(t, errors.Join(u.Record.save(h), os.WriteFile(h.Files.Path(kubeletFile), []byte("new"), 0o755)))
	again := &Upgrade{Host: h}
	require.NoError(t, Begin(t.Context(), again, old, target))
	if err := run(again, noRuntime); !errors.Is(err, noRuntime) {
		t.Fatal(err)
	}
	if r, err := Unfinished(h); err != nil || r == nil || !r.Cordoned || h.Files.Text(keptKubelet) != "old" {
		t.Errorf("record %+v, kept kubelet %q, %v", r, h.Files.Text(keptKubelet), err)
	}
}

func TestForeignKubelet(t *testing.T) {
	h := machine(t)
	for _, c := range []struct{ path, version, want string }{
		{"/usr/bin/kubelet", old, "/usr/bin/kubelet"}, {"/usr/bin/kubelet", target, ""}, {kubeletFile, old, ""},
	} {
		if c.path == kubeletFile {
			require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindFile, Name: c.path, Op: host.Created}))
		}
		h.Facts.Programs = map[string]host.Program{"kubelet": {Path: c.path, Version: c.version}}
		if got := foreignKubelet(h, target); got != c.want {
			t.Errorf("%s %s: %q", c.path, c.version, got)
		}
	}
}

// If a disruption budget blocks the drain, the upgrade continues without it: this machine will not be turned off.
func TestDrainBlocked(t *testing.T) {
	h := machine(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node1"}}
	k := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, pod).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return apierrors.NewTooManyRequests("a budget forbids it", 1)
		}}).Build()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := drainStep().Run(ctx, &Upgrade{Host: h, K: k, Drain: true, Record: Record{To: target}}, workflow.Discard{})
	f := finding.Of(err)
	if len(f) != 1 || f[0].Code != "OCA-4143" || !strings.Contains(f[0].Remedy, "without --drain") || strings.Contains(f[0].Remedy, "off") {
		t.Errorf("%v", err)
	}
}

// The snapshot from before an upgrade is not among those that are pruned every hour.
func TestSnapshotStays(t *testing.T) {
	lines, err := snapshotStep().Plan(t.Context(), nil)
	if err != nil || len(lines) != 1 {
		t.Fatal(lines, err)
	}
	dir := t.TempDir()
	kept := filepath.Join(dir, strings.TrimPrefix(lines[0], "save a snapshot of etcd in "), "etcd-20261101T000000Z-r1.db")
	files := []string{kept}
	for i := range 30 {
		files = append(files, filepath.Join(dir, etcdphase.Dir, fmt.Sprintf("etcd-202611%02dT000000Z-r%d.db", i+1, i+2)))
	}
	for _, f := range files {
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(f), 0o700), os.WriteFile(f, nil, 0o600)))
	}
	gone, err := etcdphase.DefaultKeep.Prune(filepath.Join(dir, etcdphase.Dir))
	if _, kerr := os.Stat(kept); err != nil || len(gone) == 0 || kerr != nil {
		t.Errorf("%d were pruned, %v, %v", len(gone), err, kerr)
	}
}

// A control-plane node with no work of its own must still upgrade the addons if the last node with the former version was replaced.
func TestDoneAddons(t *testing.T) {
	server := func(node, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + node, Labels: map[string]string{"component": "kube-apiserver"}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: "registry/kube-apiserver:" + version}}}}
	}
	proxy := func(version string) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: proxyName}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry/kube-proxy:" + version}}
		return d
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: target},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for name, c := range map[string]struct {
		has  []client.Object
		want bool
	}{
		"they have the version":     {[]client.Object{server("node1", target), proxy(target)}, true},
		"they are left":             {[]client.Object{server("node1", target), proxy(old)}, false},
		"they follow with another":  {[]client.Object{server("node1", target), server("node2", old), proxy(old)}, true},
		"another one serves (none)": {[]client.Object{server("node1", target)}, true},
	} {
		h := machine(t)
		for _, p := range kubernetes.StaticPods() {
			place(t, h, live, p, target)
		}
		k := fake.NewClientBuilder().WithObjects(append(c.has, node)...).Build()
		u := &Upgrade{Host: h, K: k, ControlPlane: true, Record: Record{To: target}}
		if got := u.Done(t.Context()); got != c.want {
			t.Errorf("%s: done %t", name, got)
		}
		if u.Record.Reconfigure = true; u.Done(t.Context()) {
			t.Errorf("%s: done, though it is to be configured again", name)
		}
	}
}

// After an interrupted exchange, etcd is queried through the cluster, not at this machine's member, which may need a rollback.
func TestMembersAfterCutOff(t *testing.T) {
	asked := errors.New("the cluster was asked")
	for name, c := range map[string]struct {
		record *Record
		live   string
		want   bool
	}{
		"no upgrade":              {nil, "1", false},
		"nothing was exchanged":   {&Record{From: old, To: target}, "1", false},
		"a newer one took over":   {&Record{From: old, To: target, Earlier: "v1.36.2"}, "1", false},
		"etcd was exchanged":      {&Record{From: old, To: target}, "2", true},
		"all was exchanged, well": {&Record{From: old, To: target, Committed: true}, "2", false},
	} {
		h := machine(t)
		h.Kube = func(context.Context) (client.WithWatch, error) { return nil, asked }
		if c.record != nil {
			require.NoError(t, c.record.save(h))
		}
		place(t, h, live, "etcd", c.live)
		file := live + "/etcd.yaml"
		text := strings.Replace(h.Files.Text(file), "name: etcd,", "name: etcd, command: [etcd, --name=node1, --data-dir=/x, \"--advertise-client-urls=https://127.0.0.1:1\", "+
			"\"--initial-advertise-peer-urls=https://127.0.0.1:2\"],", 1)
		was := strings.Replace(text, "etcd:"+c.live, "etcd:1", 1)
		require.NoError(t, errors.Join(h.Files.WriteFile(file, []byte(text), 0o600), h.Files.WriteFile(before+"/etcd.yaml", []byte(was), 0o600)))
		if _, err := members(t.Context(), h); err == nil || errors.Is(err, asked) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := []etcd.Observed{{Name: "node1"}, {Name: "node2", Answers: true}}
	if left := without(all, "node1"); len(left) != 1 || left[0].Name != "node2" {
		t.Errorf("%+v", left)
	}
}

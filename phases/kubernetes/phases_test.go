// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestConfigPhaseIsIdempotentAndSecret(t *testing.T) {
	h := fakeHost(t, nil)
	h.Config.Cluster.Token = "abcdef.0123456789abcdef"
	p := InitPhases(Order{})[0]
	for range 2 {
		require.NoError(t, p.Run(t.Context(), h, &reporter{}))
		if done, err := p.Check(t.Context(), h); !done || err != nil {
			t.Fatalf("done %t, %v", done, err)
		}
	}
	st, err := h.Files.Stat(ConfigFile)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", ConfigFile, st.Mode(), err)
	}
	h.Config.Cluster.ServiceCIDR = "10.112.0.0/12"
	if done, _ := p.Check(t.Context(), h); done {
		t.Error("another configuration counts as written")
	}
}

// Every kubeadm phase runs this program as kubeadm with our file, and without a secret in its arguments.
func TestPhasesRunKubeadm(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	h.Config.Cluster.Token = "abcdef.0123456789abcdef"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name}}
	c := fake.NewClientBuilder().WithObjects(node).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	for _, p := range flat("", InitPhases(Order{})) {
		if strings.HasPrefix(p.Name, "wait-control-plane/") || p.Name == "kubeadm-config" {
			continue
		}
		rec.Reset()
		if err := p.Run(t.Context(), h, &reporter{}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		calls := rec.Calls()
		want := "/usr/local/bin/ocadm kubeadm init phase " + strings.ReplaceAll(p.Name, "/", " ")
		if len(calls) != 1 || !strings.HasPrefix(calls[0], want) || !strings.HasSuffix(calls[0], "--config "+ConfigFile) || strings.Contains(calls[0], "abcdef") {
			t.Errorf("%s runs %q", p.Name, calls)
		}
		if p.Plan == nil || p.Check == nil {
			t.Errorf("%s cannot check or plan", p.Name)
		}
	}
}

// A proxy's password would end up in every pod that kubeadm makes.
func TestKubeadmGetsNoProxy(t *testing.T) {
	var env []string
	h := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		env = append([]string{"HTTPS_PROXY=http://u:canary@p", "http_proxy=http://p"}, c.Env...)
		return exec.Result{}, nil
	}})
	require.NoError(t, kubeadm(t.Context(), h, &reporter{}, "init"))
	last := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		last[name] = value
	}
	if len(last) == 0 || last["HTTPS_PROXY"] != "" || last["http_proxy"] != "" {
		t.Errorf("kubeadm runs with %v", last)
	}
}

// A kubeadm request that the API server did not answer in time does not fail a join. Any other error does.
func TestKubeadmRunsAgain(t *testing.T) {
	const slow = "error: execution phase certs: Get \"https://10.0.0.1:6443/api/v1\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)\n"
	for name, c := range map[string]struct {
		outputs []string
		runs    int
		fails   bool
	}{
		"slow once":   {[]string{slow, ""}, 2, false},
		"slow":        {[]string{slow, slow, slow}, 3, true},
		"other error": {[]string{slow + "error: the file exists\n"}, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			rec := &host.Recorder{}
			rec.Answer = func(exec.Command) (exec.Result, error) {
				out := c.outputs[len(rec.Calls())-1]
				if out == "" {
					return exec.Result{}, nil
				}
				return exec.Result{ExitCode: 1}, &exec.Error{ExitCode: 1, Output: out, Err: errors.New("exit status 1")}
			}
			err := kubeadm(t.Context(), fakeHost(t, rec), &reporter{}, "join", "phase", "control-plane-prepare", "certs")
			if n := len(rec.Calls()); n != c.runs || (err != nil) != c.fails {
				t.Errorf("%s: it ran %d times: %v", name, n, err)
			}
		})
	}
}

func flat(parent string, phases []host.Phase) []host.Phase {
	var out []host.Phase
	for _, p := range phases {
		p.Name = strings.TrimPrefix(parent+"/"+p.Name, "/")
		if len(p.Phases) == 0 {
			out = append(out, p)
		}
		out = append(out, flat(p.Name, p.Phases)...)
	}
	return out
}

// Region finds the control plane by the label that kubeadm set before 1.24. If a cluster lacks it, the next init adds it.
func TestControlPlaneHasBothLabels(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	c := fake.NewClientBuilder().WithObjects(node).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	write(t, h, AdminKubeconfig, "")
	var mark host.Phase
	for _, p := range flat("", InitPhases(Order{})) {
		if p.Name == "mark-control-plane" {
			mark = p
		}
	}
	if done, err := mark.Check(t.Context(), h); done || err != nil {
		t.Fatalf("without the older label: done %v, %v", done, err)
	}
	require.NoError(t, mark.Run(t.Context(), h, &reporter{}))
	var got corev1.Node
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), &got))
	if v, there := got.Labels["node-role.kubernetes.io/master"]; !there || v != "" {
		t.Errorf("the node has the labels %v", got.Labels)
	}
	if done, err := mark.Check(t.Context(), h); !done || err != nil {
		t.Errorf("with both labels: done %v, %v", done, err)
	}
}

// On a fresh machine nothing is done yet, nothing fails, and checks change nothing.
func TestChecksOnAFreshMachine(t *testing.T) {
	rec := &host.Recorder{Answer: func(exec.Command) (exec.Result, error) { return exec.Result{ExitCode: 1}, errors.New("nothing there") }}
	h := fakeHost(t, rec)
	for name, plan := range map[string][]host.Phase{"init": InitPhases(Order{}), "join": JoinPhases()} {
		for _, p := range flat("", plan) {
			if p.Check == nil || strings.HasPrefix(p.Name, "wait-control-plane/") {
				continue
			}
			if done, err := p.Check(t.Context(), h); done || err != nil {
				t.Errorf("%s %s: done %t, %v", name, p.Name, done, err)
			}
			if p.Plan != nil {
				if _, err := p.Plan(t.Context(), h); err != nil {
					t.Errorf("%s %s: planning: %v", name, p.Name, err)
				}
			}
		}
	}
	if found := h.Files.Glob("/*"); len(found) != 0 {
		t.Errorf("looking made %v", found)
	}
}

func TestManifestWhole(t *testing.T) {
	const good = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: x\n"
	for name, tt := range map[string]struct {
		text  string
		whole bool
	}{"good": {good, true}, "cut off": {good[:30], false}, "empty": {"", false}} {
		h := fakeHost(t, nil)
		write(t, h, manifest("kube-scheduler"), tt.text)
		if whole, err := manifestComplete(h, "kube-scheduler"); whole != tt.whole || err != nil {
			t.Errorf("%s: whole %t, %v", name, whole, err)
		}
	}
}

func TestAwaitFailsEarlyWithTheCause(t *testing.T) {
	rec := &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		switch c.Path {
		case "journalctl":
			return exec.Result{Stdout: "I1 flags\nE1121 err=\"kubelet is configured to not run on a host using cgroup v1\"\n"}, nil
		case "systemctl":
			return exec.Result{Stdout: "NRestarts=9\nLoadState=loaded\n"}, nil
		}
		return exec.Result{}, nil
	}}
	h := fakeHost(t, rec)
	never := func(context.Context, *host.Host) string { return "it refuses connections" }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := await(ctx, h, &reporter{}, "kubelet", never, nil, diagnoseKubelet)
	l := finding.Of(err)
	if len(l) != 1 || l[0].Code != "OCA-3011" || !errors.Is(err, context.DeadlineExceeded) || len(l[0].Evidence) != 2 {
		t.Errorf("got %+v", l)
	}
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	if err := await(interrupted, h, &reporter{}, "kubelet", never, nil, diagnoseKubelet); !errors.Is(err, context.Canceled) || finding.Of(err) != nil {
		t.Errorf("interrupted: %v", err)
	}
	if !hopelessKubelet(t.Context(), h) {
		t.Error("a kubelet that was restarted nine times has hope")
	}
}

// A joined node becomes a compute node through the same join with --enable-host-agent. kubeadm would refuse to start the kubelet of a Node that is already
// Ready.
func TestComputeNodeNeedsNoSecondStart(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	h.Config.Join.Endpoint = "10.0.0.1:6443"
	for _, f := range []string{KubeletConfigFile, KubeletFlagsFile, bootstrapConf} {
		write(t, h, f, "x")
	}
	plan := JoinPhases()
	start := plan[slices.IndexFunc(plan, func(p host.Phase) bool { return p.Name == "kubelet-start" })]
	done := func() bool {
		t.Helper()
		is, err := start.Check(t.Context(), h)
		require.NoError(t, err)
		return is
	}
	if done() {
		t.Error("done before it ran")
	}
	if err := start.Run(t.Context(), h, &reporter{}); err != nil || !done() {
		t.Fatalf("not done: %v", err)
	}
	if h.Config.Node.EnableHostAgent = true; !done() {
		t.Error("a compute node starts its kubelet again")
	}
	former, err := digestAs(h, Worker, true)
	require.NoError(t, err)
	require.NoError(t, h.Ledger.Replace(host.Entry{Kind: host.KindPhase, Name: "kubeadm join phase kubelet-start", Op: host.Found, Detail: former}))
	if !done() {
		t.Error("a compute node of an earlier release starts its kubelet again")
	}
	if h.Config.Node.IP = "10.0.0.77"; done() {
		t.Error("another address counts as done")
	}
}

// An administrator's patch is an input of the static pod that it changes, and of no other phase.
func TestPatchOfAStaticPodIsAnInput(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	component := func(name string) host.Phase {
		return staticPod(name, "", "kube-"+name, "init", "phase", "control-plane", name)
	}
	start := kubeadmPhase{name: "kubelet-start", args: []string{"init", "phase", "kubelet-start"}, check: filesThere()}.phase()
	done := func() (out []string) {
		for _, p := range []host.Phase{component("apiserver"), component("scheduler"), start} {
			is, err := p.Check(t.Context(), h)
			require.NoError(t, err)
			if is {
				out = append(out, p.Name)
			}
		}
		return out
	}
	for _, p := range []host.Phase{component("apiserver"), component("scheduler"), start} {
		require.NoError(t, p.Run(t.Context(), h, &reporter{}))
	}
	for _, name := range []string{"apiserver", "scheduler"} {
		write(t, h, manifest("kube-"+name), "spec:\n  containers:\n  - image: x\n")
	}
	if got := done(); len(got) != 3 {
		t.Fatalf("done: %q", got)
	}
	const patch = PatchesDir + "/kube-apiserver+json.yaml"
	write(t, h, patch, "[]")
	others := []string{"scheduler", "kubelet-start"}
	if got := done(); !slices.Equal(got, others) {
		t.Errorf("with a new patch, done: %q", got)
	}
	require.NoError(t, component("apiserver").Run(t.Context(), h, &reporter{}))
	if got := done(); len(got) != 3 {
		t.Errorf("done again: %q", got)
	}
	require.NoError(t, h.Files.Replace(patch, []byte("- {}"), 0o600))
	if got := done(); !slices.Equal(got, others) {
		t.Errorf("with a changed patch, done: %q", got)
	}
	require.NoError(t, os.Remove(h.Files.Path(patch)))
	if got := done(); !slices.Equal(got, others) {
		t.Errorf("with the patch removed, done: %q", got)
	}
}

// A kubelet without an API server keeps a static pod after its manifest has changed. A pod that has not started yet needs nothing.
func TestPodsOlderThanTheirManifests(t *testing.T) {
	h := fakeHost(t, nil)
	h.Config.Node.Name = "node1"
	now := time.Now()
	var list []*cri.Container
	for name, ago := range map[string][]time.Duration{ // the manifest, and then the containers
		"etcd": {time.Hour, time.Minute}, "kube-apiserver": {time.Minute, time.Hour, 2 * time.Minute}, "kube-controller-manager": {time.Minute, time.Hour, time.Second},
		"kube-scheduler": {time.Minute},
	} {
		write(t, h, manifest(name), "x")
		require.NoError(t, os.Chtimes(h.Files.Path(manifest(name)), now, now.Add(-ago[0])))
		for _, created := range ago[1:] {
			list = append(list, &cri.Container{CreatedAt: now.Add(-created).UnixNano(), Labels: map[string]string{podNameLabel: name + "-node1"}})
		}
	}
	if got := olderThanManifests(h, list); !slices.Equal(got, []string{"kube-apiserver"}) {
		t.Errorf("stale: %q", got)
	}
}

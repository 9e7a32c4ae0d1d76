// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

func TestConfigPhaseIsIdempotentAndSecret(t *testing.T) {
	h := fakeHost(t, nil)
	h.Config.Cluster.Token = "abcdef.0123456789abcdef"
	p := InitPhases(Order{})[0]
	for range 2 {
		if err := p.Run(t.Context(), h, &reporter{}); err != nil {
			t.Fatal(err)
		}
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

// Every phase of kubeadm's runs this program as kubeadm with our file, and with no secret in its arguments.
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

// A proxy's password would be in every pod that kubeadm makes.
func TestKubeadmGetsNoProxy(t *testing.T) {
	var env []string
	h := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		env = append([]string{"HTTPS_PROXY=http://u:canary@p", "http_proxy=http://p"}, c.Env...)
		return exec.Result{}, nil
	}})
	if err := kubeadm(t.Context(), h, &reporter{}, "init"); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		last[name] = value
	}
	if len(last) == 0 || last["HTTPS_PROXY"] != "" || last["http_proxy"] != "" {
		t.Errorf("kubeadm runs with %v", last)
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

// Region finds the control plane by the label that kubeadm gave it before 1.24. A cluster without it gets it when init runs again.
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
	if err := mark.Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &got); err != nil {
		t.Fatal(err)
	}
	if v, there := got.Labels["node-role.kubernetes.io/master"]; !there || v != "" {
		t.Errorf("the node has the labels %v", got.Labels)
	}
	if done, err := mark.Check(t.Context(), h); !done || err != nil {
		t.Errorf("with both labels: done %v, %v", done, err)
	}
}

// On a fresh machine nothing is done yet, nothing fails, and looking changes nothing.
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
	if found, _ := h.Files.Glob("/*"); len(found) != 0 {
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
		if whole, err := manifestWhole(h, "kube-scheduler"); whole != tt.whole || err != nil {
			t.Errorf("%s: whole %t, %v", name, whole, err)
		}
	}
}

func TestAwaitGivesUpEarlyAndExplains(t *testing.T) {
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

func TestResetWorksWithoutAnAPIServer(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
	if err := InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{AdminKubeconfig, manifest("etcd"), pkiDir + "/etcd/ca.crt", etcdDir + "/member/wal", KubeletConfigFile} {
		write(t, h, f, "x")
	}
	stays := []string{kubernetesDir + "/somebody-elses.txt", kubernetesDir + "/other.conf", etcdDir + "/default/member", kubeletDir + "/config.json"}
	for _, f := range stays {
		write(t, h, f, "x")
	}
	moved := []string{AdminKubeconfig, manifest("etcd"), pkiDir + "/etcd/ca.crt", KubeletConfigFile}
	for _, f := range moved { // a move has changed what kubeadm made
		if err := h.Files.WriteFile(f, []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range ResetPhases() {
		if p.Skip != nil && p.Skip(h) != "" {
			continue
		}
		if err := p.Run(t.Context(), h, &reporter{}); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if p.Verify != nil {
			if err := p.Verify(t.Context(), h); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
	if left, _ := residue(h); len(left) != 0 || h.Ledger.Has(host.KindFile, ConfigFile) {
		t.Errorf("left %v", left)
	}
	for _, f := range moved {
		if h.Files.Exists(f) || h.Ledger.Has(host.KindFile, f) {
			t.Errorf("%s is left, or would be restored", f)
		}
	}
	for _, f := range stays {
		if !h.Files.Exists(f) {
			t.Errorf("%s is gone", f)
		}
	}
	if calls := strings.Join(rec.Calls(), "\n"); strings.Contains(calls, "remove-etcd-member") {
		t.Errorf("a last member was removed:\n%s", calls)
	}
}

// A node that ocadm did not make is not touched: its kubelet runs on, its Node stays, nothing is asked of any program.
func TestResetLeavesTheNodeOfOthers(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	for _, f := range []string{AdminKubeconfig, KubeletKubeconfig, manifest("etcd"), etcdDir + "/member/wal", KubeletConfigFile} {
		write(t, h, f, "x")
	}
	for _, p := range ResetPhases() {
		if why := p.Skip(h); why == "" {
			t.Errorf("%s is not skipped", p.Name)
		}
	}
	if err := undoInit(t.Context(), h, &reporter{}); err != nil {
		t.Error(err)
	}
	if !h.Files.Exists(etcdDir+"/member/wal") || len(rec.Calls()) > 0 {
		t.Errorf("ran %q", rec.Calls())
	}
}

// A kubelet that runs on mounts volumes below what reset removes.
func TestResetNeedsAStoppedKubelet(t *testing.T) {
	h := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if slices.Equal(c.Args, []string{"stop", "kubelet"}) {
			return exec.Result{ExitCode: 1}, errors.New("connection timed out")
		}
		return exec.Result{}, nil
	}})
	if err := InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	data := kubeletDir + "/pods/1/volumes/v/data"
	write(t, h, data, "x")
	if err := cleanupNode(t.Context(), h, &reporter{}); err == nil || !h.Files.Exists(data) {
		t.Errorf("removed: %v", err)
	}
	// An interrupt ends both the stop and the question whether it runs.
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if slices.Contains(c.Args, "kubelet") {
			cancel()
			return exec.Result{ExitCode: -1}, ctx.Err()
		}
		return exec.Result{}, nil
	}})
	if err := InitPhases(Order{})[0].Run(t.Context(), interrupted, &reporter{}); err != nil {
		t.Fatal(err)
	}
	write(t, interrupted, data, "x")
	if err := cleanupNode(ctx, interrupted, &reporter{}); err == nil || !interrupted.Files.Exists(data) {
		t.Errorf("removed after an interrupt: %v", err)
	}
}

// A pod that is killed leaves the volume of images mounted on its node: reset would not end while it is there.
func TestResetUnmountsTheVolumeOfImages(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	if err := InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	if err := cleanupNode(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	write(t, h, "/proc/self/mountinfo", "62 1 8:1 /opt/local-path-provisioner/pvc-1_onecloud_default-glance "+owned.ImagesDir+" rw shared:1 - ext4 /dev/sda1 rw\n")
	// A directory that stands for a machine cannot unmount anything, and says so.
	if err := cleanupNode(t.Context(), h, &reporter{}); err == nil || !strings.Contains(err.Error(), "unmounting "+owned.ImagesDir) {
		t.Errorf("not unmounted: %v", err)
	}
}

// A member that is left in etcd is a voter that is gone. Where the cluster does not answer, or nobody left an administrator's kubeconfig here, the member of this
// machine is asked.
func TestResetAsksItsOwnMember(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	if err := InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	member := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Command: []string{
		"etcd", "--name=n1", "--initial-advertise-peer-urls=https://10.0.0.1:2380", "--advertise-client-urls=https://" + l.Addr().String(), "--data-dir=" + etcdDir,
	}}}}}
	raw, err := yaml.Marshal(member)
	if err != nil {
		t.Fatal(err)
	}
	ca := issue(t, nil, time.Now().Add(time.Hour), "etcd-ca")
	own := issue(t, &ca, time.Now().Add(time.Hour), "healthcheck-client")
	write(t, h, pkiDir+"/etcd/ca.crt", ca.pem)
	write(t, h, etcdClientCert+".crt", own.pem)
	write(t, h, etcdClientCert+".key", own.keyPEM(t))
	leave := removeEtcdMemberPhase()
	if leave.Skip(h) == "" {
		t.Error("a machine that has only its certificates asks for its member")
	}
	write(t, h, manifest("etcd"), string(raw))
	if why := leave.Skip(h); why != "" {
		t.Errorf("skipped: %s", why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan bool, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		asked <- err == nil
		cancel() // this is no etcd
	}()
	if err := leave.Run(ctx, h, &reporter{}); err != nil {
		t.Error(err)
	}
	_ = l.Close() // ends the other goroutine, too
	if !<-asked {
		t.Error("the member of this machine was not asked")
	}
}

// A join of a control-plane node is not rolled back while the cluster would keep its member of etcd: of two voters, one alone is no majority.
func TestRollbackKeepsAMember(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	h.Config.Join.ControlPlane = true
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
	plan := InitPhases(Order{})
	if err := plan[0].Run(t.Context(), h, &reporter{}); err != nil {
		t.Fatal(err)
	}
	data := etcdDir + "/member/wal"
	for _, f := range []string{AdminKubeconfig, etcdClientCert + ".crt", manifest("etcd"), data} {
		write(t, h, f, "x")
	}
	if found := finding.Of(plan[0].Undo(t.Context(), h, &reporter{})); len(found) != 1 || found[0].Code != "OCA-4154" || !h.Files.Exists(data) {
		t.Errorf("%+v", found)
	}
	if err := h.Files.Remove(etcdClientCert + ".crt"); err != nil { // it has not come so far
		t.Fatal(err)
	}
	if err := plan[0].Undo(t.Context(), h, &reporter{}); err != nil || h.Files.Exists(manifest("etcd")) {
		t.Errorf("%v", err)
	}
}

// runtimeOfPods is a container runtime that has two pods, one of them with keepalived; the first stop of one of them fails.
type runtimeOfPods struct {
	cri.UnimplementedRuntimeServiceServer
	mu    sync.Mutex
	pods  []string
	stops int
	// ended is whether keepalived was asked to end, killed whether it ran when a pod was stopped.
	ended, killed bool
}

func (r *runtimeOfPods) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "k", Labels: map[string]string{containerNameLabel: "keepalived"}}}}, nil
}

func (r *runtimeOfPods) StopContainer(_ context.Context, in *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = in.GetContainerId() == "k" && in.GetTimeout() > 0
	return &cri.StopContainerResponse{}, nil
}

func (r *runtimeOfPods) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &cri.ListPodSandboxResponse{}
	for _, p := range r.pods {
		out.Items = append(out.Items, &cri.PodSandbox{Id: p})
	}
	return out, nil
}

func (r *runtimeOfPods) StopPodSandbox(context.Context, *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = r.killed || !r.ended
	if r.stops++; r.stops == 1 {
		return nil, errors.New("still busy")
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *runtimeOfPods) RemovePodSandbox(_ context.Context, in *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = slices.DeleteFunc(r.pods, func(p string) bool { return p == in.PodSandboxId })
	return &cri.RemovePodSandboxResponse{}, nil
}

func TestRemovePods(t *testing.T) {
	h := fakeHost(t, nil)
	root, err := os.MkdirTemp("", "cri") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h.Files.Root = root
	if err := removePods(t.Context(), h, &reporter{}); err != nil {
		t.Errorf("without a runtime: %v", err)
	}
	socket := h.Files.Path("/run/containerd/containerd.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	rt := &runtimeOfPods{pods: []string{"a", "b"}}
	srv := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(srv, rt)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	r := &reporter{}
	if err := removePods(t.Context(), h, r); err != nil {
		t.Fatal(err)
	}
	if len(rt.pods) > 0 || len(r.changed) != 1 {
		t.Errorf("pods left %q, said %q", rt.pods, r.changed)
	}
	if rt.killed {
		t.Error("keepalived was killed, and leaves its address")
	}
}

// A node that has joined becomes a compute node by the same join with --enable-host-agent. kubeadm would refuse to start the kubelet of a Node that is
// Ready once more.
func TestComputeNodeNeedsNoSecondStart(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	h.Config.Join.Endpoint = "10.0.0.1:6443"
	for _, f := range []string{KubeletConfigFile, kubeletFlagsFile, bootstrapConf} {
		write(t, h, f, "x")
	}
	plan := JoinPhases()
	start := plan[slices.IndexFunc(plan, func(p host.Phase) bool { return p.Name == "kubelet-start" })]
	done := func() bool {
		t.Helper()
		is, err := start.Check(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
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
	former, err := digestOf(h.Config, Worker)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ledger.Replace(host.Entry{Kind: host.KindPhase, Name: "kubeadm join phase kubelet-start", Op: host.Found, Detail: former}); err != nil {
		t.Fatal(err)
	}
	if !done() {
		t.Error("a compute node of an earlier release starts its kubelet again")
	}
	if h.Config.Node.IP = "10.0.0.77"; done() {
		t.Error("another address counts as done")
	}
}

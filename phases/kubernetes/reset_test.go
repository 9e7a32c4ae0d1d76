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
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
	"yunion.io/x/ocadm/test/require"
)

func TestResetWorksWithoutAnAPIServer(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
	require.NoError(t, InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}))
	for _, f := range []string{AdminKubeconfig, manifest("etcd"), pkiDir + "/etcd/ca.crt", etcdDir + "/member/wal", KubeletConfigFile} {
		write(t, h, f, "x")
	}
	stays := []string{kubernetesDir + "/foreign.txt", kubernetesDir + "/other.conf", etcdDir + "/default/member", kubeletDir + "/config.json"}
	for _, f := range stays {
		write(t, h, f, "x")
	}
	moved := []string{AdminKubeconfig, manifest("etcd"), pkiDir + "/etcd/ca.crt", KubeletConfigFile}
	for _, f := range moved { // an address change has modified kubeadm's file
		require.NoError(t, h.Files.WriteFile(f, []byte("y"), 0o600))
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

// reset does not touch a node that ocadm did not make: its kubelet keeps running, its Node stays, and no program is run.
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

// A running kubelet would mount volumes below what reset removes.
func TestResetNeedsAStoppedKubelet(t *testing.T) {
	h := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if slices.Equal(c.Args, []string{"stop", "kubelet"}) {
			return exec.Result{ExitCode: 1}, errors.New("connection timed out")
		}
		return exec.Result{}, nil
	}})
	require.NoError(t, InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}))
	data := kubeletDir + "/pods/1/volumes/v/data"
	write(t, h, data, "x")
	if err := cleanupNode(t.Context(), h, &reporter{}); err == nil || !h.Files.Exists(data) {
		t.Errorf("removed: %v", err)
	}
	// An interrupt ends both the stop and the check whether it still runs.
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := fakeHost(t, &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if slices.Contains(c.Args, "kubelet") {
			cancel()
			return exec.Result{ExitCode: -1}, ctx.Err()
		}
		return exec.Result{}, nil
	}})
	require.NoError(t, InitPhases(Order{})[0].Run(t.Context(), interrupted, &reporter{}))
	write(t, interrupted, data, "x")
	if err := cleanupNode(ctx, interrupted, &reporter{}); err == nil || !interrupted.Files.Exists(data) {
		t.Errorf("removed after an interrupt: %v", err)
	}
}

// A killed pod leaves the image volume mounted on its node: reset could not finish with it.
func TestResetUnmountsTheVolumeOfImages(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	require.NoError(t, InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}))
	require.NoError(t, cleanupNode(t.Context(), h, &reporter{}))
	write(t, h, "/proc/self/mountinfo", "62 1 8:1 /opt/local-path-provisioner/pvc-1_onecloud_default-glance "+owned.ImagesDir+" rw shared:1 - ext4 /dev/sda1 rw\n")
	// In a test's directory nothing can be unmounted, which is an error.
	if err := cleanupNode(t.Context(), h, &reporter{}); err == nil || !strings.Contains(err.Error(), "unmounting "+owned.ImagesDir) {
		t.Errorf("not unmounted: %v", err)
	}
}

// A member left in etcd is a lost voter. If the cluster does not answer, or this machine has no administrator's kubeconfig, its own member is used.
func TestResetQueriesItsOwnMember(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	require.NoError(t, InitPhases(Order{})[0].Run(t.Context(), h, &reporter{}))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	member := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Command: []string{
		"etcd", "--name=n1", "--initial-advertise-peer-urls=https://10.0.0.1:2380", "--advertise-client-urls=https://" + l.Addr().String(), "--data-dir=" + etcdDir,
	}}}}}
	raw, err := yaml.Marshal(member)
	require.NoError(t, err)
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
		cancel() // this is not an etcd
	}()
	if err := leave.Run(ctx, h, &reporter{}); err != nil {
		t.Error(err)
	}
	_ = l.Close() // ends the other goroutine too
	if !<-asked {
		t.Error("the member of this machine was not asked")
	}
}

// A control-plane join is not rolled back while the cluster would keep its etcd member: one of two voters alone has no majority.
func TestRollbackKeepsAMember(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	h.Config.Join.ControlPlane = true
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
	plan := InitPhases(Order{})
	require.NoError(t, plan[0].Run(t.Context(), h, &reporter{}))
	data := etcdDir + "/member/wal"
	for _, f := range []string{AdminKubeconfig, etcdClientCert + ".crt", manifest("etcd"), data} {
		write(t, h, f, "x")
	}
	if found := finding.Of(plan[0].Undo(t.Context(), h, &reporter{})); len(found) != 1 || found[0].Code != "OCA-4154" || !h.Files.Exists(data) {
		t.Errorf("%+v", found)
	}
	if err := h.Files.Remove(etcdClientCert + ".crt"); err != nil { // the join did not get that far
		t.Fatal(err)
	}
	if err := plan[0].Undo(t.Context(), h, &reporter{}); err != nil || h.Files.Exists(manifest("etcd")) {
		t.Errorf("%v", err)
	}
}

// runtimeOfPods is a container runtime with two pods, one of them with keepalived; the first stop of one of them fails.
type runtimeOfPods struct {
	cri.UnimplementedRuntimeServiceServer
	mu    sync.Mutex
	pods  []string
	stops int
	// ended is set if keepalived was asked to end, killed if it was running when a pod was stopped.
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

// hostForRuntime returns a host with a path that is short enough for a socket.
func hostForRuntime(t *testing.T) *host.Host {
	t.Helper()
	h := fakeHost(t, nil)
	root, err := os.MkdirTemp("", "cri")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h.Files.Root = root
	return h
}

func serveRuntime(t *testing.T, h *host.Host, rt cri.RuntimeServiceServer) {
	t.Helper()
	socket := h.Files.Path("/run/containerd/containerd.sock")
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o700))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(srv, rt)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
}

func TestRemovePods(t *testing.T) {
	h := hostForRuntime(t)
	if err := removePods(t.Context(), h, &reporter{}); err != nil {
		t.Errorf("without a runtime: %v", err)
	}
	rt := &runtimeOfPods{pods: []string{"a", "b"}}
	serveRuntime(t, h, rt)
	r := &reporter{}
	require.NoError(t, removePods(t.Context(), h, r))
	if len(rt.pods) > 0 || len(r.changed) != 1 {
		t.Errorf("pods left %q, said %q", rt.pods, r.changed)
	}
	if rt.killed {
		t.Error("keepalived was killed, and leaves its address")
	}
}

// runtimeOf is a container runtime with one container, of the scheduler.
type runtimeOf struct {
	cri.UnimplementedRuntimeServiceServer
	created time.Time
}

func (r *runtimeOf) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{
		Id: "s", CreatedAt: r.created.UnixNano(), Labels: map[string]string{containerNameLabel: "kube-scheduler", podNameLabel: "kube-scheduler-node1"},
	}}}, nil
}

// Neither a container that a clock has dated ahead counts as started after its files, nor a file that it has dated ahead as newer than every container.
func TestContainersWhileAClockWasAhead(t *testing.T) {
	const file = "/etc/kubernetes/scheduler.conf"
	h := hostForRuntime(t)
	h.Config.Node.Name = "node1"
	rt := &runtimeOf{}
	serveRuntime(t, h, rt)
	write(t, h, file, "x")
	write(t, h, manifest("kube-scheduler"), "x")
	for _, c := range []struct {
		created, written    time.Duration // ago
		takenUp, sinceWrite bool
	}{{2 * time.Minute, 3 * time.Minute, true, true}, {3 * time.Minute, 2 * time.Minute, false, false}, {-time.Hour, 2 * time.Minute, false, true}, {time.Minute, -time.Hour, false, true}} {
		rt.created = time.Now().Add(-c.created)
		for _, f := range []string{file, manifest("kube-scheduler")} {
			at := time.Now().Add(-c.written)
			require.NoError(t, os.Chtimes(h.Files.Path(f), at, at))
		}
		taken, err := TakenUp(t.Context(), h, "kube-scheduler", file)
		require.NoError(t, err)
		stale, err := StaleContainers(t.Context(), h, "kube-scheduler", file)
		require.NoError(t, err)
		why := newerThanManifest(t.Context(), h, "kube-scheduler")
		if taken != c.takenUp || (len(stale) == 0) != c.takenUp || (why == "") != c.sinceWrite {
			t.Errorf("created %s ago, files written %s ago: taken up %t, stale %q, %q", c.created, c.written, taken, stale, why)
		}
	}
}

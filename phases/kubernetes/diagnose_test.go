// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

func TestSignatures(t *testing.T) {
	tests := map[string]struct {
		of           []signature
		line         string
		code, remedy string
	}{
		"cgroup v1": {kubeletSignatures(), `E1121 run.go:72] "command failed" err="failed to validate kubelet configuration, error: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported"`,
			"OCA-3011", "--allow-cgroup-v1"},
		"swap":        {kubeletSignatures(), `failed to run Kubelet: running with swap on is not supported, please disable swap or set --fail-swap-on flag to false`, "OCA-3012", "swapoff -a"},
		"no runtime":  {kubeletSignatures(), `validate service connection: validate CRI v1 runtime API for endpoint "unix:///run/containerd/containerd.sock": rpc error`, "OCA-3013", "systemctl status containerd"},
		"no unit":     {kubeletSignatures(), `kubelet.service: LoadState=not-found ActiveState=inactive`, "OCA-3014", "ocadm init"},
		"kmsg":        {kubeletSignatures(), `open /dev/kmsg: no such file or directory`, "OCA-3016", "mknod"},
		"port":        {podSignatures(), `kube-apiserver: failed to create listener: failed to listen on 0.0.0.0:6443: listen tcp 0.0.0.0:6443: bind: address already in use`, "OCA-4011", "sport = :6443"},
		"etcd's port": {podSignatures(), `etcd: {"level":"fatal","msg":"discovery failed","error":"listen tcp 127.0.0.1:2379: bind: address already in use"}`, "OCA-4011", "sport = :2379"},
		"image": {podSignatures(), `E1121 09:16:33.682439    1992 pod_workers.go:1338] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"etcd\" with ImagePullBackOff: \"Back-off pulling image \\\"registry.k8s.io/etcd:3.6.8-0\\\": ErrImagePull: failed to pull and unpack image \\\"registry.k8s.io/etcd:3.6.8-0\\\"`,
			"OCA-4012", "images pull registry.k8s.io/etcd:3.6.8-0"},
		"disk full": {podSignatures(), `etcd: panic: write /var/lib/etcd/member/wal/0.tmp: no space left on device`, "OCA-4013", "df -h"},
		"old etcd":  {podSignatures(), `etcd: request cluster ID mismatch (got 1 want 2)`, "OCA-4014", "ocadm reset"},
		"clock":     {podSignatures(), `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time is before`, "OCA-4015", "timedatectl"},
		"token": {kubeadmSignatures(), `couldn't validate the identity of the API Server: token id "abcdef" is invalid for this cluster or it has expired. Use "kubeadm token create"`,
			"OCA-4102", "ocadm token create"},
		"runtime": {podSignatures(), clip(`E1122 pod_workers.go:1338] "Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for \"etcd\": rpc error: code = Unknown desc = failed to start sandbox \"` +
			strings.Repeat("0", 700) + `\": failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: unable to init seccomp`),
			"OCA-4017", "journalctl -u containerd"},
		"encrypted": {podSignatures(), `kube-apiserver: E1130 cacher.go:500] cacher (secrets): unexpected ListAndWatch error: failed to list *core.Secret: unable to transform key "/registry/secrets/default/probe": identity transformer tried to read encrypted data; reinitializing...`,
			"OCA-4019", PatchesDir},
		"unknown": {podSignatures(), "it just did not work", "OCA-0000", "generic"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := explain(tt.of, finding.Finding{Code: "OCA-0000", Remedy: "generic", Evidence: []string{"something else", tt.line}})
			if got.Code != tt.code || !strings.Contains(got.Remedy, tt.remedy) {
				t.Errorf("explained as %s with %q", got.Code, got.Remedy)
			}
			if name == "runtime" && got.Cause != "the runtime cannot start containers: unable to start container process: unable to init seccomp" {
				t.Errorf("the cause is %q", got.Cause)
			}
			if strings.Contains(got.Cause+got.Remedy, "%") {
				t.Errorf("a placeholder is left: %q %q", got.Cause, got.Remedy)
			}
		})
	}
}

func TestKubeadmFailed(t *testing.T) {
	err := kubeadmFailed(t.Context(), []string{"init", "phase", "certs", "ca", "--config", "/etc/ocadm/kubeadm.yaml"},
		&exec.Error{Argv: []string{"ocadm"}, ExitCode: 1, Output: "[certs] working\nerror: disk on fire\nTo see the stack trace of this error execute with --v=5 or higher\n", Err: errors.New("exit status 1")})
	f := finding.Of(err)
	if len(f) != 1 || f[0].What != "kubeadm init phase certs ca failed" || f[0].Cause != "disk on fire" || f[0].ExitCode() != 40 {
		t.Errorf("got %+v", f)
	}
}

func TestPodEvidenceIsTheNewestLog(t *testing.T) {
	h := fakeHost(t, nil)
	dir := podLogsDir + "/kube-system_etcd-node-1_0123/etcd/"
	write(t, h, dir+"9.log", "2026-01-01T00:00:00Z stderr F old\n")
	write(t, h, dir+"10.log", "2026-01-01T00:00:00Z stderr F first\n2026-01-01T00:00:01Z stderr F last\n")
	if d := cmp.Diff([]string{"etcd: first", "etcd: last"}, podEvidence(h, "etcd")); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

func TestPodEvidenceEndsBeforeTheStackOfAPanic(t *testing.T) {
	h := fakeHost(t, nil)
	write(t, h, podLogsDir+"/kube-system_etcd-node-1_0123/etcd/0.log",
		"2026-01-01T00:00:00Z stderr F panic: no space left on device\n2026-01-01T00:00:01Z stderr F goroutine 1 [running]:\n2026-01-01T00:00:01Z stderr F main.main()\n")
	if d := cmp.Diff([]string{"etcd: panic: no space left on device"}, podEvidence(h, "etcd")); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

// A wait gives up when a container has restarted often enough. At that moment, the log of the last start may still be empty.
func TestPodEvidenceOfAContainerThatHasJustRestarted(t *testing.T) {
	h := fakeHost(t, nil)
	write(t, h, podLogsDir+"/kube-system_etcd-node-1_0123/etcd/4.log", "2026-01-01T00:00:00Z stderr F panic: no space left on device\n")
	write(t, h, podLogsDir+"/kube-system_etcd-node-1_0123/etcd/5.log", "")
	if d := cmp.Diff([]string{"etcd: panic: no space left on device"}, podEvidence(h, "etcd")); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

func TestPodEvidenceLeavesHelpOut(t *testing.T) {
	h := fakeHost(t, nil)
	write(t, h, podLogsDir+"/kube-system_etcd-node-1_0123/etcd/0.log", "2026-01-01T00:00:00Z stderr F Global flags:\n2026-01-01T00:00:00Z stderr F \n"+
		"2026-01-01T00:00:00Z stderr F   -v, --v Level                          number for the log level verbosity\n"+
		"2026-01-01T00:00:00Z stderr F       --vmodule pattern=N,...            comma-separated list\n2026-01-01T00:00:00Z stderr F Error: unknown flag: --x\n")
	if d := cmp.Diff([]string{"etcd: Error: unknown flag: --x"}, podEvidence(h, "etcd")); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

func TestHopelessNeedsRecentRestarts(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	log := func(n int) {
		write(t, h, fmt.Sprintf("%s/kube-system_etcd-node-1_0123/etcd/%d.log", podLogsDir, n), "2026-01-01T00:00:00Z stderr F x\n")
	}
	log(8)
	hopeless := hopelessAPIServer(h)
	if log(9); hopeless(t.Context(), h) {
		t.Error("one restart since the wait began is no reason to give up")
	}
	if log(8 + manyRestarts); !hopeless(t.Context(), h) {
		t.Error("a container that keeps dying is not given up")
	}
}

func TestDistinct(t *testing.T) {
	got := distinct([]string{
		`E1121 10:07:53.123256    6408 kubelet.go:3516] "same"`, `E1121 10:07:53.200000    6408 kubelet.go:1] "other"`, `E1121 10:07:54.223235    6408 kubelet.go:3516] "same"`,
	})
	want := []string{`E1121 10:07:53.200000    6408 kubelet.go:1] "other"`, `E1121 10:07:54.223235    6408 kubelet.go:3516] "same"`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

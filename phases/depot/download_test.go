// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

const joinToken = "abcdef.0123456789abcdef"

// serveDepot serves a machine's depot with its certificate, as the static pod does, and returns its address.
func serveDepot(t *testing.T, h *host.Host) string {
	t.Helper()
	require.NoError(t, certificatePhase().Run(t.Context(), h, workflow.Discard{}))
	store, err := Open(h)
	require.NoError(t, err)
	clients, err := depot.Authorities(h.Files.Path(authority))
	require.NoError(t, err)
	raw, err := depot.AuthorityPEM(h.Files.Path(authority))
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	shown := depot.CertificateFiles(h.Files.Path(CertificateFile), h.Files.Path(CertificateFile))
	go func() {
		ended <- depot.Listen(ctx, l, depot.ServerTLS(shown, clients), depot.Handler(store, &depot.Access{Tokens: depot.OneToken(joinToken), Authority: raw}))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// The command for machines without ocadm, run by a shell, downloads this program and runs it. A server with another CA gets no token, and its response is not run.
func TestDownloadCommand(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	h, _ := machine(t)
	cluster(t, h)
	const program = "#!/bin/sh\necho ran \"$@\"\n"
	put(t, h, h.Self, program)
	useBundle(t, h)
	run(t, h, "ocadm-", "bundle-")
	address := serveDepot(t, h)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: 127.0.0.1:6443\n"}}
	k := fake.NewClientBuilder().WithObjects(cm).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	line, err := kubernetes.DownloadCommand(t.Context(), h, joinToken, "ocadm join 10.0.0.1:6443 --offline")
	require.NoError(t, err)
	dir := t.TempDir()
	line = strings.ReplaceAll(strings.ReplaceAll(line, "127.0.0.1:6444", address), " /usr/local/bin/ocadm", " "+dir+"/ocadm")
	shell := func(line string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, "sh", "-c", line)
		c.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := shell(line)
	if err != nil || !strings.Contains(out, "ran join 10.0.0.1:6443 --offline") {
		t.Fatalf("%s\n%s\n%v", line, out, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "ocadm"))
	if err != nil || string(got) != program {
		t.Errorf("%q, %v", got, err)
	}
	// Another token is refused, and so is another server: first one with its own CA, then one that serves the cluster's CA but has a certificate of another.
	if out, err := shell(strings.ReplaceAll(line, joinToken, "abcdef.ffffffffffffffff")); err == nil || strings.Contains(out, "ran") {
		t.Errorf("with a wrong token: %s", out)
	}
	other, _ := machine(t)
	cluster(t, other)
	useBundle(t, other)
	run(t, other, "ocadm-", "bundle-")
	if out, err := shell(strings.ReplaceAll(line, address, serveDepot(t, other))); err == nil || strings.Contains(out, "ran") || !strings.Contains(out, "FAILED") {
		t.Errorf("with another authority: %s", out)
	}
	put(t, h, CertificateFile, other.Files.Text(CertificateFile))
	if out, err := shell(line); err == nil || strings.Contains(out, "ran") || strings.Contains(out, "FAILED") {
		t.Errorf("with a certificate of another authority: %s", out)
	}
}

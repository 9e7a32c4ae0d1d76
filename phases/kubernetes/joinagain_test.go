// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// A worker that was off when its kubelet's certificate expired joins again with the same command and a new token, without a reset. Each phase about the
// certificate runs, and the node's settings stay. The kubelet sees that its certificate has expired and requests one with the token. Source: kubelet,
// pkg/kubelet/certificate/bootstrap, LoadClientConfig.
func TestJoinAgainAfterExpiry(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	later := time.Now().Add(24 * time.Hour)
	ca := issue(t, nil, later)
	ended, renewed := issue(t, &ca, time.Now().Add(-time.Hour)), issue(t, &ca, later)
	h.Config.Join.Endpoint, h.Config.Join.CACertHashes = "10.0.0.1:6443", []string{Pin(ca.cert)}
	write(t, h, pkiDir+"/ca.crt", ca.pem)
	write(t, h, KubeletConfigFile, "x")
	write(t, h, KubeletFlagsFile, "x")
	write(t, h, kubeletClientPEM, ended.pem+ended.keyPEM(t))
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"https://10.0.0.1:6443","certificate-authority-data":%q}}],"users":[{"name":"u","user":{"client-certificate":%q,"client-key":%q}}]}`,
		base64.StdEncoding.EncodeToString([]byte(ca.pem)), kubeletClientPEM, kubeletClientPEM)
	write(t, h, KubeletKubeconfig, kubeconfig)
	plan := JoinPhases()
	phase := func(name string) host.Phase {
		return plan[slices.IndexFunc(plan, func(p host.Phase) bool { return p.Name == name })]
	}
	done := func(name string) bool {
		t.Helper()
		is, err := phase(name).Check(t.Context(), h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return is
	}
	if err := noteFinished(h, "kubeadm join phase kubelet-start", Worker); err != nil { // by the first join
		t.Fatal(err)
	}
	for _, name := range []string{"discovery", "kubeadm-config", "kubelet-start", "kubelet-wait-bootstrap", "node-registered"} {
		if done(name) {
			t.Errorf("phase %s is skipped, and the certificate has ended", name)
		}
	}
	require.NoError(t, phase("kubeadm-config").Run(t.Context(), h, &reporter{}))
	require.NoError(t, phase("kubelet-start").Run(t.Context(), h, &reporter{}))
	if h.Files.Text(KubeletKubeconfig) != kubeconfig || h.Files.Text(pkiDir+"/ca.crt") != ca.pem {
		t.Error("what the node is was removed")
	}
	if !slices.ContainsFunc(rec.Calls(), func(l string) bool { return strings.Contains(l, "reset-failed kubelet") }) {
		t.Errorf("the restarts of before count: %q", rec.Calls())
	}
	write(t, h, bootstrapConf, "token") // as kubeadm did
	if !done("kubelet-start") || done("kubelet-wait-bootstrap") {
		t.Error("the kubelet has not asked yet, and the join does not wait for it")
	}
	write(t, h, kubeletClientPEM, renewed.pem+renewed.keyPEM(t)) // as the kubelet does
	for _, name := range []string{"discovery", "kubelet-start"} {
		if !done(name) {
			t.Errorf("phase %s is not done", name)
		}
	}
	// Without a hash, another name of the control plane may mean the same cluster: a reset would destroy the node for nothing.
	h.Config.Join.Endpoint, h.Config.Join.CACertHashes = "10.0.0.2", nil
	if err := OtherCluster(h); err == nil || !strings.Contains(finding.Of(err)[0].Remedy, "add --discovery-token-ca-cert-hash "+Pin(ca.cert)) {
		t.Errorf("a join without a hash: %v", err)
	}
	write(t, h, KubeletFlagsFile, `KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.7,fd00::7 --x=y"`)
	if a := NodeAddress(h).String(); a != "10.0.0.7" {
		t.Errorf("a node with two addresses has %s", a)
	}
}

// A kubelet registers its node only at startup. It is restarted if its Node was deleted, but not if it is only slow.
func TestNodeIsRegisteredAgain(t *testing.T) {
	for after, restarted := range map[time.Duration]bool{10 * time.Second: false, 40 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			rec := &host.Recorder{}
			h := fakeHost(t, rec)
			h.Config.Node.Name = "node4"
			named := func(o client.Object) []string { return []string{o.GetName()} }
			c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithIndex(&corev1.Node{}, "metadata.name", named).Build()
			var created error
			time.AfterFunc(after, func() { created = c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node4"}}) })
			ctx, cancel := context.WithTimeout(t.Context(), startPatience)
			defer cancel()
			err := awaitNode(ctx, h, c, &reporter{})
			synctest.Wait()
			if err != nil || created != nil {
				t.Errorf("registered after %s: %v, %v", after, err, created)
			}
			if is := slices.ContainsFunc(rec.Calls(), func(l string) bool { return strings.Contains(l, "restart kubelet") }); is != restarted {
				t.Errorf("registered after %s: %q", after, rec.Calls())
			}
		})
	}
}

// A hash in capitals is that of the same cluster: its authority is not removed.
func TestHashInCapitals(t *testing.T) {
	h := fakeHost(t, &host.Recorder{})
	ca := issue(t, nil, time.Now().Add(time.Hour))
	kind, digits, _ := strings.Cut(Pin(ca.cert), ":")
	h.Config.Join.CACertHashes = []string{kind + ":" + strings.ToUpper(digits)}
	write(t, h, pkiDir+"/ca.crt", ca.pem)
	if err := forgetOtherAuthority(h, &reporter{}, false); err != nil || h.Files.Text(pkiDir+"/ca.crt") != ca.pem {
		t.Errorf("%v, the authority is %q", err, h.Files.Text(pkiDir+"/ca.crt"))
	}
}

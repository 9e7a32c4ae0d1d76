// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/rotation"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestCARotation replaces the CAs of a cluster. The rotation is done, reverted, killed in the middle, and continues for a while without a worker.
// Clients that reload their kubeconfig notice no failure. Then it also replaces etcd's CA, for which API servers restart.
func TestCARotation(t *testing.T) {
	needRoot(t)
	planes, err := strconv.Atoi(os.Getenv("OCADM_TEST_CA_ROTATION"))
	if err != nil {
		t.Skip("make ca-rotation runs it: it takes minutes")
	}
	s := &rotating{suite: newSuite(t, machines(t, planes+2)), planes: planes, worker: planes + 1}
	s.built(t)
	s.refusedBefore(t)
	polled := s.polling(t, func() {
		s.there(t)
		s.andBack(t)
		s.killedThere(t)
		s.finish(t)
	})
	t.Logf("%d control-plane nodes: %s", planes, polled)
	for _, f := range polled.failures {
		t.Errorf("request failed: %s", f)
	}
	s.judge(t)
	t.Logf("with the authority of etcd, %d control-plane nodes: %s", planes, s.polling(t, func() { s.withEtcd(t) }))
	if err := s.Join(t.Context(), s.worker+1); err != nil {
		t.Errorf("a machine that joins with a new token: %v", err)
	}
	s.running(t)
}

type rotating struct {
	*suite
	planes, worker int
	// was holds the digests of the CAs and of the controller manager's manifest before.
	was string
}

const oldConf = "/root/before.conf"

// state returns the digests of the CAs and of the controller manager's manifest on all control-plane nodes.
func (s *rotating) state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for node := 1; node <= s.planes; node++ {
		out.WriteString(s.shell(t, node, "cd /etc/kubernetes; sha256sum pki/ca.crt pki/ca.key pki/front-proxy-ca.crt pki/front-proxy-ca.key manifests/kube-controller-manager.yaml; ls pki | grep -c signer || true"))
	}
	return out.String()
}

func (s *rotating) built(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	args := []string{"--ingress", "none", "--skip-phases", "database,operator,cloud-settings,operator-ready,cloud"}
	if s.planes > 1 {
		args = append(args, "--high-availability-vip", s.VirtualAddress())
	}
	require.NoError(t, s.Init(ctx, args...))
	for node := 2; node <= s.planes; node++ {
		require.NoError(t, s.joinControlPlane(t, node))
	}
	require.NoError(t, s.Join(ctx, s.worker))
	s.shell(t, 1, "cp /etc/kubernetes/admin.conf "+oldConf+"; mkdir -p /root/.kube; cp /etc/kubernetes/admin.conf /root/.kube/config")
	s.was = s.state(t)
}

func (s *rotating) rotate(t *testing.T, from int, args ...string) string {
	t.Helper()
	out := ""
	err := s.Timed("rotate-ca "+strings.Join(args, " "), func() (err error) {
		out, err = s.On(t.Context(), from, append([]string{scenario.Ocadm, "certs", "rotate-ca", "--yes"}, args...)...)
		return err
	})
	require.NoError(t, err)
	t.Logf("%s took %.1f s", s.Times[len(s.Times)-1].Name, s.Times[len(s.Times)-1].Took.Seconds())
	return out
}

func (s *rotating) status(t *testing.T, from int) rotation.Status {
	t.Helper()
	var got struct{ Status rotation.Status }
	out, err := s.On(t.Context(), from, scenario.Ocadm, "certs", "rotate-ca", "--status", "-o", "json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &got)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return got.Status
}

// refusedBefore runs commands that make no sense without a rotation.
func (s *rotating) refusedBefore(t *testing.T) {
	t.Helper()
	s.refused(t, 1, "OCA-4415", "certs", "rotate-ca", "--finish", "--yes")
	s.refused(t, 1, "OCA-4415", "certs", "rotate-ca", "--revert", "--yes")
	s.refused(t, s.worker, "OCA-4402", "certs", "rotate-ca", "--yes")
	out, err := s.On(t.Context(), 1, scenario.Ocadm, "certs", "rotate-ca", "--dry-run")
	if err != nil || !strings.Contains(out, fmt.Sprintf("node node%d: stage trust", s.worker)) || s.status(t, 1).Underway {
		t.Errorf("dry run: %s, %v", out, err)
	}
	if now := s.state(t); now != s.was {
		t.Errorf("a dry run changed files:\n%s\nbecame\n%s", s.was, now)
	}
}

// there rotates while the worker is offline, and continues when it is back.
func (s *rotating) there(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("node%d", s.worker)
	s.shell(t, s.worker, "systemctl stop kubelet")
	if _, err := s.Kubectl(t.Context(), "wait", "node/"+name, "--for=condition=Ready=Unknown", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	s.refused(t, 1, "OCA-4416", "certs", "rotate-ca", "--yes")
	if st := s.status(t, 1); st.Record == nil || st.Record.Stage != rotation.Trust || st.Record.Nodes[name] != "" || st.Record.Nodes["node1"] != rotation.Trust {
		t.Errorf("without a worker: %+v", st.Record)
	}
	s.refused(t, 1, "OCA-4414", "certs", "rotate-ca", "--finish", "--yes")
	s.refused(t, 1, "OCA-4409", "upgrade", "node", "--yes")
	s.shell(t, s.worker, "systemctl start kubelet")
	if _, err := s.Kubectl(t.Context(), "wait", "node/"+name, "--for=condition=Ready", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	s.rotate(t, 1)
	if out := s.rotate(t, s.planes); !strings.Contains(out, "Nothing to do") {
		t.Errorf("again: %s", out)
	}
	// An administrator with the old kubeconfig would be locked out.
	s.refused(t, 1, "OCA-4417", "certs", "rotate-ca", "--finish", "--yes")
}

// andBack reverts the rotation: everything is as before.
func (s *rotating) andBack(t *testing.T) {
	t.Helper()
	s.rotate(t, s.planes, "--revert")
	if now := s.state(t); now != s.was {
		t.Errorf("the way back did not end where it began:\n%s\nbecame\n%s", s.was, now)
	}
	if _, err := s.On(t.Context(), 1, "kubectl", "--kubeconfig", oldConf, "get", "nodes"); err != nil {
		t.Errorf("the kubeconfig from before: %v", err)
	}
}

// killedThere rotates again, is killed in the middle of its steps, and continues from another node.
func (s *rotating) killedThere(t *testing.T) {
	t.Helper()
	argv := []string{scenario.Ocadm, "certs", "rotate-ca", "--yes"}
	for _, p := range []point{
		{event: workflow.PhaseDone, phase: "trust/begin"}, {event: workflow.PhaseStarted, phase: "trust/nodes"}, {event: workflow.PhaseDone, phase: "trust/nodes"},
		{event: workflow.PhaseStarted, phase: "trust/pods"}, {event: workflow.PhaseDone, phase: "sign/next"}, {event: workflow.PhaseStarted, phase: "sign/nodes"},
	} {
		s.killedAtEntry(t, 1, p, argv...)
		t.Logf("killed at %s", p)
	}
	for _, moment := range []string{"3", "6", "9", "12"} {
		if _, err := s.quietly(t, 1, append([]string{"timeout", "-s", "KILL", moment}, argv...)...); err == nil {
			t.Logf("it ended within %s s", moment)
			break
		}
	}
	s.rotate(t, s.planes)
}

func (s *rotating) finish(t *testing.T) {
	t.Helper()
	s.shell(t, 1, "cp /etc/kubernetes/admin.conf /root/.kube/config")
	argv := []string{scenario.Ocadm, "certs", "rotate-ca", "--finish", "--yes"}
	for _, p := range []point{{event: workflow.PhaseDone, phase: "drop/next"}, {event: workflow.PhaseStarted, phase: "drop/nodes"}, {event: workflow.PhaseStarted, phase: "drop/pods"}} {
		s.killedAtEntry(t, 1, p, argv...)
		t.Logf("killed at %s", p)
	}
	s.refused(t, 1, "OCA-4413", "certs", "rotate-ca", "--revert", "--yes")
	s.rotate(t, 1, "--finish")
	if st := s.status(t, s.planes); st.Underway || st.TwoAuthorities {
		t.Errorf("after the end: %+v", st)
	}
}

// judge checks that the old CAs are not trusted any more, and that no certificate is signed by them.
func (s *rotating) judge(t *testing.T) {
	t.Helper()
	out, err := s.On(t.Context(), 1, "sh", "-c", "kubectl --kubeconfig "+oldConf+" --insecure-skip-tls-verify get nodes 2>&1; kubectl --kubeconfig "+oldConf+" get nodes 2>&1; true")
	if err != nil || !strings.Contains(out, "nauthorized") && !strings.Contains(out, "must be logged in") || !strings.Contains(out, "unknown authority") {
		t.Errorf("the kubeconfig from before: %s, %v", out, err)
	}
	now := s.state(t)
	for line := range strings.Lines(now) {
		if strings.Contains(s.was, line) != strings.Contains(line, "manifests/") && strings.Contains(line, "/") {
			t.Errorf("after the rotation: %s", line)
		}
	}
	if strings.Contains(now, "\n1\n") {
		t.Errorf("a file of the rotation is left:\n%s", now)
	}
	for node := 1; node <= s.worker; node++ {
		s.shell(t, node, "cd /etc/kubernetes; test $(grep -c BEGIN pki/ca.crt) = 1; openssl verify -CAfile pki/ca.crt /var/lib/kubelet/pki/kubelet-client-current.pem")
	}
	for _, check := range [][]string{{"-n", "kube-public", "get", "cm", "cluster-info", "-o", `jsonpath={.data.kubeconfig}`}, {"get", "cm", "-A", "--field-selector", "metadata.name=kube-root-ca.crt", "-o", "yaml"},
		{"-n", "kube-system", "get", "cm", "extension-apiserver-authentication", "-o", `jsonpath={.data.client-ca-file}`}} {
		got, err := s.Kubectl(t.Context(), check...)
		if err != nil || strings.Contains(got, "END CERTIFICATE-----\n-----BEGIN") || strings.Contains(got, "END CERTIFICATE-----\n    -----BEGIN") {
			t.Errorf("%q has two authorities: %v\n%s", check, err, got)
		}
	}
}

// running waits until every pod is Running and Ready.
func (s *rotating) running(t *testing.T) {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "wait", "pods", "-A", "--all", "--for=condition=Ready", "--timeout=180s")
	if err != nil {
		t.Errorf("pods: %s, %v", out, err)
	}
	t.Log(s.shell(t, 1, "kubectl --kubeconfig /etc/kubernetes/admin.conf get pods -A -o wide; kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes"))
}

// answers are the results of the requests of a client that reloads its kubeconfig.
type answers struct {
	sent     int
	slowest  time.Duration
	failures []string
}

func (a answers) String() string {
	return fmt.Sprintf("%d requests to the API server, %d failed, slowest answer %.2f s", a.sent, len(a.failures), a.slowest.Seconds())
}

// polling sends a request to the API server four times a second, each with a new connection, until do returns.
func (s *rotating) polling(t *testing.T, do func()) (out answers) {
	t.Helper()
	at := s.Lab.Node(1).Address.String()
	if s.planes > 1 {
		at = s.VirtualAddress()
	}
	var mu sync.Mutex
	var present *tls.Config
	read := func() error {
		raw, _, err := s.Lab.Node(1).Exec(t.Context(), "cat", "/etc/kubernetes/admin.conf")
		if err != nil {
			return err
		}
		c, err := clientConfig(raw)
		if err == nil {
			mu.Lock()
			present = c
			mu.Unlock()
		}
		return err
	}
	require.NoError(t, read())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_ = read() // the machine is busy: retry later
			time.Sleep(time.Second)
		}
	})
	began := time.Now()
	running.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			mu.Lock()
			c := present.Clone()
			mu.Unlock()
			sent := time.Now()
			err := get(c, "https://"+at+":6443/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
			out.sent++
			out.slowest = max(out.slowest, time.Since(sent))
			if err != nil {
				out.failures = append(out.failures, fmt.Sprintf("%.1f s: %v", sent.Sub(began).Seconds(), err))
			}
		}
	})
	defer func() { stop(); running.Wait() }()
	do()
	return out
}

func clientConfig(kubeconfig string) (*tls.Config, error) {
	c, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, err
	}
	k := c.Contexts[c.CurrentContext]
	user := c.AuthInfos[k.AuthInfo]
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Clusters[k.Cluster].CertificateAuthorityData)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}, err
}

func get(c *tls.Config, url string) error {
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/lab/mirror"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// Images of the cloud, which a node that is not a controller gets only when a pod needs them.
const (
	keystone  = "registry.cn-beijing.aliyuncs.com/yunionio/keystone:" + version
	web       = "registry.cn-beijing.aliyuncs.com/yunionio/web:" + version
	scheduler = "registry.cn-beijing.aliyuncs.com/yunionio/scheduler:" + version
)

// arrival limits waits for what takes seconds on an idle machine.
const arrival = 15 * time.Minute

// TestDepot tests a cluster in which only machine 1 has a bundle, without internet access. The others get ocadm, programs and images from the depot
// of machine 1: before they join, when a pod needs another image, while the API server is down, after the depot was killed, and when a machine has
// lost power.
func TestDepot(t *testing.T) {
	needRoot(t)
	s, internet := offline(t)
	s.killedFill(t)
	s.depotStatus(t)
	s.download(t)
	require.NoError(t, s.Join(t.Context(), 3))
	s.withoutAPIServer(t)
	s.killedDepot(t)
	s.powerOff(t)
	// An image that is not in the depot cannot be pulled.
	if out, err := s.pull(t, 3, "registry.k8s.io/absent:v1"); err == nil {
		t.Errorf("an image that nobody has was pulled: %s", out)
	}
	if n := internet.Connections(); n != 1 {
		t.Errorf("there were %d connections to the internet in spite of --offline", n-1)
	}
	s.deleteCloud(t)
	s.resetsCleanly(t, 3)
	s.resetsCleanly(t, 1)
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// offline creates three machines that resolve the names of the internet to this host, which counts connections.
func offline(t *testing.T) (*suite, *mirror.Internet) {
	t.Helper()
	ctx := t.Context()
	s := newSuite(t, machines(t, 3))
	internet, err := mirror.StartInternet(s.Lab.Host(), mirror.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = internet.Close() })
	for i := range s.Lab.Nodes() {
		s.reaches(t, i+1)
		s.fresh[i+1] = s.look(t, i+1)
	}
	if _, err := s.On(ctx, 2, "curl", "-s", "-o", "/dev/null", "http://registry.k8s.io/v2/"); err != nil || internet.Connections() != 1 {
		t.Fatalf("%d connections are counted, want 1 (%v)", internet.Connections(), err)
	}
	return s, internet
}

// reaches makes a machine resolve the names of the internet to this host.
func (s *suite) reaches(t *testing.T, node int) {
	t.Helper()
	line := s.Lab.Host().String() + " " + strings.Join(mirror.Names(), " ")
	if _, err := s.On(t.Context(), node, "sh", "-c", "echo "+line+" >> /etc/hosts"); err != nil {
		t.Fatal(err)
	}
}

// killedFill kills init while it fills the depot. The next init continues.
func (s *suite) killedFill(t *testing.T) {
	t.Helper()
	script := fmt.Sprintf(`%s >/run/first.log 2>&1 & pid=$!
until [ "$(ls %[2]s/blobs/sha256 2>/dev/null | wc -l)" -ge 6 ]; do kill -0 $pid || { cat /run/first.log; exit 1; }; done
kill -9 $pid; wait $pid; test $? = 137 || exit 2
if ls %[2]s/roots/bundle-*; then echo "the fill had ended already"; fi`, quoted(s.initArgs(1, "--offline")), depot.DefaultDir)
	if out, err := s.On(t.Context(), 1, "sh", "-c", script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	require.NoError(t, s.Init(t.Context(), "--offline"))
}

func (s *suite) depotStatus(t *testing.T) {
	t.Helper()
	out, err := s.On(t.Context(), 1, scenario.Ocadm, "depot", "status", "-o", "json")
	var st depot.Status
	if err != nil || json.Unmarshal([]byte(out), &st) != nil || len(st.Roots) != 2 || !st.Roots[0].Complete || !st.Roots[1].Complete || st.Free == 0 {
		t.Fatalf("depot status: %s, %v", out, err)
	}
	// Nothing is unused, so nothing is removed.
	if out, err := s.On(t.Context(), 1, scenario.Ocadm, "depot", "prune", "-o", "json"); err != nil || !strings.Contains(out, `"freed": 0`) {
		t.Errorf("depot prune: %s, %v", out, err)
	}
}

// download joins machine 2, which will run services of the cloud, with the join command for machines without ocadm. The download gets another path,
// because the lab mounts ocadm.
func (s *suite) download(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	line, err := s.On(ctx, 1, scenario.Ocadm, "token", "create", "--print-join-command", "--with-download")
	require.NoError(t, err)
	const program = "/root/downloaded"
	if n := strings.Count(line, " "+scenario.Ocadm); n != 5 {
		t.Fatalf("the line is %s", line)
	}
	line = strings.ReplaceAll(line, " "+scenario.Ocadm, " "+program)
	// The wrong server gets neither the token nor trust.
	wrong := regexp.MustCompile(`echo "[0-9a-f]{64} `).ReplaceAllLiteralString(line, `echo "`+strings.Repeat("0", 64)+" ")
	if _, err := s.On(ctx, 2, "sh", "-c", strings.TrimSpace(wrong)); err == nil || wrong == line {
		t.Error("another authority was accepted")
	}
	err = s.Timed("join node 2 by download", func() error {
		_, err := s.On(ctx, 2, "sh", "-c", strings.TrimSpace(line)+" --as-onecloud-controller "+strings.Join(s.JoinFlags(2), " "))
		return err
	})
	require.NoError(t, err)
	if _, err := s.On(ctx, 2, "cmp", program, scenario.Ocadm); err != nil {
		t.Errorf("what was downloaded is another program: %v", err)
	}
	if _, err := s.On(ctx, 2, "rm", program); err != nil {
		t.Error(err)
	}
	if _, err := s.Kubectl(ctx, "wait", "node/node2", "--for=condition=Ready", "--timeout=600s"); err != nil {
		t.Error(err)
	}
}

// lacks checks that a node does not have an image.
func (s *suite) lacks(t *testing.T, node int, image string) {
	t.Helper()
	if had, err := s.On(t.Context(), node, "ctr", "-n", "k8s.io", "images", "ls", "-q"); err != nil || strings.Contains(had, image) {
		t.Fatalf("node %d has %s already (%v)", node, image, err)
	}
}

// pull makes containerd pull as it does for the kubelet.
func (s *suite) pull(t *testing.T, node int, image string) (string, error) {
	t.Helper()
	return s.On(t.Context(), node, "ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir", "/etc/containerd/certs.d", image)
}

// withoutAPIServer pulls while the API server is down: nodes present their certificate.
func (s *suite) withoutAPIServer(t *testing.T) {
	t.Helper()
	const pod = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	if _, err := s.On(t.Context(), 1, "sh", "-c", "mv "+pod+" /root/; while ss -Hltn 'sport = :6443' | grep -q .; do sleep 0.2; done"); err != nil {
		t.Fatal(err)
	}
	s.lacks(t, 3, web)
	if _, err := s.pull(t, 3, web); err != nil {
		t.Errorf("the depot does not serve while the API server is down: %v", err)
	}
	if _, err := s.On(t.Context(), 1, "mv", "/root/kube-apiserver.yaml", pod); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the API server", func(ctx context.Context) (bool, string, error) {
		_, err := s.Kubectl(ctx, "get", "--raw", "/readyz")
		return err == nil, "", err
	})
}

// killedDepot stops the depot until a node has connected for a pull, and then kills it. The kubelets restart the depot and the pull.
func (s *suite) killedDepot(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	s.lacks(t, 3, scheduler)
	pid, err := s.On(ctx, 1, "sh", "-c", `pid=$(pgrep -f ' depot [s]erve ') && kill -STOP $pid && echo $pid`)
	require.NoError(t, err)
	if _, err := s.Kubectl(ctx, "run", "pulled", "--image="+scheduler, "--restart=Never", "--overrides", `{"spec":{"nodeName":"node3"}}`, "--command", "--", "/bin/sh"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the connection of a pull", func(ctx context.Context) (bool, string, error) {
		out, err := s.On(ctx, 3, "ss", "-Htn", "state", "established", "dport = :6444")
		return out != "", "there is none yet", err
	})
	if _, err := s.On(ctx, 1, "sh", "-c", "kill -KILL "+strings.TrimSpace(pid)+" || true"); err != nil {
		t.Fatal(err)
	}
	pulled := []string{"-n", "default", "wait", "pod/pulled", "--for", "jsonpath={.status.containerStatuses[0].imageID}", "--timeout=600s"}
	if _, err := s.Kubectl(ctx, pulled...); err != nil {
		events, _ := s.Kubectl(ctx, "get", "events", "--sort-by=.lastTimestamp")
		t.Fatalf("the depot did not serve a pull: %v\n%s", err, events)
	}
}

// powerOff cuts the power of machine 2. Its pods move to machine 3, which did not have their images.
func (s *suite) powerOff(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := s.Kubectl(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	// Volumes are on the disks of their nodes, so pods with volumes stay on machine 1.
	kubectl("cordon", "node2")
	require.NoError(t, s.Timed("a small cloud", func() error {
		s.small(t, version, "etcd", "keystone", "region", "apigateway", "web", "climc")
		return nil
	}))
	kubectl("uncordon", "node2")
	kubectl("cordon", "node1")
	kubectl("-n", "onecloud", "delete", "pod", "-l", "app.kubernetes.io/component=keystone", "--timeout=600s")
	s.runsOn(t, "keystone", "node2")
	s.lacks(t, 3, keystone)
	kubectl("label", "node", "node3", "onecloud.yunion.io/controller=enable")
	require.NoError(t, s.Lab.Node(2).Kill(ctx))
	if err := s.Timed("pods move from node 2", func() error { s.runsOn(t, "keystone", "node3"); return nil }); err != nil {
		t.Error(err)
	}
	log, err := s.Kubectl(ctx, "-n", "kube-system", "logs", "ocadm-depot-node1", "-c", "depot")
	to := "to=" + s.Lab.Node(3).Address.String() + ":"
	if served := regexp.MustCompile(`(?m)image=\S+/yunionio/keystone .*` + regexp.QuoteMeta(to)); err != nil || !served.MatchString(log) {
		t.Errorf("the depot has not served keystone to machine 3 (%v):\n%s", err, log)
	}
	kubectl("uncordon", "node1")
	kubectl("delete", "node", "node2")
	s.available(t)
	if _, err := s.Login(ctx); err != nil {
		t.Errorf("logging in after the loss of a machine: %v", err)
	}
}

// runsOn waits until a component has a ready pod on a node.
func (s *suite) runsOn(t *testing.T, component, node string) {
	t.Helper()
	s.until(t, component+" on "+node, func(ctx context.Context) (bool, string, error) {
		out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pods", "-l", "app.kubernetes.io/component="+component, "-o",
			`jsonpath={range .items[*]}{.spec.nodeName}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		return strings.Contains(out, node+"=True"), out, err
	})
}

// until waits for a condition that takes seconds, but may take minutes on a busy machine.
func (s *suite) until(t *testing.T, what string, check func(context.Context) (bool, string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), arrival)
	defer cancel()
	if err := wait.Until(ctx, what, time.Second, check, func(why string) { t.Logf("waiting for %s: %s", what, why) }); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
}

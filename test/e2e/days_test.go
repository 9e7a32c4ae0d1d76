// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/scenario"
)

// TestControlPlaneDays makes a cluster of three control-plane nodes and lives through the bad days of one: a machine is lost and replaced.
func TestControlPlaneDays(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_DAYS") == "" {
		t.Skip("make days runs it: it takes minutes")
	}
	s := &suite{Journey: &scenario.Journey{Lab: machines(t, 4), Story: testWriter{t}}}
	ctx := t.Context()
	if err := s.Init(ctx, "--high-availability-vip", s.VirtualAddress(), "--ingress", "none",
		"--skip-phases", "database,operator,cloud-settings,operator-ready,cloud"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []int{2, 3} {
		if err := s.JoinControlPlane(ctx, 1, node); err != nil {
			t.Fatal(err)
		}
	}
	s.whole(t, 1)
	for _, day := range []struct {
		name string
		live func(*testing.T)
	}{
		{"a control-plane node is lost and replaced", s.replaceLost},
	} {
		if !t.Run(day.name, day.live) {
			break
		}
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// removed is the output of "ocadm node remove -o json".
type removed struct {
	Had struct {
		Node, Etcd string
		Alive      bool
		Volumes    []struct{ Claim string }
	}
	Steps []struct {
		Name, State string
		Seconds     float64
	}
	Next []string
}

// removeNode removes the node of a machine, from another one.
func (s *suite) removeNode(t *testing.T, from int, args ...string) (r removed) {
	t.Helper()
	out, err := s.On(t.Context(), from, append([]string{scenario.Ocadm, "node", "remove", "--yes", "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replaceLost ends the machine of node 3 for good, with a volume on it, and lets machine 4 take its place.
func (s *suite) replaceLost(t *testing.T) {
	ctx := t.Context()
	s.volume(t, "node3")
	if err := s.Lab.Node(3).Kill(ctx); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	err := s.Timed("remove lost node 3", func() error {
		r := s.removeNode(t, 1, "node3")
		if r.Had.Alive || r.Had.Etcd != "voter" || len(r.Had.Volumes) != 1 || r.Had.Volumes[0].Claim != "default/held-held-0" {
			t.Errorf("node remove: %+v", r)
		}
		return nil
	})
	if err == nil {
		err = s.JoinControlPlane(ctx, 1, 4)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.whole(t, 1)
	t.Logf("a destroyed control plane was replaced in %.1f s (goal: 90 s)", time.Since(begun).Seconds())
	if r := s.removeNode(t, 1, "node3"); len(r.Steps) != 0 || len(r.Had.Volumes) != 1 {
		t.Errorf("again: %+v", r)
	}
	if out, err := s.On(ctx, 2, scenario.Ocadm, "node", "remove", "node2", "--yes"); err == nil || !strings.Contains(err.Error(), "OCA-4140") {
		t.Errorf("a node that removes itself: %s, %v", out, err)
	}
	s.removeNode(t, 1, "node3", "--delete-volumes")
	for {
		out, err := s.Kubectl(ctx, "get", "pod", "held-0", "-o", "jsonpath={.spec.nodeName} {.status.phase}")
		if err == nil && strings.HasSuffix(out, "Running") && !strings.HasPrefix(out, "node3") {
			return
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("the pod of a lost volume: %q, %v", out, err)
		}
		time.Sleep(time.Second)
	}
}

// volume makes a StatefulSet with a volume on a node, of the image that is on every control-plane node.
func (s *suite) volume(t *testing.T, node string) {
	t.Helper()
	ctx := t.Context()
	image, err := s.Kubectl(ctx, "-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer("IMAGE", image, "NODE", node).Replace(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"held"},"spec":{
"serviceName":"held","selector":{"matchLabels":{"app":"held"}},"template":{"metadata":{"labels":{"app":"held"}},"spec":{
"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[
{"key":"kubernetes.io/hostname","operator":"In","values":["NODE"]}]}}]}},
"containers":[{"name":"held","image":"IMAGE","args":["-dns.port=5300"],"volumeMounts":[{"name":"held","mountPath":"/held"}]}]}},
"volumeClaimTemplates":[{"metadata":{"name":"held"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}}]}}`)
	if _, err := s.On(ctx, 1, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f - <<'EOF'\n"+manifest+"\nEOF"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl(ctx, "wait", "--for=condition=Ready", "pod/held-0", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
}

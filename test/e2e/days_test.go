// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestControlPlaneDays creates a cluster of three control-plane nodes and tests its failures: a machine is lost and replaced, etcd is restored from
// snapshots, a member is damaged, certificates expire, the majority is lost, and then the last member is damaged.
func TestControlPlaneDays(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_DAYS") == "" {
		t.Skip("make days runs it: it takes minutes")
	}
	s := newSuite(t, machines(t, 4)) // the last one becomes a worker when certificates expire
	s.threeControlPlanes(t, "--high-availability-vip", s.VirtualAddress())
	s.walk(t, nil,
		step{"a control-plane node is lost and replaced", s.replaceLost},
		step{"the directory of a volume is missing", s.directoryMissing},
		step{"a firewall drops the packets of the pod network", s.tunnelCut},
		step{"etcd goes back to a snapshot", s.restoreSnapshot},
		step{"etcd goes back to a snapshot from before two nodes joined", s.restoreOlder},
		step{"the data of a member is damaged", s.rejoinDamaged},
		step{"all certificates have expired", s.sleptPastExpiry},
		step{"certificates are empty", s.emptied},
		step{"a majority is lost", s.majorityLost},
		step{"the data of the only member is damaged", s.onlyMemberDamaged},
	)
}

// withoutCloud lists the phases that a cluster without a cloud skips.
const withoutCloud = "database,operator,cloud-settings,operator-ready,cloud,images/cloud,images/others"

// threeControlPlanes creates a cluster of three control-plane nodes without a cloud, with the given endpoint flags.
func (s *suite) threeControlPlanes(t *testing.T, flags ...string) {
	t.Helper()
	require.NoError(t, s.Init(t.Context(), append(flags, "--ingress", "none", "--ignore-preflight-errors", "Disk",
		"--skip-phases", withoutCloud)...))
	for _, node := range controlPlanes[1:] {
		require.NoError(t, s.joinControlPlane(t, node))
	}
	s.whole(t, 1)
}

// replaceGoal is the goal for the replacement of a lost control-plane node. It is printed beside the measurement but not enforced, because the machine may be busy.
const replaceGoal = 90 * time.Second

// controlPlanes are the numbers of the control-plane machines.
var controlPlanes = []int{1, 2, 3}

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
	require.NoError(t, err)
	return r
}

// replaceLost kills the machine of node 3, which has a volume. A machine of the same name replaces it: the lost one, which returns with the data of a
// member that etcd no longer knows, and is reset first.
func (s *suite) replaceLost(t *testing.T) {
	ctx := t.Context()
	s.volume(t, "node3")
	require.NoError(t, s.Lab.Node(3).Kill(ctx))
	begun := time.Now()
	err := s.Timed("remove lost node 3", func() error {
		r := s.removeNode(t, 1, "node3")
		if r.Had.Alive || r.Had.Etcd != "voter" || len(r.Had.Volumes) != 1 || r.Had.Volumes[0].Claim != "default/held-held-0" {
			t.Errorf("node remove: %+v", r)
		}
		return nil
	})
	require.NoError(t, err)
	if r := s.removeNode(t, 1, "node3"); len(r.Steps) != 0 || len(r.Had.Volumes) != 1 {
		t.Errorf("again: %+v", r)
	}
	s.refused(t, 2, "OCA-4140", "node", "remove", "node2", "--yes")
	s.removeNode(t, 1, "node3", "--delete-volumes")
	if _, err := s.Kubectl(ctx, "rollout", "status", "statefulset/held", "--timeout=240s"); err != nil {
		t.Errorf("the pod of a lost volume: %v", err)
	}
	s.older = s.snapshot(t, 1)
	s.comesBack(t, 3)
	t.Logf("a lost control plane was replaced, with the boot and the reset of its machine, in %.1f s (goal %.0f s)", time.Since(begun).Seconds(), replaceGoal.Seconds())
}

// directoryMissing removes the directory of a volume, as if its disk were not mounted, or on a new machine with the name of a lost one. The pod
// waits, and starts when the directory is back.
func (s *suite) directoryMissing(t *testing.T) {
	ctx := t.Context()
	get := func(args ...string) string {
		t.Helper()
		out, err := s.Kubectl(ctx, append([]string{"get"}, args...)...)
		require.NoError(t, err)
		return strings.TrimSpace(out)
	}
	node, err := strconv.Atoi(strings.TrimPrefix(get("pod", "held-0", "-o", "jsonpath={.spec.nodeName}"), "node"))
	require.NoError(t, err)
	dir := get("pv", get("pvc", "held-held-0", "-o", "jsonpath={.spec.volumeName}"), "-o", "jsonpath={.spec.local.path}")
	if dir == "" {
		t.Fatal("the volume is not local")
	}
	if _, err := s.On(ctx, node, "sh", "-c", "touch "+dir+"/kept && mv "+dir+" "+dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl(ctx, "delete", "pod", "held-0"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the cause", func(ctx context.Context) (bool, string, error) {
		out, _ := s.On(ctx, 1, scenario.Ocadm, "why", "-n", "default", "-o", "json") // it fails if something is wrong
		return strings.Contains(out, "volume-directory-gone"), "why does not name it", nil
	})
	if phase := get("pod", "held-0", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("without the directory of its volume, the pod is %s", phase)
	}
	if _, err := s.On(ctx, node, "sh", "-c", "test ! -e "+dir+" && mv "+dir+".away "+dir); err != nil {
		t.Errorf("the kubelet made the directory: %v", err)
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "statefulset/held", "--timeout=240s"); err != nil {
		t.Error(err)
	}
	if _, err := s.On(ctx, node, "test", "-e", dir+"/kept"); err != nil {
		t.Errorf("what was in the volume: %v", err)
	}
}

// tunnelCut makes a node drop flannel's packets.
func (s *suite) tunnelCut(t *testing.T) {
	rule := []string{"INPUT", "-p", "udp", "--dport", "8472", "-j", "DROP"}
	named := func(want bool, why string) {
		t.Helper()
		s.until(t, why, func(ctx context.Context) (bool, string, error) {
			out, _ := s.On(ctx, 1, scenario.Ocadm, "why", "-o", "json") // it fails if something is wrong
			return strings.Contains(out, "OCA-5112") == want, "ocadm why says otherwise", nil
		})
	}
	named(false, "a whole pod network")
	if _, err := s.On(t.Context(), 2, append([]string{"iptables", "-I"}, rule...)...); err != nil {
		t.Fatal(err)
	}
	named(true, "the broken tunnel")
	if _, err := s.On(t.Context(), 2, append([]string{"iptables", "-D"}, rule...)...); err != nil {
		t.Fatal(err)
	}
	named(false, "the repaired tunnel")
}

// comesBack starts a machine that was lost and removed, and joins it again.
func (s *suite) comesBack(t *testing.T, node int) {
	t.Helper()
	require.NoError(t, s.Lab.Node(node).Start(t.Context()))
	if _, err := s.On(t.Context(), node, scenario.Ocadm, "reset", "--yes"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, s.joinControlPlane(t, node))
	s.whole(t, 1)
}

// joinControlPlane joins a machine with little disk space, because the machines of the lab share one disk.
func (s *suite) joinControlPlane(t *testing.T, node int) error {
	t.Helper()
	return s.JoinControlPlane(t.Context(), 1, node, "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others")
}

// volume creates a StatefulSet with a volume on a node, from an image that is on every control-plane node.
func (s *suite) volume(t *testing.T, node string) {
	t.Helper()
	ctx := t.Context()
	image, err := s.Kubectl(ctx, "-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	require.NoError(t, err)
	manifest := strings.NewReplacer("IMAGE", image, "NODE", node).Replace(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"held"},"spec":{
"serviceName":"held","selector":{"matchLabels":{"app":"held"}},"template":{"metadata":{"labels":{"app":"held"}},"spec":{
"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[
{"key":"kubernetes.io/hostname","operator":"In","values":["NODE"]}]}}]}},
"containers":[{"name":"held","image":"IMAGE","args":["-dns.port=5300"],"volumeMounts":[{"name":"held","mountPath":"/held"}]}]}},
"volumeClaimTemplates":[{"metadata":{"name":"held"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}}]}}`)
	if _, err := s.On(ctx, 1, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f - <<'EOF'\n"+manifest+"\nEOF"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "statefulset/held", "--timeout=240s"); err != nil {
		t.Fatal(err)
	}
}

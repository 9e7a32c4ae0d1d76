// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// onThree returns a test on node1 of three control-plane nodes. CoreDNS runs on node1.
func onThree(t *testing.T) *Test {
	t.Helper()
	labels := map[string]string{"k8s-app": "kube-dns"}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels}
	}
	has := []client.Object{
		&appsv1.Deployment{ObjectMeta: meta("coredns"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&corev1.Pod{ObjectMeta: meta("a"), Spec: corev1.PodSpec{NodeName: "node1"}}, &corev1.Pod{ObjectMeta: meta("b"), Spec: corev1.PodSpec{NodeName: "node1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
	}
	for _, name := range []string{"node1", "node2", "node3"} {
		has = append(has, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelControlPlane: ""}}})
	}
	cfg := config.Default()
	cfg.Node.Name = "node1"
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	return &Test{Host: h, K: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(has...).Build()}
}

func TestCutOff(t *testing.T) {
	for node, code := range map[string]string{"": "", "node3": "", "node1": "OCA-4176", "worker": "OCA-4176", "other": "OCA-4176"} {
		x := onThree(t)
		err := x.CutOff(t.Context(), node)
		if l := finding.Of(err); code == "" && (err != nil || x.Cut != node) || code != "" && (len(l) != 1 || l[0].Code != code || x.Cut != "") {
			t.Errorf("%q: %q, %v", node, x.Cut, err)
		}
		if node == "node3" {
			if got, err := other(t.Context(), x); got != node || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
}

// The result lists the nodes whose loss was not tested, and what runs only there.
func TestNotCutOff(t *testing.T) {
	one := NotCutOff{Node: "node1", Own: true, Runs: []string{"all pods of CoreDNS"}}
	for name, c := range map[string]struct {
		done []Outcome
		cut  string
		dry  bool
		want []NotCutOff
	}{
		"a whole test":          {[]Outcome{{Fault: "etcd", Node: "node3"}, {Fault: cutFault, Node: "node2"}}, "", false, []NotCutOff{one, {Node: "node3"}}},
		"it was ended before":   {[]Outcome{{Fault: "etcd", Node: "node3"}}, "", false, []NotCutOff{one, {Node: "node2"}, {Node: "node3"}}},
		"a dry run":             {nil, "node3", true, []NotCutOff{one, {Node: "node2"}}},
		"the choice is no fact": {nil, "node3", false, []NotCutOff{one, {Node: "node2"}, {Node: "node3"}}},
	} {
		x := onThree(t)
		x.Outcomes, x.Cut, x.Host.Files.DryRun = c.done, c.cut, c.dry
		got, err := x.NotCutOff(t.Context())
		require.NoError(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

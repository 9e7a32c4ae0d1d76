// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func cloud(name, host, profile string) *v1alpha1.OnecloudCluster {
	c := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name}}
	c.Spec.MySQL.Host, c.Spec.Profile = host, profile
	return c
}

func databaseOn(node string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "ocadm-mysql"}
	p := pod("ocadm-mysql-0", node, true)
	p.Namespace, p.Labels = "onecloud", nil
	return []client.Object{&appsv1.StatefulSet{ObjectMeta: meta}, p}
}

func TestOnce(t *testing.T) {
	two := []client.Object{node("n1", true), node("n2", true), coreDNS(2)}
	lone := slices.Concat(two, []client.Object{pod("a", "n1", true), pod("b", "n1", true)})
	lacks := cloud("default", "db.example.org", "ha")
	lacks.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHighlyAvailable, Status: metav1.ConditionFalse, Message: "etcd has 1 member"}}
	for name, c := range map[string]struct {
		has  []client.Object
		want []string
	}{
		"no cloud": {lone, []string{"CoreDNS runs on one node, n1: kubectl -n kube-system delete pod a"}},
		"one pod": {[]client.Object{node("n1", true), node("n2", true), coreDNS(1), pod("a", "n1", true)},
			[]string{"CoreDNS runs on one node, n1, in one pod: kubectl -n kube-system scale deployment coredns --replicas=2"}},
		"a cloud as init makes it": {slices.Concat(lone, databaseOn("n1"), []client.Object{cloud("default", "ocadm-mysql.onecloud.svc", "small")}), []string{
			"CoreDNS runs on one node, n1: kubectl -n kube-system delete pod a",
			"database of cloud default: one copy, on n1: ocadm cluster database add-replica",
			"cloud default has profile small: its services run once: ocadm cluster update --profile ha --wait",
		}},
		"the database is not there": {slices.Concat(two, []client.Object{cloud("default", "ocadm-mysql", "ha")}), nil},
		"another name, its own database": {slices.Concat(two, []client.Object{cloud("blue", "db.example.org", "")}),
			[]string{"cloud blue has profile small: its services run once: ocadm cluster update --profile ha --wait --name blue"}},
		"all is there twice":  {slices.Concat(two, []client.Object{pod("a", "n1", true), pod("b", "n2", true), cloud("default", "db.example.org", "ha")}), nil},
		"profile ha does not": {slices.Concat(two, []client.Object{lacks}), []string{"cloud default: etcd has 1 member: ocadm cluster status"}},
		"one operator":        {slices.Concat(two, operator(1, "n1")), []string{"the operator has one copy: kubectl -n onecloud scale deployment onecloud-operator --replicas=2"}},
		"both operators on one node": {slices.Concat(two, operator(2, "n1", "n1")),
			[]string{"the copies of the operator run on one node, n1: kubectl -n onecloud delete pod onecloud-operator-0"}},
		"an operator on each": {slices.Concat(two, operator(2, "n1", "n2")), nil},
		"a user stopped it":   {slices.Concat(two, operator(0)), nil},
		"one control plane":   {slices.Concat(databaseOn("n1"), []client.Object{node("n1", true), cloud("default", "ocadm-mysql", "small")}), nil},
	} {
		got, err := Once(t.Context(), (&api{}).client(c.has...))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestRuns(t *testing.T) {
	service := func(name, component, on string, owner string) *corev1.Pod {
		p := pod(name, on, true)
		p.Namespace, p.Labels = "onecloud", map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelComponent: component}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "x", Controller: new(true)}}
		return p
	}
	has := slices.Concat(databaseOn("n1"), []client.Object{coreDNS(2), node("n1", true), node("n2", true), pod("a", "n1", true), pod("b", "n1", true),
		cloud("default", "ocadm-mysql", "small"), service("k1", "keystone", "n1", "ReplicaSet"), service("g1", "glance", "n1", "ReplicaSet"),
		service("r1", "region", "n1", "ReplicaSet"), service("r2", "region", "n2", "ReplicaSet"), service("h1", "host", "n1", "DaemonSet"),
		service("w1", "webconsole", "n2", "ReplicaSet")}, operator(1, "n2"))
	for on, want := range map[string][]string{
		"n1": {"all pods of CoreDNS", "the only copy of the database of cloud default", "of cloud default: glance, keystone"},
		"n2": {"the operator", "of cloud default: webconsole"},
		"n3": nil,
	} {
		got, err := Runs(t.Context(), (&api{}).client(has...), on)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", on, got, err)
		}
	}
}

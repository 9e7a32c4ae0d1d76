// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// Everything that writes to a database can be stopped.
func TestUsersOfDatabases(t *testing.T) {
	for _, c := range catalog.All() {
		if len(databasesOf([]string{c.Name})) > 0 && !slices.Contains([]component.WorkloadKind{"", component.Deployment, component.DaemonSet}, c.Workload.Kind) {
			t.Errorf("%s is a %s, which the reconciler does not stop", c.Name, c.Workload.Kind)
		}
	}
	if got := usersOf([]string{"yunioncloud"}); !slices.Contains(got, "region") || !slices.Contains(got, "scheduler") || slices.Contains(got, "region-dns") {
		t.Errorf("who uses region's database: %q", got)
	}
	if got := usersOf([]string{"itsm_engine"}); !slices.Equal(got, []string{"itsm"}) {
		t.Errorf("%q", got)
	}
}

// Read replicas hold connections to the databases, too.
func TestStopWaitsForReadReplicas(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Labels = "onecloud", "default-region-slave-1", render.Labels("default", "region"+render.ReplicaSuffix)
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name = "onecloud", "default"
	for component, want := range map[string][]string{"region": {"Pod default-region-slave-1"}, "keystone": nil} {
		if left, err := stillRunning(t.Context(), c, cloud, []string{component}); err != nil || !slices.Equal(left, want) {
			t.Errorf("%s: %q %v", component, left, err)
		}
	}
}

// The earlier operator labelled the workloads and pods of a cloud with a random instance, and they keep it when the cloud is adopted.
func TestStopWaitsForPodsOfAdoptedClouds(t *testing.T) {
	labels := render.Labels("default", "glance")
	labels[v1alpha1.LabelInstance] = v1alpha1.InstancePrefix + "x7f2"
	owner := metav1.OwnerReference{Kind: v1alpha1.Kind, Name: "default", Controller: new(true)}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance", Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}}
	agent := &appsv1.DaemonSet{ObjectMeta: *d.ObjectMeta.DeepCopy(), Status: appsv1.DaemonSetStatus{CurrentNumberScheduled: 1}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance-1", Labels: labels}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-b-glance-1", Labels: labels}}
	foreign := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-b-glance", Labels: labels}}
	c := fake.NewClientBuilder().WithObjects(d, agent, pod, other, foreign).Build()
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default"}}
	want := []string{"Deployment default-glance has 0 pods", "DaemonSet default-glance has 1 pod", "Pod default-glance-1"}
	if left, err := stillRunning(t.Context(), c, cloud, []string{"glance"}); err != nil || !slices.Equal(left, want) {
		t.Errorf("%q %v", left, err)
	}
}

func TestSources(t *testing.T) {
	saved := &v1alpha1.DatabaseCopies{Set: "b3", Databases: []string{"glance", "keystone", "yunioncloud"}}
	status := func(moved int, replaced ...v1alpha1.DatabaseCopies) *v1alpha1.OnecloudOperationStatus {
		return &v1alpha1.OnecloudOperationStatus{
			Rollout: &v1alpha1.Rollout{From: 3, Moved: moved, Waves: []v1alpha1.Wave{
				{Components: []string{"keystone"}}, {Components: []string{"region"}}, {Components: []string{"glance"}},
			}},
			Databases: &v1alpha1.OperationDatabases{Saved: saved, Replaced: replaced},
		}
	}
	for _, c := range []struct {
		what   string
		status *v1alpha1.OnecloudOperationStatus
		want   string
	}{
		{"nothing saved", &v1alpha1.OnecloudOperationStatus{}, "[]"},
		{"nothing moved", status(0), "[]"},
		{"two waves", status(2), "[{b3 [keystone yunioncloud]}]"},
		{"more waves than there are", status(9), "[{b3 [glance keystone yunioncloud]}]"},
		{"replaced on the way back", status(1, v1alpha1.DatabaseCopies{Set: "u3v1", Databases: []string{"keystone"}}), "[{b3 [keystone]}]"},
		{"replaced by a rollback", status(3, v1alpha1.DatabaseCopies{Set: "f3", Databases: []string{"keystone"}}), "[{f3 [keystone]} {b3 [glance yunioncloud]}]"},
		{"a rollback that has not begun to move", status(0, v1alpha1.DatabaseCopies{Set: "f3", Databases: []string{"keystone"}}), "[{f3 [keystone]}]"},
	} {
		if got := fmt.Sprint(sources(c.status)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// An update without copies of what the cloud uses could not be reverted.
func TestLeftOut(t *testing.T) {
	component := func(name string, state v1alpha1.State) v1alpha1.ComponentStatus {
		return v1alpha1.ComponentStatus{Name: name, State: state}
	}
	all := []string{"glance", "itsm", "itsm_engine", "keystone"}
	for _, c := range []struct {
		what         string
		components   []v1alpha1.ComponentStatus
		there, owned []string
		want         []string
	}{
		{"a cloud that has nothing yet", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Provisioning)}, nil, nil, nil},
		{"all are its own", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Available)}, all, all, nil},
		{"no record", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Available), component("glance", v1alpha1.Disabled)}, all, nil, []string{"keystone"}},
		{"no record, and nothing serves", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Degraded)}, all, nil, []string{"keystone"}},
		{"the server is empty", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Progressing)}, nil, nil, []string{"keystone"}},
		{"one is missing in the record", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Available), component("glance", v1alpha1.Available)}, all,
			[]string{"keystone"}, []string{"glance"}},
		{"another cloud's", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Available), component("glance", v1alpha1.Degraded)}, all, []string{"keystone"}, nil},
		{"one is not made yet", []v1alpha1.ComponentStatus{component("keystone", v1alpha1.Available), component("glance", v1alpha1.Progressing)},
			[]string{"keystone"}, []string{"keystone"}, nil},
	} {
		if got := leftOut(c.components, c.there, c.owned); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

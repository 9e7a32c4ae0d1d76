// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// The Node of a machine has its name, in any namespace: the older of two machines owns it.
func TestNamesakes(t *testing.T) {
	made := func(namespace, name string, age time.Duration) *v1alpha1.OnecloudMachine {
		m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
		m.CreationTimestamp = metav1.NewTime(now.Add(-age))
		m.Spec.Infrastructure.SSH.Address = namespace + "." + name
		return m
	}
	older, younger, other := made("a", "w", time.Hour), made("b", "w", time.Minute), made("c", "x", 2*time.Hour)
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(older, younger, other, &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "default"}}).Build()
	for want, m := range map[string]*v1alpha1.OnecloudMachine{"": older, "a/w": younger} {
		m.Spec.Cloud = "default"
		f, err := (&Infrastructure{Options: Options{Client: c, Direct: c}}).gather(t.Context(), m)
		if err != nil || f.namesake != want || f.twin != "" {
			t.Errorf("%s: namesake %q, twin %q, %v", client.ObjectKeyFromObject(m), f.namesake, f.twin, err)
		}
		if reason, message := infrastructure(f); want != "" && (reason != "DuplicateName" || !strings.Contains(message, "another machine has this name: a/w")) {
			t.Errorf("%s: %s", reason, message)
		}
	}
}

// The earlier operator labelled the pods of a cloud with a random instance, and they keep it when the cloud is adopted.
func TestAgentsOfAdoptedCloud(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, Labels: map[string]string{
			v1alpha1.LabelComponent: "host", v1alpha1.LabelInstance: v1alpha1.InstancePrefix + "x7f2"}}}
		p.Spec.NodeName = node
		return p
	}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(pod("default-host-1", "w"), pod("default-host-2", "x"), pod("default-b-host-1", "w")).Build()
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w"}, Spec: v1alpha1.OnecloudMachineSpec{Cloud: "default"}}
	if pods, err := agentsOn(t.Context(), c, m, "w"); err != nil || len(pods) != 1 || pods[0].Name != "default-host-1" {
		t.Errorf("%v %v", pods, err)
	}
}

// TestOperationsOfFormerMachine checks that a machine takes no name of an operation on a removed machine of the same name: it would wait for it forever.
func TestOperationsOfFormerMachine(t *testing.T) {
	f := ready(held)
	f.machine.CreationTimestamp = metav1.NewTime(now)
	f.machine.Annotations[v1alpha1.AnnotationOperation] = v1alpha1.RequestChecking
	f.machine.Status.Request = &v1alpha1.MachineRequest{Operation: v1alpha1.RequestChecking}
	old := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "check-w-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	old.Spec.Action, old.Spec.Machine = v1alpha1.ActionPrecheckMachine, &v1alpha1.MachineParameters{Name: "w"}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(old).Build()
	var err error
	if f.operations, f.former, err = operationsOn(t.Context(), c, f.machine); err != nil || len(f.operations) != 0 {
		t.Fatal(f.operations, err)
	}
	d := decide(f)
	if d.create == nil || d.create.Name != "check-w-2" || d.status.Request.Name != "check-w-2" {
		t.Errorf("%+v", d.create)
	}
}

// TestOperationsByAnotherClock checks that a machine knows its operation although the API server that created it has an earlier time than the one that created the
// machine: it would create another operation in each reconcile until the clock reaches that time.
func TestOperationsByAnotherClock(t *testing.T) {
	f := ready()
	f.machine.CreationTimestamp = metav1.NewTime(now)
	var names []string
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	for range 3 {
		var err error
		f.operations, f.former, err = operationsOn(t.Context(), c, f.machine)
		require.NoError(t, err)
		d := decide(f)
		if d.create != nil {
			names, d.create.CreationTimestamp = append(names, d.create.Name), metav1.NewTime(now.Add(-10*time.Second))
			require.NoError(t, c.Create(t.Context(), d.create))
		}
		f.machine.Status = d.status
	}
	if !slices.Equal(names, []string{"join-w-1"}) {
		t.Errorf("created %q", names)
	}
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// infoWith describes a cluster with a CA.
func infoWith(ca string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: %s}\n", base64.StdEncoding.EncodeToString([]byte(ca)))}}
}

// The data follow the cluster's CA, and stay until the join has succeeded: the Node registers earlier.
func TestDataOfJoin(t *testing.T) {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w", UID: "m", Finalizers: []string{v1alpha1.MachineFinalizer}}}
	m.Spec.Cloud, m.Status.Phase = "default", v1alpha1.MachinePending
	join := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "join-w-1"}}
	join.Spec.Action, join.Spec.Machine = v1alpha1.ActionJoinMachine, &v1alpha1.MachineParameters{Name: "w"}
	old, fresh := string(certificate(t)), string(certificate(t))
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithStatusSubresource(m, join).WithObjects(m, join, infoWith(old),
		&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default", UID: "c"}}).Build()
	b := &Bootstrap{Options: Options{Client: c, Direct: c, Log: slog.Default()}}
	s, key := &corev1.Secret{}, client.ObjectKey{Namespace: "onecloud", Name: m.BootstrapSecret()}
	reconcile := func() error {
		t.Helper()
		b.known = nil // as after a while
		r, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		if err != nil || r.RequeueAfter > remake {
			t.Fatalf("%+v %v", r, err)
		}
		return c.Get(t.Context(), key, s)
	}
	if err := reconcile(); err != nil || !strings.Contains(string(s.Data[v1alpha1.BootstrapScript]), strings.TrimSpace(old)) {
		t.Fatalf("%v: %s", err, s.Data[v1alpha1.BootstrapScript])
	}
	inputs := s.ResourceVersion
	if err := reconcile(); err != nil || s.ResourceVersion != inputs {
		t.Fatalf("written again without a change: %v", err)
	}
	info := infoWith(fresh)
	require.NoError(t, c.Update(t.Context(), info))
	if err := reconcile(); err != nil || !strings.Contains(string(s.Data[v1alpha1.BootstrapScript]), strings.TrimSpace(fresh)) {
		t.Errorf("they keep the former CA: %v", err)
	}
	live := &v1alpha1.OnecloudMachine{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(m), live))
	live.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"}
	require.NoError(t, c.Status().Update(t.Context(), live))
	for _, phase := range []v1alpha1.OperationPhase{v1alpha1.OperationRunning, v1alpha1.OperationFailed, v1alpha1.OperationSucceeded} {
		join.Status.Phase = phase
		require.NoError(t, c.Status().Update(t.Context(), join))
		if err := reconcile(); apierrors.IsNotFound(err) != (phase == v1alpha1.OperationSucceeded) {
			t.Errorf("join %s: %v", phase, err)
		}
	}
}

// TestEndpointWithoutPort: kubeadm stores --control-plane-endpoint as given, so the port may be missing. It is the port in the cluster's kubeconfig.
func TestEndpointWithoutPort(t *testing.T) {
	for stored, want := range map[string]string{"lb.example.com": "lb.example.com:6443", "lb.example.com:7443": "lb.example.com:7443", "fd00::1": "[fd00::1]:6443", "": "192.0.2.1:6443"} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}}
		config.Data = map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: '" + stored + "'"}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(config, infoWith("ca")).Build()
		if got, err := ClusterOf(t.Context(), c, &v1alpha1.OnecloudMachine{}); err != nil || got.Endpoint != want {
			t.Errorf("%q: %q, want %q, %v", stored, got.Endpoint, want, err)
		}
	}
}

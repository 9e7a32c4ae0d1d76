// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// climc logs in with the password in the Secret: one chosen in the spec must be there, too.
func TestChosenBootstrapPasswordIsInTheSecret(t *testing.T) {
	cr := newCloud()
	b := newBench(t, interceptor.Funcs{}, cr)
	b.reconcile()
	before := &corev1.Secret{}
	b.get(before, "default-credentials")
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"keystone":{"bootstrapPassword":"Chosen@123"}}}`)(b.api))
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, "default-credentials")
	if got := string(now.Data[component.BootstrapPassword]); got != "Chosen@123" {
		t.Error("the chosen password is not in the Secret")
	}
	delete(before.Data, component.BootstrapPassword)
	delete(now.Data, component.BootstrapPassword)
	if !maps.EqualFunc(before.Data, now.Data, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("other passwords have changed")
	}
}

// The API gateway panics on a password of more than 16 bytes that are not a multiple of 16. A cloud that has such a password keeps it.
func TestGeneratedBootstrapPasswordSuitsTheGateway(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	secret := &corev1.Secret{}
	b.get(secret, "default-credentials")
	if n := len(secret.Data[component.BootstrapPassword]); n != 32 {
		t.Errorf("%d characters", n)
	}
	for key, value := range secret.Data {
		if key != component.BootstrapPassword && key != component.CloudID && len(value) != 24 {
			t.Errorf("%s has %d characters", key, len(value))
		}
	}
	secret.Data[component.BootstrapPassword] = []byte("anOldPasswordOf24Letters")
	require.NoError(t, b.api.Update(t.Context(), secret))
	b.reconcile()
	b.get(secret, "default-credentials")
	if got := string(secret.Data[component.BootstrapPassword]); got != "anOldPasswordOf24Letters" {
		t.Error("the password of an existing cloud is replaced")
	}
}

// When the database is permanently gone, a stuck deletion of a cloud with its databases must say what to do.
func TestDeletionWithoutDatabaseNamesTheRemedy(t *testing.T) {
	cr := newCloud()
	cr.Finalizers = []string{v1alpha1.Finalizer}
	cr.Spec.DeletionPolicy = v1alpha1.Delete
	b := newBench(t, interceptor.Funcs{}, cr)
	require.NoError(t, b.api.Delete(t.Context(), cr))
	_, err := b.r.Reconcile(t.Context(), request())
	if err == nil {
		t.Fatal("a database that cannot be reached is no error")
	}
	var message string
	for _, c := range b.cloud().Status.Conditions {
		if c.Type == v1alpha1.ConditionDegraded {
			message = c.Message
		}
	}
	if !strings.Contains(message, "db.example.com") || !strings.Contains(message, v1alpha1.AnnotationAbandon+"=databases") {
		t.Errorf("the condition says %q", message)
	}
	if strings.Contains(message, "admin-secret") {
		t.Error("the condition shows the password")
	}
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"deletionPolicy":"Retain"}}`)(b.api))
	b.reconcile()
	if err := b.api.Get(t.Context(), cloudKey, &v1alpha1.OnecloudCluster{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the cloud is still there: %v", err)
	}
}

// The annotation on a workload pauses that, and nothing else.
func TestPausedWorkloadIsNotChanged(t *testing.T) {
	var applied []string
	var one sync.Mutex
	b := newBench(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		one.Lock()
		defer one.Unlock()
		applied = append(applied, o.GetObjectKind().GroupVersionKind().Kind+"/"+o.GetName())
		return c.Patch(ctx, o, p, opts...)
	}}, newCloud())
	b.reconcile()
	etcd := &appsv1.StatefulSet{}
	b.get(etcd, "default-etcd") // it waits for nothing
	require.NoError(t, edit(t, etcd, "default-etcd", `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPaused+`":"true"}},"spec":{"replicas":5}}`)(b.api))
	applied = nil
	b.reconcile()
	for _, a := range applied {
		if a == "StatefulSet/default-etcd" {
			t.Error("a paused workload is written")
		}
	}
	if s := b.component("etcd"); !strings.Contains(s.Message, "paused") && s.State == v1alpha1.Available {
		t.Errorf("etcd is %s: %s", s.State, s.Message)
	}
	require.NoError(t, edit(t, etcd, "default-etcd", `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPaused+`":null}}}`)(b.api))
	b.reconcile()
	now := &appsv1.StatefulSet{}
	b.get(now, "default-etcd")
	if *now.Spec.Replicas != 1 {
		t.Errorf("afterwards it has %d replicas", *now.Spec.Replicas)
	}
}

// A lost Secret takes the names of the cloud's databases with it. Under the usual names, the services would start with empty databases.
func TestLostSecretGetsTheNamesOfTheReleaseBack(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	before := &corev1.Secret{}
	b.get(before, "default-credentials")
	names := map[string]string{component.CloudID: "of-the-cloud-before-a-restore", component.DatabaseName("region"): "compute", component.DatabaseUser("region"): "compute"}
	for key, name := range names {
		before.Data[key] = []byte(name)
	}
	require.NoError(t, b.api.Update(t.Context(), before))
	b.reconcile()
	require.NoError(t, b.api.Delete(t.Context(), before))
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, "default-credentials")
	for key, name := range names {
		if got := string(now.Data[key]); got != name {
			t.Errorf("%s is %q, not %q", key, got, name)
		}
	}
	config := &corev1.Secret{}
	b.get(config, "default-region-config")
	if !strings.Contains(string(config.Data["region.conf"]), "/compute?") {
		t.Error("region uses another database")
	}
	// A deletion of the whole namespace takes the releases, too. The databases to drop are still known.
	if got := idOf(State{Cloud: b.cloud()}); got != names[component.CloudID] {
		t.Errorf("without Secret and release, the databases of %q are dropped", got)
	}
}

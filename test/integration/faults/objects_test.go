// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

const hold = "example.com/hold"

// patch changes an object as a user does.
func (w *faulty) patch(t testing.TB, o client.Object, name, merge string) {
	t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	// It may be called for cleanup, after the test's own context has ended.
	ctx := context.WithoutCancel(t.Context())
	if err := w.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(merge)), client.FieldOwner("kubectl-edit")); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// TestForeignFinalizer checks that a foreign finalizer prevents the deletion of a workload, and then of the cloud itself. The status names both.
func TestForeignFinalizer(t *testing.T) {
	w := use(t)
	o := w.install(t, w.minimal())
	t.Cleanup(func() { w.patch(t, &appsv1.Deployment{}, "default-region", `{"metadata":{"finalizers":null}}`) })
	w.patch(t, &appsv1.Deployment{}, "default-region", `{"metadata":{"finalizers":["`+hold+`"]}}`)
	w.In(t).Edit(`{"metadata":{"finalizers":["` + v1alpha1.Finalizer + `","` + hold + `"]}}`)
	if f := w.In(t).TryCloud().Finalizers; !slices.Contains(f, v1alpha1.Finalizer) {
		t.Fatalf("the cloud's finalizers are %q", f)
	}
	w.remove(t)
	w.untilDeleting(t, o, "Deployment default-region is blocked by the finalizer "+hold)
	before := o.has()
	began := time.Now()
	time.Sleep(lasting(time.Second, 10*time.Second))
	atMost(t, "requests to the API server", o.has().minus(before).requests, 20, 2, time.Since(began))
	left := slices.Sorted(maps.Keys(w.generations(t)))
	if !slices.Equal(left, []string{"keystone", "region"}) {
		t.Errorf("left are %q: what comes after the one that is kept should be gone, what comes before should not", left)
	}
	w.patch(t, &appsv1.Deployment{}, "default-region", `{"metadata":{"finalizers":null}}`)
	w.untilDeleting(t, o, "its own deletion is blocked by the finalizer "+hold)
	w.In(t).Edit(`{"metadata":{"finalizers":null}}`)
	w.untilGone(t, o)
}

// TestOrphanedPod checks that a pod that its workload left behind holds up a deletion, is named with a remedy, and is not touched.
func TestOrphanedPod(t *testing.T) {
	if os.Getenv("OCADM_SWEEP") == "" {
		t.Skip("it takes half a minute and is shown with OCADM_SWEEP=all; package operatorctl has a test with a clock of its own")
	}
	w := use(t)
	o := w.install(t, w.minimal())
	d := &appsv1.Deployment{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default-glance"}, d))
	pod := &corev1.Pod{Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.Labels = namespace, "default-glance-left", d.Spec.Template.Labels
	require.NoError(t, w.Client.Create(t.Context(), pod))
	t.Cleanup(func() { _ = client.IgnoreNotFound(w.Client.Delete(context.WithoutCancel(t.Context()), pod)) })
	w.remove(t)
	w.untilDeleting(t, o, "(kubectl -n onecloud delete pod default-glance-left)")
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the pod was touched: %v, deleted %v", err, pod.DeletionTimestamp)
	}
	require.NoError(t, w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.untilGone(t, o)
}

func (w *faulty) untilDeleting(t testing.TB, o *operator, text string) {
	t.Helper()
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		return slices.ContainsFunc(cr.Status.Conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, text) }), env.States(cr)
	})
}

// TestQuota checks that objects rejected by a quota are reported at their component, and are created once the quota is lifted.
func TestQuota(t *testing.T) {
	w := use(t)
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/persistentvolumeclaims": resource.MustParse("0")}}}
	quota.Namespace, quota.Name = namespace, "tight"
	require.NoError(t, w.Client.Create(t.Context(), quota))
	remove := func() { _ = client.IgnoreNotFound(w.Client.Delete(context.WithoutCancel(t.Context()), quota)) }
	t.Cleanup(remove)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // no controller counts here
	require.NoError(t, w.Client.Status().Update(t.Context(), quota))
	o := w.run(t)
	began := time.Now()
	w.In(t).Create(w.minimal())
	w.untilSays(t, o, "glance", v1alpha1.Degraded, "exceeded quota: tight")
	for _, c := range []string{"keystone", "region", "yunionconf", "web", "host-deployer"} {
		w.untilSays(t, o, c, v1alpha1.Available)
	}
	time.Sleep(lasting(time.Second, time.Minute))
	tries := 0
	for _, e := range o.all() {
		if strings.Contains(e.what, "persistentvolumeclaims") {
			tries++
		}
	}
	atMost(t, "tries", tries, 3, 1, time.Since(began))
	remove()
	w.untilReady(t, o, -1)
}

// TestThereAndBack changes the release without waves, and changes it back while the pods are being replaced.
func TestThereAndBack(t *testing.T) {
	w := use(t)
	o := w.install(t, w.minimal())
	want := withoutGenerations(w.state(t))
	was := w.generations(t)
	w.Kubelet.Hold("Deployment", namespace, "default-region")
	defer w.Kubelet.Release(t.Context(), "Deployment", namespace, "default-region")
	w.In(t).MoveAtOnce("v4.0.5")
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		c := env.Component(cr, "region")
		return c.State == v1alpha1.Progressing && strings.HasSuffix(c.Image, ":v4.0.5"), env.States(cr)
	})
	if v := w.In(t).TryCloud().Status.Version; v != "v4.0.4" {
		t.Errorf("the cloud says it is %s before the last component has moved", v)
	}
	w.In(t).MoveAtOnce("v4.0.4")
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		c := env.Component(cr, "region")
		return strings.HasSuffix(c.Image, ":v4.0.4") && cr.Status.ObservedGeneration == cr.Generation, env.States(cr)
	})
	w.Kubelet.Release(t.Context(), "Deployment", namespace, "default-region")
	w.untilReady(t, o, -1)
	have := withoutGenerations(w.state(t))
	delete(want, "OnecloudCluster default") // a user is among its managers now
	delete(have, "OnecloudCluster default")
	for _, d := range differences(want, have) {
		t.Error(d)
	}
	for name, now := range w.generations(t) {
		if moves := now - was[name]; moves != 0 && moves != 2 {
			t.Errorf("%s was changed %d times", name, moves)
		}
	}
}

// TestConflictStorm has another client write to several objects ten times a second. The operator gives in for a while, names the other client, and maintains the rest.
func TestConflictStorm(t *testing.T) {
	w := use(t)
	o := w.install(t, w.minimal())
	targets := []string{"default-glance", "default-region", "default-yunionconf"}
	before, began := len(o.all()), time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	for _, name := range targets {
		storm.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				d := &appsv1.Deployment{}
				d.Namespace, d.Name = namespace, name
				image := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/other:%d"}]`, n)
				err := w.Client.Patch(ctx, d, client.RawPatch(types.JSONPatchType, []byte(image)), client.FieldOwner("hostile"))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
				}
				<-tick.C
			}
		})
	}
	for _, name := range []string{"glance", "region", "yunionconf"} {
		w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
			return strings.Contains(env.Component(cr, name).Message, "hostile"), env.States(cr)
		})
	}
	w.drift(t, "default-web")
	w.untilHealed(t, o, "default-web")
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		return !slices.ContainsFunc([]string{"keystone", "web", "host-deployer"}, func(n string) bool {
			return env.Component(cr, n).State != v1alpha1.Available
		}), env.States(cr)
	})
	time.Sleep(lasting(0, 30*time.Second))
	stop()
	storm.Wait()
	writes := 0
	for _, e := range o.all()[before:] {
		if slices.ContainsFunc(targets, func(n string) bool { return strings.HasSuffix(e.what, "/deployments/"+n) }) {
			writes++
		}
	}
	// Twenty immediately and then one every ten seconds, for each.
	atMost(t, "writes against the storm", writes, 3*21, 0.3, time.Since(began))
	for _, name := range targets {
		w.untilThere(t, o, &appsv1.Deployment{}, name, func(x client.Object) (bool, string) {
			d, ok := x.(*appsv1.Deployment)
			return ok && !strings.HasPrefix(d.Spec.Template.Spec.Containers[0].Image, "example.com/"), "the image is not restored"
		})
	}
}

// TestNamespaceTerminating checks that in a terminating namespace, where nothing can be created, the operator retries occasionally, and that the cloud can be deleted.
func TestNamespaceTerminating(t *testing.T) {
	w := use(t)
	const fleeting = "fleeting"
	ns := &corev1.Namespace{}
	ns.Name = fleeting
	require.NoError(t, w.Client.Create(t.Context(), ns))
	rights := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleeting, Name: "operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: env.OperatorUser}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	require.NoError(t, w.Client.Create(t.Context(), rights))
	o := w.run(t, func(o *operatorctl.Options) { o.Namespaces = []string{namespace, fleeting} })
	cr := w.minimal()
	cr.Namespace = fleeting
	cr.Finalizers = []string{v1alpha1.Finalizer} // an earlier pass has set it
	cr.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"}
	require.NoError(t, w.Client.Create(t.Context(), cr))
	require.NoError(t, w.Client.Delete(t.Context(), ns))
	unpause := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))
	before, began := o.has(), time.Now()
	require.NoError(t, w.Client.Patch(t.Context(), cr, unpause))
	get := func() *v1alpha1.OnecloudCluster {
		got := &v1alpha1.OnecloudCluster{}
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(cr), got); err != nil {
			return nil
		}
		return got
	}
	for deadline := began.Add(env.Patience); ; time.Sleep(20 * time.Millisecond) {
		if got := get(); got != nil && strings.Contains(fmt.Sprint(got.Status.Conditions), "because it is being terminated") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", env.States(get()), o.tail(12))
		}
	}
	time.Sleep(lasting(time.Second, time.Minute))
	atMost(t, "requests to the API server", o.has().minus(before).requests, 90, 8, time.Since(began)) // a pass that tries everything sends 73
	require.NoError(t, w.Client.Delete(t.Context(), cr))
	for deadline := time.Now().Add(env.Patience); get() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", env.States(get()), o.tail(12))
		}
	}
}

// TestSecrets deletes and edits the Secrets on which everything depends.
func TestSecrets(t *testing.T) {
	w := use(t)
	o := w.install(t, w.minimal())
	lose := func(name string) {
		t.Helper()
		s := &corev1.Secret{}
		s.Namespace, s.Name = namespace, name
		passed, _ := passes(t)
		require.NoError(t, w.Client.Delete(t.Context(), s))
		w.untilThere(t, o, &corev1.Secret{}, name, func(x client.Object) (bool, string) { return x.GetDeletionTimestamp() == nil, "it is going" })
		w.untilReady(t, o, passed)
	}
	t.Run("the credentials are deleted", func(t *testing.T) {
		old := w.secrets(t)
		was := w.state(t)
		lose("default-credentials")
		w.untilTold(t, o, "CredentialsReplaced", "default-credentials")
		now := w.secrets(t)
		for _, c := range []string{"keystone", "region", "glance", "yunionconf"} {
			key := "default-credentials/" + c + ".database-password"
			if now[key] == "" || now[key] == old[key] {
				t.Errorf("%s is the old one", key)
			}
		}
		// All databases, accounts and pods have the new ones, and nothing else has changed.
		is := w.state(t)
		for _, state := range []map[string]string{was, is} {
			delete(state, "records keystone.service_configs") // it stores its options when it starts, and it has restarted
		}
		for _, d := range differences(withoutGenerations(was), withoutGenerations(is)) {
			t.Error(d)
		}
	})
	t.Run("the certificates are deleted", func(t *testing.T) {
		old := w.secrets(t)
		lose("default-certs")
		if now := w.secrets(t); now["default-certs/ca.crt"] != old["default-certs/ca.crt"] || now["default-certs/service.crt"] == old["default-certs/service.crt"] || now["default-credentials/"+"glance.database-password"] != old["default-credentials/"+"glance.database-password"] {
			t.Error("the same CA was expected, another certificate, and the same credentials")
		}
	})
	t.Run("a certificate is edited", func(t *testing.T) {
		old := w.secrets(t)
		w.patch(t, &corev1.Secret{}, "default-certs", `{"data":{"service.crt":"eA=="}}`)
		w.untilThere(t, o, &corev1.Secret{}, "default-certs", func(x client.Object) (bool, string) {
			s, ok := x.(*corev1.Secret)
			return ok && strings.Contains(string(s.Data["service.crt"]), "BEGIN CERTIFICATE"), "it is not healed"
		})
		w.untilReady(t, o, -1)
		if now := w.secrets(t); now["default-certs/ca.crt"] != old["default-certs/ca.crt"] {
			t.Error("the CA is another")
		}
	})
	t.Run("the CA is edited", func(t *testing.T) {
		old := w.secrets(t)["default-certs/ca.crt"]
		w.patch(t, &corev1.Secret{}, "default-certs", `{"data":{"ca.crt":"eA=="}}`)
		w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
			return strings.Contains(fmt.Sprint(cr.Status.Conditions), `reading the CA in Secret "default-certs"`), env.States(cr)
		})
		w.patch(t, &corev1.Secret{}, "default-certs", fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, old))
		w.untilReady(t, o, -1)
		w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
			return !strings.Contains(fmt.Sprint(cr.Status.Conditions), "reading the CA"), env.States(cr)
		})
	})
}

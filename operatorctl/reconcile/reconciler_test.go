// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/test/require"
)

// bench is a reconciler on a fake client. Nothing outside Kubernetes is reachable. cache is what the reconciler reads, api the real state: they
// differ in tests of a stale cache.
type bench struct {
	t      *testing.T
	r      *Reconciler
	api    client.WithWatch
	events *events.FakeRecorder
	clock  time.Time
}

// TestMain makes the garbage collector run less often: the fake client decodes and encodes each object several times.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// b0 is the start time of every bench.
var b0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func request() ctrl.Request { return ctrl.Request{NamespacedName: cloudKey} }

var cloudKey = types.NamespacedName{Namespace: "onecloud", Name: "default"}

func newCloud() *v1alpha1.OnecloudCluster {
	return &v1alpha1.OnecloudCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: cloudKey.Name, UID: "11111111-2222-3333-4444-555555555555", Generation: 1},
		Spec: v1alpha1.OnecloudClusterSpec{
			MySQL: v1alpha1.DatabaseServer{Host: "db.example.com", Port: 3306, Username: "root", Password: "admin-secret"}, Version: "v4.0.4",
		},
	}
}

// testScheme has only the kinds of a cloud's objects: the fake client goes through all kinds of its scheme at every write.
func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

func newBench(t *testing.T, funcs interceptor.Funcs, objs ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, events: events.NewFakeRecorder(1000), clock: b0}
	b.api = fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objs...).WithStatusSubresource(&v1alpha1.OnecloudCluster{}).
		WithReturnManagedFields().Build()
	refused := errors.New("nothing can be reached in this test")
	var err error
	b.r, err = New(interceptor.NewClient(b.api, funcs), b.api, b.events, Options{
		Log: slog.New(slog.DiscardHandler),
		Connections: effects.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: refused}
		}},
	})
	require.NoError(t, err)
	b.r.setClock(func() time.Time { return b.clock })
	return b
}

func (r *Reconciler) setClock(now func() time.Time) {
	r.reads.now, r.acts.now, r.acts.applier.Now = now, now, now
}

func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	res, err := b.r.Reconcile(b.t.Context(), request())
	require.NoError(b.t, err)
	return res
}

func (b *bench) cloud() *v1alpha1.OnecloudCluster {
	b.t.Helper()
	cr := &v1alpha1.OnecloudCluster{}
	b.get(cr, cloudKey.Name)
	return cr
}

func (b *bench) get(o client.Object, name string) {
	b.t.Helper()
	require.NoError(b.t, b.api.Get(b.t.Context(), types.NamespacedName{Namespace: cloudKey.Namespace, Name: name}, o))
}

func (b *bench) component(name string) v1alpha1.ComponentStatus {
	b.t.Helper()
	s := previous(b.cloud().Status, name)
	if s == nil {
		b.t.Fatalf("no status of %s", name)
	}
	return *s
}

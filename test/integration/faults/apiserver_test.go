// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/require"
)

const foreign = "example.com/other:v1"

// drift changes the image of a Deployment, as a user does by hand.
func (w *faulty) drift(t testing.TB, name string) {
	t.Helper()
	d := &appsv1.Deployment{}
	w.In(t).Get(d, name)
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+foreign+`"}]`))
	require.NoError(t, w.Client.Patch(t.Context(), d, patch, client.FieldOwner("kubectl-edit")))
}

func (w *faulty) untilHealed(t testing.TB, o *operator, name string) {
	t.Helper()
	w.untilThere(t, o, &appsv1.Deployment{}, name, func(x client.Object) (bool, string) {
		d, ok := x.(*appsv1.Deployment)
		return ok && d.Spec.Template.Spec.Containers[0].Image != foreign, "the image is not restored"
	})
}

// TestAPIServer checks that an operator with a cloud survives whatever happens to the API server, and continues afterwards.
func TestAPIServer(t *testing.T) {
	w := use(t)
	var conns connections
	w.dial = conns.dial
	defer func() { w.dial = nil }()
	o := w.install(t, w.minimal())
	for _, fault := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"hangs", func(t *testing.T) {
			require.NoError(t, w.Cluster.Signal("kube-apiserver", syscall.SIGSTOP))
			time.Sleep(lasting(3*time.Second, time.Minute))
			require.NoError(t, w.Cluster.Signal("kube-apiserver", syscall.SIGCONT))
		}},
		{"is gone", func(t *testing.T) {
			require.NoError(t, w.Cluster.Kill("kube-apiserver"))
			time.Sleep(lasting(3*time.Second, time.Minute))
			require.NoError(t, w.Cluster.Restart(t.Context(), "kube-apiserver"))
		}},
		{"cuts every watch", func(*testing.T) { conns.cut() }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			before, effects, began := o.has(), len(o.all()), time.Now()
			fault.do(t)
			w.drift(t, "default-glance")
			w.untilHealed(t, o, "default-glance")
			w.untilReady(t, o, -1)
			asked, lasted := o.has().minus(before), time.Since(began)
			// A dozen watches reconnect, each with its back-off from 0.8 s to 30 s, and list objects.
			atMost(t, "requests to the API server", asked.requests, 80, 15, lasted)
			if asked.sql+asked.services > 0 {
				t.Errorf("it asked the database %d times, the services %d times", asked.sql, asked.services)
			}
			for _, e := range o.all()[effects:] {
				if e.what != "PATCH /apis/apps/v1/deployments/default-glance" && e.what != "PATCH /apis/onecloud.yunion.io/v1alpha1/onecloudclusters/default/status" {
					t.Errorf("it also made %s", e.what)
				}
			}
		})
	}
}

// connections are an operator's connections to the API server.
type connections struct {
	mu  sync.Mutex
	all []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		c.all = append(c.all, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close() // the operator's side notices
	}
	c.all = nil
}

// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// operator returns the Deployment of the operator with a ready pod on each of these nodes.
func operator(replicas int32, nodes ...string) []client.Object {
	labels := map[string]string{"app": cluster.OperatorName}
	out := []client.Object{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.OperatorName},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}}}}
	for i, n := range nodes {
		p := pod(fmt.Sprintf("%s-%d", cluster.OperatorName, i), n, true)
		p.Namespace, p.Labels = cluster.DefaultNamespace, labels
		out = append(out, p)
	}
	return out
}

// The operator gets one more replica, once, if there is a node for it, and a user's choice stays.
func TestAddOperator(t *testing.T) {
	cordoned := node("n2", true, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	for name, c := range map[string]struct {
		has  []client.Object
		want int32
		err  string
	}{
		"a node for it":        {append(operator(1, "n1"), node("n1", true), node("n2", true)), 2, ""},
		"one control plane":    {append(operator(1, "n1"), node("n1", true)), 1, "1 of 1 control-plane nodes are Ready"},
		"it is not Ready yet":  {append(operator(1, "n1"), node("n1", true), node("n2", false)), 1, "1 of 2 control-plane nodes are Ready"},
		"it takes no pods":     {append(operator(1, "n1"), node("n1", true), cordoned), 1, "1 of 2 control-plane nodes are Ready"},
		"a user has three":     {append(operator(3, "n1"), node("n1", true), node("n2", true)), 3, ""},
		"a user stopped it":    {append(operator(0), node("n1", true), node("n2", true)), 0, ""},
		"there is no operator": {[]client.Object{node("n1", true), node("n2", true)}, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := (&api{}).client(c.has...)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			r := &recorder{}
			err := addOperator(ctx, k, time.Millisecond, r)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
			got := int32(-1)
			var d appsv1.Deployment
			if k.Get(t.Context(), operatorKey(), &d) == nil {
				got = *d.Spec.Replicas
			}
			if got != c.want || (len(r.changed) == 1) != (c.want == 2) {
				t.Errorf("%d copies, want %d; changed %q", got, c.want, r.changed)
			}
		})
	}
}

// Refusals do not fail a join; its cancellation does. A second run does nothing.
func TestOperatorPhase(t *testing.T) {
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	p := Operator()
	if p.Skip(h) == "" {
		t.Error("it runs on a worker")
	}
	k := (&api{}).client(append(operator(1, "n1"), node("n1", true), node("n2", true))...)
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	for _, want := range []bool{false, true} {
		if done, err := p.Check(t.Context(), h); done != want || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		if err := p.Run(t.Context(), h, &recorder{}); err != nil {
			t.Error(err)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, cluster.OperatorName, nil)
	k = fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
	}).Build()
	r := &recorder{}
	if err := p.Run(t.Context(), h, r); err != nil || len(r.info) != 1 || !strings.Contains(r.info[0], "ocadm ha status") {
		t.Errorf("%v, %q", err, r.info)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(gone, h, &recorder{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func coreDNS(replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: dnsName, Labels: dnsLabels()},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: dnsLabels()}}}
	for _, f := range change {
		f(d)
	}
	return d
}

func pod(name, node string, is bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: dnsLabels()}, Spec: corev1.PodSpec{NodeName: node}}
	if is {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func node(name string, is bool, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelControlPlane: ""}}, Spec: corev1.NodeSpec{Taints: taints}}
	if is {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return n
}

// api is an API server. place is the node for the successor of an evicted pod; a refuse error prevents the eviction.
type api struct {
	place  string
	refuse error
	asked  []string
}

func (c *api) client(objects ...client.Object) client.WithWatch {
	create := func(ctx context.Context, k client.Client, _ string, o, _ client.Object, _ ...client.SubResourceCreateOption) error {
		c.asked = append(c.asked, o.GetName())
		if c.refuse != nil {
			return c.refuse
		}
		if err := k.Delete(ctx, o); err != nil {
			return err
		}
		return k.Create(ctx, pod("successor", c.place, true))
	}
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: create}).Build()
}

type recorder struct {
	workflow.Discard
	info, changed []string
}

func (r *recorder) Info(f string, args ...any) { r.info = append(r.info, fmt.Sprintf(f, args...)) }
func (r *recorder) Changed(f string, args ...any) {
	r.changed = append(r.changed, fmt.Sprintf(f, args...))
}

func TestDone(t *testing.T) {
	keep := corev1.Taint{Key: "example.org/mine", Effect: corev1.TaintEffectNoSchedule}
	starts := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	both := []client.Object{node("n1", true), node("n2", true)}
	helm := coreDNS(2, func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "coredns" })
	managed := coreDNS(2, func(d *appsv1.Deployment) { d.Labels[v1alpha1.LabelManagedBy] = "Helm" })
	for name, c := range map[string]struct {
		has  []client.Object
		done bool
	}{
		"both on one node":                {append(both, coreDNS(2), pod("a", "n1", true), pod("b", "n1", true)), false},
		"spread":                          {append(both, coreDNS(2), pod("a", "n1", true), pod("b", "n2", true)), true},
		"one on a worker":                 {append(both, coreDNS(2), pod("a", "n1", true), pod("b", "worker", true)), true},
		"no DNS":                          {both, true},
		"that of another, by its labels":  {append(both, helm, pod("a", "n1", true), pod("b", "n1", true)), true},
		"that of another, by its manager": {append(both, managed, pod("a", "n1", true), pod("b", "n1", true)), true},
		"one pod is wanted":               {append(both, coreDNS(1), pod("a", "n1", true)), true},
		"no other node":                   {[]client.Object{node("n1", true), coreDNS(2), pod("a", "n1", true), pod("b", "n1", true)}, true},
		"the other takes no pods":         {[]client.Object{node("n1", true), node("n2", true, keep), coreDNS(2), pod("a", "n1", true), pod("b", "n1", true)}, true},
		"the other is not Ready yet":      {[]client.Object{node("n1", true), node("n2", false, starts), coreDNS(2), pod("a", "n1", true), pod("b", "n1", true)}, false},
		"one has no node yet":             {append(both, coreDNS(2), pod("a", "n1", true), pod("b", "", false)), false},
		"one is missing":                  {append(both, coreDNS(2), pod("a", "n1", true)), false},
	} {
		d, err := readDNS(t.Context(), (&api{}).client(c.has...))
		if err != nil || d.done() != c.done {
			t.Errorf("%s: %v, %v", name, d.done(), err)
		}
	}
}

// One pod is evicted, once, and only while the others answer.
func TestMove(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", nil)
	budget := apierrors.NewTooManyRequestsError("a budget")
	for name, c := range map[string]struct {
		api
		has     []client.Object
		evicted bool
		asked   bool
		ends    bool
		why     string
	}{
		"it moves":            {api{place: "n2"}, []client.Object{pod("a", "n1", true), pod("b", "n1", true)}, true, true, true, ""},
		"it is spread":        {api{}, []client.Object{pod("a", "n1", true), pod("b", "n2", true)}, false, false, true, ""},
		"one elsewhere comes": {api{}, []client.Object{pod("a", "n1", true), pod("b", "n2", false)}, false, false, true, ""},
		"it comes back":       {api{place: "n1"}, []client.Object{pod("a", "n1", true), pod("b", "n1", true)}, true, true, true, "was also placed on node n1"},
		"the API refuses":     {api{refuse: forbidden}, []client.Object{pod("a", "n1", true), pod("b", "n1", true)}, false, true, true, "forbidden"},
		"a budget refuses":    {api{refuse: budget}, []client.Object{pod("a", "n1", true), pod("b", "n1", true)}, false, true, false, "a budget"},
		"one alone answers":   {api{place: "n2"}, []client.Object{pod("a", "n1", true), pod("b", "n1", false)}, false, false, false, "pod b is not ready"},
		"one alone is there":  {api{place: "n2"}, []client.Object{pod("a", "n1", true)}, false, false, false, "1 of 2"},
		"one has no node":     {api{place: "n2"}, []client.Object{pod("a", "n1", true), pod("b", "", false)}, false, false, false, "no node yet"},
	} {
		t.Run(name, func(t *testing.T) {
			k := c.client(append(c.has, node("n1", true), node("n2", true), coreDNS(2))...)
			r := &recorder{}
			m := mover{k: k, r: r}
			done, why := false, ""
			for range 4 {
				var err error
				if done, why, err = m.step(t.Context()); err != nil {
					why = err.Error()
				}
				if done {
					break
				}
			}
			if done != c.ends || m.moved != c.evicted || (len(r.changed) == 1) != c.evicted || (len(c.api.asked) > 0) != c.asked {
				t.Errorf("done %v, moved %v, changed %q, asked %q", done, m.moved, r.changed, c.api.asked)
			}
			if !strings.Contains(why, c.why) || c.why == "" && why != "" {
				t.Errorf("%q", why)
			}
		})
	}
	var c api
	m := mover{k: c.client(node("n1", true), node("n2", false), coreDNS(2), pod("a", "n1", true), pod("b", "n1", true)), r: &recorder{}}
	if done, why, err := m.step(t.Context()); done || why != "node n2 is not Ready" || err != nil || len(c.asked) > 0 {
		t.Errorf("%v, %q, %v", done, why, err)
	}
}

// Refusals do not fail a join; its cancellation does. A second run does nothing.
func TestPhase(t *testing.T) {
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	p := DNS()
	if p.Skip(h) == "" {
		t.Error("it runs on a worker")
	}
	if h.Config.Join.ControlPlane = true; p.Skip(h) != "" {
		t.Error("it does not run on a control-plane node")
	}
	on := func(c *api) {
		k := c.client(node("n1", true), node("n2", true), coreDNS(2), pod("a", "n1", true), pod("b", "n1", true))
		h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	}
	on(&api{place: "n2"})
	for _, want := range []bool{false, true} {
		done, err := p.Check(t.Context(), h)
		if done != want || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		if err := p.Run(t.Context(), h, &recorder{}); err != nil {
			t.Error(err)
		}
	}
	on(&api{refuse: errors.New("no")})
	r := &recorder{}
	if err := p.Run(t.Context(), h, r); err != nil || len(r.info) != 1 || !strings.Contains(r.info[0], "ocadm ha status") {
		t.Errorf("%v, %q", err, r.info)
	}
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("no cluster") }
	if done, err := p.Check(t.Context(), h); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if err := p.Run(t.Context(), h, &recorder{}); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(gone, h, &recorder{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	clouds "yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// neighbours lists the components of both clouds: every kind of effect, nearly every kind of object, and all unusual kinds of ports.
var neighbours = []string{"keystone", "region", "glance", "yunionconf", "web", "etcd", "victoria-metrics", "ovn-north"}

// TestTwoClouds checks that an operator manages two clouds in two namespaces and that nothing that happens to one, even its deletion, affects the
// other. Kubernetes' controllers are real, so there are pods that could be restarted.
func TestTwoClouds(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Pods, Database: &mariadb.Options{GeneralLog: true}})
	e.deployment()
	first, second := neighbour{e.Env}, neighbour{e.At("tenant-b")}
	second.DB = mariadb.Require(t, mariadb.Options{GeneralLog: true})

	first.startWatching()
	cr := first.cloud()
	first.Create(cr)
	first.UntilReady()
	was, databases := first.untilStill(), first.databases()
	if len(was) < 50 || len(databases) < 4 || was["Pod/"+cloud+"-etcd-0"] == "" {
		t.Fatalf("only %d objects, databases %q: %v", len(was), databases, was)
	}
	from := first.Mark()
	statements := first.statements()
	untouched := func(when string) {
		t.Helper()
		now := first.objects()
		for name, version := range now {
			if was[name] != version {
				t.Errorf("%s, %s of the other cloud is %q, was %q", when, name, version, was[name])
			}
		}
		if len(now) != len(was) {
			t.Errorf("%s, the other cloud has %d objects, had %d", when, len(now), len(was))
		}
		if now := first.databases(); !slices.Equal(now, databases) {
			t.Errorf("%s, the other cloud has %q, had %q", when, now, databases)
		}
	}

	second.watch()
	second.Create(otherPorts(second.cloud(), 31001))
	second.UntilReady()
	untouched("after an installation")

	second.Edit(`{"spec":{"version":"v4.0.5","glance":{"disable":true}}}`)
	second.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool { return env.IsReady(cr) && cr.Status.Version == "v4.0.5" })
	untouched("after an upgrade")

	second.Delete()
	untouched("after a deletion")
	second.Eventually(func() (bool, string) {
		left := second.objects()
		return len(left) == 0, fmt.Sprint("left of the deleted cloud: ", left)
	})
	if left := second.databases(); len(left) > 0 {
		t.Errorf("left in its database server: %q", left)
	}

	first.wroteNothing(from)
	if now := first.statements(); !slices.Equal(now, statements) {
		t.Errorf("the operator said to the other cloud's database server:\n%s", strings.Join(now[len(statements):], "\n"))
	}
	first.heals()
	first.UntilReady()
}

// deployment creates the operator's own objects, including its Deployment.
func (e *cloudTest) deployment() {
	e.Helper()
	objs, err := operator.Objects("r.example.com/ocadm:v1")
	require.NoError(e, err)
	if _, err := kube.Apply(e.Context(), e.Client, kube.FieldManager, objs...); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		_ = e.Client.Delete(context.WithoutCancel(e.Context()), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operator.Name}})
	})
}

// neighbour is one of two clouds and has its own database server.
type neighbour struct{ *env.Env }

func (n neighbour) cloud() *v1alpha1.OnecloudCluster {
	cr := n.Only(neighbours...)
	cr.Spec.DeletionPolicy = v1alpha1.Delete
	return cr
}

// startWatching runs the operator as its Deployment specifies.
func (n neighbour) startWatching() {
	n.Helper()
	d := &appsv1.Deployment{}
	require.NoError(n, n.Client.Get(n.Context(), client.ObjectKey{Namespace: operator.Namespace, Name: operator.Name}, d))
	n.StartOperator(func(l *env.Launch) { l.Options.Namespaces = clouds.WatchedBy(d) })
}

// watch runs the command that makes the operator manage the clouds of a namespace. The change to its Deployment then restarts the operator.
func (n neighbour) watch() {
	n.Helper()
	prints(n.Env, n.Namespace, "operator", "namespace", "add", n.Namespace)
	n.StopOperator()
	n.startWatching()
}

// otherPorts returns a cloud with all its node ports changed, numbered from the given one: two clouds in a cluster cannot share ports.
func otherPorts(cr *v1alpha1.OnecloudCluster, from int64) *v1alpha1.OnecloudCluster {
	return harness.Edited(cr, func(set func(v any, path ...string)) {
		for _, c := range catalog.All() {
			for _, s := range c.Services() {
				for _, p := range s.Ports {
					if p.SpecKey != "" && !s.Headless {
						set(from, append(c.SpecPath(), strings.Split(p.SpecKey, ".")...)...)
						from++
					}
				}
			}
		}
	})
}

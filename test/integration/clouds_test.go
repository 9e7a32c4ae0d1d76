// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	clouds "yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/integration/instant"
	"yunion.io/x/ocadm/test/mariadb"
)

// neighbours are the components of both clouds: every kind of effect, nearly every kind of object, and all that have ports of an unusual kind.
var neighbours = []string{"keystone", "region", "glance", "yunionconf", "web", "etcd", "victoria-metrics", "ovn-north"}

// TestTwoClouds: an operator looks after two clouds in two namespaces. All that happens to one, its end included, does not touch the
// other. The controllers of Kubernetes are real, so that there are pods that could be restarted.
func TestTwoClouds(t *testing.T) {
	k := newClouds(t)
	first, second := k.tenant("onecloud"), k.tenant("tenant-b")

	k.startOperator()
	k.create(first)
	k.untilReady(first)
	was, databases := k.untilStill(first), first.databases(t)
	if len(was) < 50 || len(databases) < 4 || was["*v1.Pod/"+cloud+"-etcd-0"] == "" {
		t.Fatalf("only %d objects, databases %q: %v", len(was), databases, was)
	}
	from, err := k.cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	statements := first.statements(t)
	untouched := func(when string) {
		t.Helper()
		for name, version := range k.objects(first) {
			if was[name] != version {
				t.Errorf("%s, %s of the other cloud is %q, was %q", when, name, version, was[name])
			}
		}
		if now := k.objects(first); len(now) != len(was) {
			t.Errorf("%s, the other cloud has %d objects, had %d", when, len(now), len(was))
		}
		if now := first.databases(t); !slices.Equal(now, databases) {
			t.Errorf("%s, the other cloud has %q, had %q", when, now, databases)
		}
	}

	k.watch("tenant-b")
	k.create(second)
	k.untilReady(second)
	untouched("after an installation")

	k.edit(second, `{"spec":{"version":"v4.0.5","glance":{"disable":true}}}`)
	k.until(second, func(cr *v1alpha1.OnecloudCluster) bool { return isReady(cr) && cr.Status.Version == "v4.0.5" })
	untouched("after an upgrade")

	k.delete(second)
	untouched("after a deletion")
	if left := k.untilGone(second); len(left) > 0 {
		t.Errorf("left of the deleted cloud: %q", left)
	}
	if left := second.databases(t); len(left) > 0 {
		t.Errorf("left in its database server: %q", left)
	}

	k.wroteNothing(first, from)
	if now := first.statements(t); !slices.Equal(now, statements) {
		t.Errorf("the operator said to the other cloud's database server:\n%s", strings.Join(now[len(statements):], "\n"))
	}
	k.heals(first)
	k.untilReady(first)
}

// neighbourhood is a cluster with several clouds, each with a database server of its own, and an operator.
type neighbourhood struct {
	t        *testing.T
	cluster  *harness.Cluster
	client   client.WithWatch
	log      harness.Log
	services map[string]*instant.Services
	stop     func()
}

// tenant is a cloud, its namespace, and its database server.
type tenant struct {
	namespace string
	db        *mariadb.Server
	cr        *v1alpha1.OnecloudCluster
}

func newClouds(t *testing.T) *neighbourhood {
	t.Helper()
	log.SetOutput(io.Discard) // the stand-ins tell every request
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	k := &neighbourhood{t: t, cluster: harness.Require(t, harness.Options{}), services: map[string]*instant.Services{}}
	// What a Deployment owns goes with it; a claim is not kept by a volume that nobody provides.
	kubelet, err := k.cluster.StartKubeletFor(t.Context(), []string{"Pod", "PersistentVolumeClaim"}, harness.Node{Name: "node1", Labels: map[string]string{
		"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kubelet.Stop(); err != nil {
			t.Errorf("the instant kubelet: %v", err)
		}
	})
	if k.client, err = kube.New(k.cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	// A node is made with a taint that a controller would take away, which does not run here.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	if err := k.client.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		t.Fatal(err)
	}
	objs, err := operator.Objects("r.example.com/ocadm:v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Apply(t.Context(), k.client, kube.FieldManager, objs...); err != nil {
		t.Fatal(err)
	}
	if err := k.cluster.StartControllerManager(t.Context(), "--controllers=*,-persistentvolume-binder-controller,-node-lifecycle-controller,-taint-eviction-controller"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if k.stop != nil {
			k.stop()
		}
		if t.Failed() {
			lines := strings.Split(k.log.String(), "\n")
			t.Logf("operator:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return k
}

// tenant is a small cloud; all but the first have other ports on the nodes.
func (k *neighbourhood) tenant(ns string) *tenant {
	k.t.Helper()
	x := &tenant{namespace: ns, db: mariadb.Require(k.t, mariadb.Options{GeneralLog: true})}
	x.cr = harness.Only(&v1alpha1.OnecloudCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cloud},
		Spec: v1alpha1.OnecloudClusterSpec{
			MySQL:  v1alpha1.DatabaseServer{Host: x.db.Host, Port: int32(x.db.Port), Username: "root", Password: x.db.RootPassword},
			Region: "region0", Version: "v4.0.4", LoadBalancerEndpoint: "127.0.0.1", DeletionPolicy: v1alpha1.Delete,
		},
	}, neighbours...)
	if len(k.services) > 0 {
		x.cr = harness.OtherPorts(x.cr, 31001)
	}
	services := &instant.Services{Client: k.client, Namespace: ns, Cloud: cloud}
	k.services[ns] = services
	k.t.Cleanup(services.Close)
	return x
}

// RoundTrip sends a request to the services of the cloud whose namespace is in the name of the host.
func (k *neighbourhood) RoundTrip(r *http.Request) (*http.Response, error) {
	if labels := strings.Split(r.URL.Hostname(), "."); len(labels) > 1 && k.services[labels[1]] != nil {
		return k.services[labels[1]].Transport().RoundTrip(r)
	}
	return nil, instant.Refused(r.URL.Hostname())
}

// startOperator runs the operator as its Deployment says.
func (k *neighbourhood) startOperator() {
	k.t.Helper()
	d := &appsv1.Deployment{}
	if err := k.client.Get(k.t.Context(), client.ObjectKey{Namespace: operator.Namespace, Name: operator.Name}, d); err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(k.t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- operatorctl.Run(ctx, k.cluster.ServiceAccount(operator.Namespace, "onecloud-operator"), operatorctl.Options{
			Namespace: operator.Namespace, Namespaces: clouds.WatchedBy(d), LeaderElection: true, UserAgent: "ocadm-operator", Grace: patience,
			Transport: func(http.RoundTripper) http.RoundTripper { return k }, Log: slog.New(slog.NewTextHandler(&k.log, nil)),
		})
	}()
	k.stop = func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Errorf("the operator ended: %v", err)
		}
		k.stop = nil
	}
}

// watch is the command that makes the operator look after the clouds of a namespace; its Deployment then starts it again.
func (k *neighbourhood) watch(ns string) {
	k.t.Helper()
	var out, story bytes.Buffer
	c := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &story})
	c.SetArgs([]string{"operator", "watch", ns, "--kubeconfig", k.cluster.Kubeconfig})
	if err := c.ExecuteContext(k.t.Context()); err != nil || !strings.Contains(out.String(), ns) {
		k.t.Fatalf("ocadm operator watch: %v\n%s%s", err, out.String(), story.String())
	}
	k.stop()
	k.startOperator()
}

func (k *neighbourhood) create(x *tenant) {
	k.t.Helper()
	if err := k.client.Create(k.t.Context(), x.cr.DeepCopy()); err != nil {
		k.t.Fatal(err)
	}
}

func (k *neighbourhood) edit(x *tenant, patch string) {
	k.t.Helper()
	if err := k.client.Patch(k.t.Context(), x.cr.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
		k.t.Fatal(err)
	}
}

func (k *neighbourhood) untilReady(x *tenant) {
	k.t.Helper()
	k.until(x, isReady)
}

func (k *neighbourhood) until(x *tenant, cond func(*v1alpha1.OnecloudCluster) bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	last := ""
	err := kube.WaitFor(ctx, k.client, x.cr.DeepCopy(), func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "there is none"
		}
		last = states(cr)
		return cond(cr), "it is not as wanted"
	}, func(string) {})
	if err != nil {
		k.t.Fatalf("the cloud in %s: %v\n%s", x.namespace, err, last)
	}
}

// delete deletes a cloud and waits until it is gone.
func (k *neighbourhood) delete(x *tenant) {
	k.t.Helper()
	if err := k.client.Delete(k.t.Context(), x.cr.DeepCopy()); err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	if err := kube.WaitGone(ctx, k.client, x.cr.DeepCopy(), func(client.Object) string { return "it is still there" }, func(string) {}); err != nil {
		k.t.Fatal(err)
	}
}

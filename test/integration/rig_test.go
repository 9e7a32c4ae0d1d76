// SPDX-License-Identifier: Apache-2.0

// Package integration runs the operator against a real etcd, kube-apiserver and MariaDB, with the pods of a cloud as processes of the
// stand-in (package pods).
package integration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/integration/pods"
	"yunion.io/x/ocadm/test/mariadb"
)

const (
	namespace = "onecloud"
	cloud     = "default"
	// operatorUser is whom the audit log names for what the operator does.
	operatorUser = "system:serviceaccount:onecloud:onecloud-operator"
)

// patience is for everything that is waited for; the machine may be busy.
const patience = 2 * time.Minute

// rig is a cluster without a cloud, and an operator that may be started in it.
type rig struct {
	t *testing.T
	// whole is the context of the whole test: the operator outlives its parts.
	whole    context.Context
	cluster  *harness.Cluster
	db       *mariadb.Server
	pods     *pods.Kubelet
	client   client.WithWatch
	counters harness.Counters
	log      *harness.Log
	stop     func()
	// fileAnnotations are those of the files that are applied, as they were when the file was saved.
	fileAnnotations map[string]string
	// namespaces that the operator watches.
	namespaces []string
	// dial is how the operator reaches database and services.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, mariadb.Options{})
}

// newRigWith is newRig with a certain database server, and with further ports that must be free.
func newRigWith(t *testing.T, db mariadb.Options, ports ...int) *rig {
	t.Helper()
	portsFree(t, append(ports, 30500, 30357, 30888, 30887, 30292, 30999, 30889, 30300, 30443)...)
	r := &rig{t: t, whole: t.Context(), db: mariadb.Require(t, db), log: &harness.Log{}, namespaces: []string{namespace}}
	r.cluster = harness.Require(t, harness.Options{})
	kubelet, err := r.cluster.StartKubeletFor(t.Context(), []string{"StatefulSet", "DaemonSet", "Job", "PersistentVolumeClaim"},
		harness.Node{Name: "node1", Labels: map[string]string{"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kubelet.Stop(); err != nil {
			t.Errorf("the instant kubelet: %v", err)
		}
	})
	if r.client, err = kube.New(r.cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	r.apply("operator/deployment", "operator/rbac", "operator/namespace", "operator/crds")
	// The garbage collector is real; workloads are brought up by package pods and the instant kubelet.
	if err := r.cluster.StartControllerManager(t.Context(),
		"--controllers=-deployment-controller,-replicaset-controller,-statefulset-controller,-daemonset-controller,-endpoints-controller,"+
			"-endpointslice-controller,-endpointslice-mirroring-controller,-persistentvolume-binder-controller,-job-controller"); err != nil {
		t.Fatal(err)
	}
	r.pods = pods.Require(t, pods.Options{Config: r.cluster.Config(harness.Admin), Namespace: namespace, Node: "node1"})
	r.dial = r.pods.Dial
	t.Cleanup(r.stopOperator)
	t.Cleanup(func() {
		if t.Failed() {
			r.explain()
		}
	})
	return r
}

// part is a piece of a test that begins where the one before it ended.
type part struct {
	name string
	do   func(*rig)
}

// run runs parts until one fails.
func (r *rig) run(parts []part) {
	outer := r.t
	defer func() { r.t = outer }()
	for _, p := range parts {
		if !outer.Run(p.name, func(t *testing.T) {
			r.t = t
			p.do(r)
		}) {
			return
		}
	}
}

// apply applies templates; of the operator's own Deployment only the namespace: it runs in the test.
func (r *rig) apply(dirs ...string) {
	r.t.Helper()
	for _, dir := range dirs {
		objs, err := harness.OperatorManifests(dir, namespace, namespace)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range objs {
			if _, err := kube.Apply(r.t.Context(), r.client, "ocadm", o); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if !slices.Contains(dirs, "operator/crds") {
		return
	}
	// The API server accepts a definition some time before it serves and lists the kind.
	var err error
	r.eventually(func() bool {
		err = r.client.List(r.t.Context(), &v1alpha1.OnecloudClusterList{})
		return err == nil
	}, func() string { return fmt.Sprintf("the API server does not serve clouds: %v", err) })
}

// startOperator runs the operator as its service account: a right it lacks is a failure.
func (r *rig) startOperator() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.whole)
	config := r.cluster.ServiceAccount(namespace, "onecloud-operator")
	done := make(chan error, 1)
	go func() {
		done <- operatorctl.Run(ctx, rest.CopyConfig(config), operatorctl.Options{
			Namespace: namespace, Namespaces: r.namespaces, LeaderElection: true, UserAgent: "ocadm-operator", Dial: r.dial, Grace: patience,
			Transport: r.counters.Transport, OnStatement: r.counters.Statement, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
	}()
	r.stop = func() {
		began := time.Now()
		cancel()
		slow := time.AfterFunc(2*time.Second, func() { // what it has outside of tests; what it is at is gone afterwards
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			r.t.Logf("the operator takes its time to end:\n%s", stacks.String())
		})
		defer slow.Stop()
		if err := <-done; err != nil {
			r.t.Errorf("the operator ended: %v", err)
		}
		r.t.Logf("the operator ended after %s", time.Since(began).Round(time.Millisecond))
	}
}

func (r *rig) stopOperator() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// explain tells what is known when a test has failed.
func (r *rig) explain() {
	lines := strings.Split(r.log.String(), "\n")
	r.t.Logf("operator:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
	if data, err := os.ReadFile(filepath.Join(r.cluster.Dir, "kube-controller-manager.log")); err == nil {
		lines := strings.Split(string(data), "\n")
		r.t.Logf("controller-manager:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
	logs := r.pods.Logs()
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		lines := strings.Split(strings.TrimSpace(logs[name]), "\n")
		r.t.Logf("pods of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	cr := &v1alpha1.OnecloudCluster{}
	// The test's own context has ended by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 5*time.Second)
	defer cancel()
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cloud}, cr); err == nil {
		r.t.Logf("the cloud:\n%s", states(cr))
	}
	left := &corev1.PodList{}
	if err := r.client.List(ctx, left, client.InNamespace(namespace)); err == nil {
		for _, p := range left.Items {
			r.t.Logf("pod %s: made %s, deleted %v, %s", p.Name, p.CreationTimestamp, p.DeletionTimestamp, p.Status.Phase)
		}
	}
}

func states(cr *v1alpha1.OnecloudCluster) string {
	var b strings.Builder
	for _, c := range cr.Status.Components {
		fmt.Fprintf(&b, "  %-12s %-12s %-10s %s: %s\n", c.Name, c.State, c.Version, c.Reason, c.Message)
	}
	for _, c := range cr.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// minimal is the cloud of the quickstart: a database, a region, a version, an address.
func (r *rig) minimal() *v1alpha1.OnecloudCluster {
	cr := r.cloudAt(r.db.Host, r.db.Port)
	cr.Spec.MySQL.Password = r.db.RootPassword
	return cr
}

// cloudAt is a cloud with a database server somewhere.
func (r *rig) cloudAt(host string, port int) *v1alpha1.OnecloudCluster {
	return &v1alpha1.OnecloudCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cloud},
		Spec: v1alpha1.OnecloudClusterSpec{
			MySQL:  v1alpha1.DatabaseServer{Host: host, Port: int32(port), Username: "root", Password: "none"},
			Region: "region0", Version: "v4.0.4", LoadBalancerEndpoint: "127.0.0.1",
		},
	}
}

func (r *rig) cloud() *v1alpha1.OnecloudCluster {
	r.t.Helper()
	cr := &v1alpha1.OnecloudCluster{}
	r.get(cr, cloud)
	return cr
}

func (r *rig) get(o client.Object, name string) {
	r.t.Helper()
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		r.t.Fatal(err)
	}
}

// edit changes the cloud as a person does, by merge patch under the manager of kubectl.
func (r *rig) edit(o client.Object, patch string) {
	r.t.Helper()
	if err := r.client.Patch(r.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
		r.t.Fatal(err)
	}
}

// until watches an object until a condition holds. The rig explains what is missing.
func (r *rig) until(o client.Object, name string, cond kube.Condition) {
	r.t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := kube.WaitFor(ctx, r.client, o, cond, func(string) {}); err != nil {
		r.t.Fatal(err)
	}
}

// untilReady waits until every component of the cloud's present generation is Available.
func (r *rig) untilReady() {
	r.t.Helper()
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "there is none"
		}
		return isReady(cr), states(cr)
	})
}

func isReady(cr *v1alpha1.OnecloudCluster) bool {
	for _, c := range cr.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == cr.Generation && cr.Status.ObservedGeneration == cr.Generation
		}
	}
	return false
}

// deployments of the cloud by component.
func (r *rig) deployments() map[string]appsv1.Deployment {
	r.t.Helper()
	var list appsv1.DeploymentList
	if err := r.client.List(r.t.Context(), &list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelComponent}); err != nil {
		r.t.Fatal(err)
	}
	all := map[string]appsv1.Deployment{}
	for _, d := range list.Items {
		all[d.Labels[v1alpha1.LabelComponent]] = d
	}
	return all
}

// credentials are the passwords the operator made.
func (r *rig) credentials() map[string][]byte {
	r.t.Helper()
	s := &corev1.Secret{}
	r.get(s, cloud+"-"+v1alpha1.SecretCredentials)
	return s.Data
}

// passes is how many passes of the operator have ended, and whether one is under way.
func (r *rig) passes() (ended float64, busy bool) {
	r.t.Helper()
	ended, busy, err := harness.Passes()
	if err != nil {
		r.t.Fatal(err)
	}
	return ended, busy
}

// untilQuiet waits until the operator has made at least one pass since it had made n, and has nothing left to do. Nothing tells when
// nothing will happen: it is looked at several times.
func (r *rig) untilQuiet(since float64) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	last, calm := -1.0, 0
	for calm < 10 {
		ended, busy := r.passes()
		if ended > since && !busy && ended == last {
			calm++
		} else {
			calm = 0
		}
		last = ended
		if time.Now().After(deadline) {
			r.t.Fatalf("the operator has not come to rest: %v passes, busy %v", ended-since, busy)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// portsFree makes sure that the ports of a cloud are free, and that no other test takes them meanwhile.
func portsFree(t *testing.T, ports ...int) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "ocadm-test-ports.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
				t.Fatalf("a port of the cloud is taken: %v", err)
			}
			t.Skipf("a port of the cloud is taken: %v", err)
		}
		_ = l.Close()
	}
}

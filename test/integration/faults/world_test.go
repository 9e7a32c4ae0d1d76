// SPDX-License-Identifier: Apache-2.0

// Package faults shows what the operator does when something fails: it, the API server, the database, the identity service, or a
// person. etcd, kube-apiserver and MariaDB are real, and so are the stand-ins' programs, but they play in this process (package
// instant) and workloads are Available at once (harness.Kubelet), so that a cloud is there in a second and can be made hundreds of times.
package faults

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/integration/instant"
	"yunion.io/x/ocadm/test/mariadb"
)

const (
	namespace    = "onecloud"
	cloud        = "default"
	operatorUser = "system:serviceaccount:onecloud:onecloud-operator"
	// patience is for everything that is waited for; the machine may be busy.
	patience = 90 * time.Second
)

// small are the components of the clouds here: every kind of effect and nearly every kind of object.
var small = []string{"keystone", "region", "glance", "yunionconf", "web", "etcd", "host-deployer"}

// world is a cluster, a database server and the services of one cloud; tests use it one after another.
type world struct {
	dir      string
	cluster  *harness.Cluster
	kubelet  *harness.Kubelet
	db       *mariadb.Server
	root     *mysql.Admin
	client   client.WithWatch
	services *instant.Services
	// dial, when set, is how the next operator reaches the API server.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// streams, when set, are the watches of the next operator.
	streams *streams
}

// shared is made by the first test that needs it: a control plane takes seconds to start.
var shared *world

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // the stand-ins tell every request
	code := m.Run()
	if shared != nil {
		if err := shared.close(); err != nil {
			log.SetOutput(os.Stderr)
			log.Print(err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// use gives a test the world, without a cloud in it.
func use(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		w, err := newWorld(context.Background())
		if errors.Is(err, mariadb.ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		shared = w
	}
	shared.clean(t)
	t.Cleanup(func() { shared.clean(t) })
	return shared
}

func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "ocadm-faults-"); err != nil {
		return w, err
	}
	if w.db, err = mariadb.Start(ctx, w.dir, mariadb.Options{}); err != nil {
		return w, err
	}
	if w.root, err = mysql.Open(ctx, mysql.Config{Host: w.db.Host, Port: w.db.Port, User: "root", Password: w.db.RootPassword}); err != nil {
		return w, err
	}
	// Nobody is there who would take away the finalizers of claims.
	if w.cluster, err = harness.Start(ctx, harness.Options{Dir: w.dir, APIServerArgs: []string{
		"--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount"}}); err != nil {
		return w, err
	}
	if w.client, err = kube.New(w.cluster.Config(harness.Admin)); err != nil {
		return w, err
	}
	for _, dir := range []string{"operator/deployment", "operator/rbac", "operator/namespace", "operator/crds"} {
		if err = w.apply(ctx, dir); err != nil {
			return w, err
		}
	}
	w.services = &instant.Services{Client: w.client, Namespace: namespace, Cloud: cloud}
	w.kubelet, err = w.cluster.StartKubelet(ctx, harness.Node{Name: "node1", Labels: map[string]string{
		"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}})
	return w, err
}

func (w *world) close() error {
	var errs []error
	if w.kubelet != nil {
		errs = append(errs, w.kubelet.Stop())
	}
	if w.services != nil {
		w.services.Close()
	}
	if w.root != nil {
		w.root.Close()
	}
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// apply applies templates; of the operator's own Deployment only the namespace: it runs in the test.
func (w *world) apply(ctx context.Context, dir string) error {
	objs, err := harness.OperatorManifests(dir, namespace, namespace)
	if err != nil {
		return err
	}
	for _, o := range objs {
		if _, err := kube.Apply(ctx, w.client, "ocadm", o); err != nil {
			return err
		}
	}
	return nil
}

// kinds are what a cloud consists of.
func kinds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}, &appsv1.Deployment{}, &appsv1.StatefulSet{},
		&appsv1.DaemonSet{}, &batchv1.CronJob{}, &networkingv1.Ingress{},
	}
}

// clean removes the cloud and all its traces; no operator may be running.
func (w *world) clean(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	w.services.Close()
	var clouds v1alpha1.OnecloudClusterList
	check(w.client.List(ctx, &clouds))
	for i := range clouds.Items {
		check(w.client.Patch(ctx, &clouds.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		check(w.client.Delete(ctx, &clouds.Items[i]))
	}
	for _, kind := range kinds() {
		check(w.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}))
	}
	check(w.db.Wipe(ctx))
}

// minimal is a cloud of the small components.
func (w *world) minimal() *v1alpha1.OnecloudCluster {
	return w.cloudOf(v1alpha1.OnecloudClusterSpec{}, small...)
}

// cloudOf is a cloud of some components: every other one is switched off.
func (w *world) cloudOf(spec v1alpha1.OnecloudClusterSpec, keep ...string) *v1alpha1.OnecloudCluster {
	spec.MySQL = v1alpha1.DatabaseServer{Host: w.db.Host, Port: int32(w.db.Port), Username: "root", Password: w.db.RootPassword}
	spec.Region, spec.Version, spec.LoadBalancerEndpoint = "region0", "v4.0.4", "127.0.0.1"
	cr := &v1alpha1.OnecloudCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cloud}, Spec: spec,
	}
	return harness.Only(cr, keep...)
}

// passes is how many passes operators of this process have ended, and whether one is under way.
func passes(t testing.TB) (ended float64, busy bool) {
	t.Helper()
	ended, busy, err := harness.Passes()
	if err != nil {
		t.Fatal(err)
	}
	return ended, busy
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/mariadb"
)

const (
	operatorNamespace = "onecloud"
	operatorAccount   = "onecloud-operator"
	cloudName         = "default"
	version           = "v4.0.4"
	// patience is for everything that is waited for.
	patience = 20 * time.Minute
)

// bench is one run of the program.
type bench struct {
	options options
	machine machine
	began   time.Time
	dir     string
	db      *mariadb.Server
	rows    []row
	// serial numbers clouds: each gets a namespace and a database address of its own.
	serial int
}

func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o, machine: thisMachine(), began: time.Now()}
	var err error
	if b.dir, err = os.MkdirTemp("", "ocadm-bench-"); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	if b.options.ocadm == "" {
		b.options.ocadm = filepath.Join(b.dir, "ocadm")
		if err := build(ctx, b.options.ocadm, "v0.0.0-bench"); err != nil {
			return err
		}
	}
	// One server under many addresses: each cloud insists on a server of its own.
	var addresses []string
	for i := range b.options.clouds + 20 {
		addresses = append(addresses, databaseAddress(i))
	}
	var err error
	b.db, err = mariadb.Start(ctx, b.dir, mariadb.Options{Args: []string{"--bind-address=" + strings.Join(append(addresses, "127.0.0.1"), ","), "--max-connections=2000"}})
	return err
}

func databaseAddress(i int) string { return fmt.Sprintf("127.1.%d.%d", i/200, 1+i%200) }

func build(ctx context.Context, to, version string) error {
	c := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w -X yunion.io/x/ocadm/internal/version.Version="+version, "-o", to, "yunion.io/x/ocadm/cmd/ocadm")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building ocadm: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) close() {
	var err error
	if b.db != nil {
		err = b.db.Close()
	}
	if err := errors.Join(err, os.RemoveAll(b.dir)); err != nil {
		b.say("cleaning up: %v", err)
	}
}

// world is a cluster without a cloud.
type world struct {
	b       *bench
	cluster *harness.Cluster
	kubelet *harness.Kubelet
	client  client.WithWatch
	front   *front
}

// How a world brings workloads up.
const (
	// instant: the stand-in kubelet reports on workloads themselves.
	instant = "instant"
	// tuned: a real kube-controller-manager with the limits that "ocadm init" sets; the stand-in reports on pods.
	tuned = "tuned"
	// untuned is tuned with the limits of a plain kubeadm cluster.
	untuned = "default"
)

// controllersOff are those that would report on workloads in an instant world; the garbage collector stays.
const controllersOff = "--controllers=-deployment-controller,-replicaset-controller,-statefulset-controller,-daemonset-controller,-endpoints-controller," +
	"-endpointslice-controller,-endpointslice-mirroring-controller,-persistentvolume-binder-controller,-job-controller,-cronjob-controller"

func (b *bench) newWorld(ctx context.Context, kind string) (w *world, err error) {
	w = &world{b: b}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	// What a cloud of another world left belongs to that cloud.
	if err := b.db.Wipe(ctx); err != nil {
		return w, err
	}
	// A claim that was deleted is to be gone at once.
	// There is no route from which it could guess its address.
	w.cluster, err = harness.Start(ctx, harness.Options{Dir: b.dir, APIServerArgs: []string{"--disable-admission-plugins=StorageObjectInUseProtection",
		"--advertise-address=127.0.0.1"}})
	if err != nil {
		return w, err
	}
	if w.client, err = kube.New(w.cluster.Config(harness.Admin)); err != nil {
		return w, err
	}
	reports := []string{"Deployment", "StatefulSet", "DaemonSet", "Job", "PersistentVolumeClaim"}
	args := []string{controllersOff}
	switch kind {
	case tuned:
		reports, args = []string{"Pod", "PersistentVolumeClaim"}, []string{"--controllers=*,-persistentvolume-binder-controller,-node-lifecycle-controller,-taint-eviction-controller"}
	case untuned:
		reports = []string{"Pod", "PersistentVolumeClaim"}
		args = []string{"--controllers=*,-persistentvolume-binder-controller,-node-lifecycle-controller,-taint-eviction-controller", "--kube-api-qps=20", "--kube-api-burst=30"}
	}
	labels := map[string]string{}
	for _, role := range []string{"controller", "host", "baremetal", "esxi", "lbagent"} {
		labels["onecloud.yunion.io/"+role] = "enable"
	}
	if w.kubelet, err = w.cluster.StartKubeletFor(ctx, reports, harness.Node{Name: "node1", Labels: labels}); err != nil {
		return w, err
	}
	// A node is made with a taint that a controller would take away, which does not run here.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	if err := w.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		return w, err
	}
	for _, dir := range []string{"operator/deployment", "operator/rbac", "operator/namespace", "operator/crds"} {
		if err := w.apply(ctx, dir); err != nil {
			return w, err
		}
	}
	if err := w.cluster.StartControllerManager(ctx, args...); err != nil {
		return w, err
	}
	w.front, err = startFront(ctx, w)
	return w, err
}

func (w *world) close() {
	var errs []error
	if w.front != nil {
		w.front.close()
	}
	if w.kubelet != nil {
		errs = append(errs, w.kubelet.Stop())
	}
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	if err := errors.Join(errs...); err != nil {
		w.b.say("ending a cluster: %v", err)
	}
}

// apply applies templates; of the operator's own Deployment only the namespace.
func (w *world) apply(ctx context.Context, dir string) error {
	objs, err := harness.OperatorManifests(dir, operatorNamespace, "*")
	if err != nil {
		return err
	}
	for _, o := range objs {
		if _, err := kube.Apply(ctx, w.client, "ocadm", append(everywhere(o), o)...); err != nil {
			return err
		}
	}
	return nil
}

// everywhere turns the operator's rights in one namespace into rights in all: each cloud has a namespace of its own here.
func everywhere(o *unstructured.Unstructured) []*unstructured.Unstructured {
	if o.GetKind() != "Role" && o.GetKind() != "RoleBinding" || o.GetName() != operatorAccount {
		return nil
	}
	u := o.DeepCopy()
	u.SetKind("Cluster" + u.GetKind())
	u.SetNamespace("")
	u.SetName("bench-" + u.GetName())
	if o.GetKind() == "RoleBinding" {
		set(u.Object, "ClusterRole", "roleRef", "kind")
		set(u.Object, u.GetName(), "roleRef", "name")
	}
	return []*unstructured.Unstructured{u}
}

// newCloud is a minimal cloud in a namespace of its own, not yet created. Its Services are ClusterIPs: two clouds cannot have the same
// node ports.
func (w *world) newCloud(ctx context.Context) (*v1alpha1.OnecloudCluster, error) {
	w.b.serial++
	i := w.b.serial
	ns := fmt.Sprintf("cloud-%d", i)
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return nil, err
	}
	cr := &v1alpha1.OnecloudCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cloudName},
		Spec: v1alpha1.OnecloudClusterSpec{
			MySQL:  v1alpha1.DatabaseServer{Host: databaseAddress(i % (w.b.options.clouds + 20)), Port: int32(w.b.db.Port), Username: "root", Password: w.b.db.RootPassword},
			Region: "region0", Version: version, LoadBalancerEndpoint: "127.0.0.1", DeletionPolicy: v1alpha1.Delete,
		},
	}
	return cr, internal(cr, i)
}

// internal makes every Service of a cloud a ClusterIP; etcd's has to be a node port.
func internal(cr *v1alpha1.OnecloudCluster, i int) error {
	u, err := tree(cr)
	if err != nil {
		return err
	}
	for _, c := range catalog.All() {
		if c.Service == nil || c.SpecKey == "" {
			continue
		}
		for _, p := range c.Service.Ports {
			path := append([]string{"spec"}, strings.Split(c.SpecKey+"."+p.SpecKey, ".")...)
			if p.SpecKey == "" || len(path) < 4 {
				continue
			}
			set(u, true, append(path[:len(path)-1], "internalOnly")...)
		}
	}
	set(u, int64(31000+i%1000), "spec", "etcd", "clientNodePort")
	return untree(u, cr)
}

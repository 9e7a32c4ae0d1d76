// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/mariadb"
)

// servicesAt is the address on which the services of all clouds listen: a loopback address that nothing else uses.
const servicesAt = "127.0.0.9"

// clouds returns an environment whose operator watches every namespace. Each cloud has its own namespace.
func (b *bench) clouds(o env.Options) *env.Env {
	// Without this admission plugin, a deleted claim disappears immediately and a pod needs no service account.
	o.APIServer, o.Collect = []string{"--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount"}, true
	// The clouds share one database server, which each must reach at a different address.
	o.Database = &mariadb.Options{Addr: "0.0.0.0:0", Args: []string{"--max-connections=2000"}}
	e := env.New(b, o)
	e.Services.Measured = true
	ctx, stop := context.WithCancel(b.ctx)
	b.Cleanup(stop)
	b.no(e.Services.Listen(ctx, servicesAt))
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: env.OperatorUser}},
	}
	b.no(client.IgnoreAlreadyExists(e.Client.Create(b.ctx, everywhere)))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	const roles = `{"metadata":{"labels":{"onecloud.yunion.io/baremetal":"enable","onecloud.yunion.io/esxi":"enable","onecloud.yunion.io/lbagent":"enable"}}}`
	b.no(e.Client.Patch(b.ctx, node, client.RawPatch(types.MergePatchType, []byte(roles))))
	return e
}

// startOperator runs an operator in this process, so that its own hooks count its requests to databases and services.
func startOperator(e *env.Env) {
	e.StartOperator(func(l *env.Launch) {
		o := &l.Options
		o.Namespaces, o.Lease, o.Audit, o.Log = nil, "", -1, slog.New(slog.DiscardHandler)
		o.Transport, o.Dial = e.Counters.Transport, func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, ".svc") {
				address = net.JoinHostPort(servicesAt, port)
			}
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		}
	})
}

func (b *bench) namespace(e *env.Env, kind string) string {
	b.serial++
	name := fmt.Sprintf("%s-%d", kind, b.serial)
	b.no(e.Client.Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	return name
}

// newCloud returns a minimal cloud in a new namespace, not yet created. Its Services are ClusterIPs, because two clouds cannot share node ports. Only
// etcd's must be a node port.
func (b *bench) newCloud(e *env.Env) (*env.Env, *v1alpha1.OnecloudCluster) {
	e = e.At(b.namespace(e, "cloud"))
	cr := e.Minimal()
	cr.Spec.DeletionPolicy = v1alpha1.Delete
	cr.Spec.MySQL.Host = fmt.Sprintf("127.1.%d.%d", b.serial/200, 1+b.serial%200)
	return e, harness.Edited(cr, func(set func(v any, path ...string)) {
		for _, c := range catalog.All() {
			if c.Service == nil || c.SpecKey == "" {
				continue
			}
			for _, p := range c.Service.Ports {
				if block, _, nested := strings.Cut(p.SpecKey, "."); nested {
					set(true, strings.Split(c.SpecKey+"."+block+".internalOnly", ".")...)
				}
			}
		}
		set(int64(31000+b.serial%1000), "etcd", "clientNodePort")
	})
}

// ownNames gives a cloud unique names for its databases and accounts, because many clouds share one server.
func ownNames(e *env.Env) {
	names := map[string][]byte{}
	prefix := strings.ReplaceAll(e.Namespace, "-", "") + "_"
	for _, c := range catalog.All() {
		if c.Database != nil {
			names[component.DatabaseName(c.Name)], names[component.DatabaseUser(c.Name)] = []byte(prefix+c.Database.Name), []byte(prefix+c.Database.Account())
		}
	}
	e.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: env.Name + "-" + v1alpha1.SecretCredentials, Labels: map[string]string{
		v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + env.Name,
	}}, Data: names})
}

// create creates a cloud and returns the time until it was ready.
func create(e *env.Env, cr *v1alpha1.OnecloudCluster) time.Duration {
	began := time.Now()
	e.Create(cr.DeepCopy())
	e.UntilReady()
	return time.Since(began)
}

// remove deletes a cloud and its data.
func remove(e *env.Env) {
	e.Delete()
	e.Services.Forget(e.Namespace)
}

// touch changes an annotation, which triggers a reconcile.
func touch(e *env.Env, i int) {
	e.Edit(fmt.Sprintf(`{"metadata":{"annotations":{"bench/touched":"%d"}}}`, i))
}

// children returns the current objects of a cloud.
func children(e *env.Env) []*unstructured.Unstructured {
	return lists.Map(e.Objects(), func(o client.Object) *unstructured.Unstructured {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		e.Must(err)
		u := &unstructured.Unstructured{Object: tree}
		gvk, err := e.Client.GroupVersionKindFor(o)
		e.Must(err)
		u.SetGroupVersionKind(gvk)
		return u
	})
}

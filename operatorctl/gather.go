// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/status"
)

// live is what the cache has of one cloud.
type live struct {
	namespace string
	objects   map[engine.Key]client.Object
	pods      []corev1.Pod
	// nodes of the Kubernetes cluster, nil where they may not be read.
	nodes []status.Node
	// instance is the label by which its objects are known, see instanceOf.
	instance string
}

// secret returns a Secret of the cloud, nil if there is none.
func (l live) secret(name string) *corev1.Secret {
	s, _ := l.objects[engine.Key{GVK: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: l.namespace, Name: name}].(*corev1.Secret)
	return s
}

// get returns the live counterpart of a rendered object, nil if there is none.
func (l live) get(o client.Object) client.Object { return l.objects[engine.KeyOf(o)] }

// gather reads everything a pass decides on, once: objects from the cache, and what must exist before anything can be rendered.
func (p *pass) gather(ctx context.Context) error {
	if err := p.ownDatabase(ctx); err != nil {
		return err
	}
	var err error
	if p.live, err = p.r.list(ctx, p.cr); err != nil {
		return err
	}
	p.address = cmp.Or(p.cr.Spec.LoadBalancerEndpoint, status.PublicAddress(p.live.nodes))
	if err := p.ensureCredentials(ctx); err != nil {
		return err
	}
	if err := p.adoptSpec(ctx); err != nil {
		return err
	}
	return p.ensureCertificates(ctx)
}

// ownDatabase refuses a cloud whose database server an older cloud uses: the names of the databases are the same in every cloud, so one
// would change the passwords, and perhaps drop the databases, of the other. It looks into the cache only.
func (p *pass) ownDatabase(ctx context.Context) error {
	var all v1alpha1.OnecloudClusterList
	if err := p.r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the clouds: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.UID == p.cr.UID || !older(o, p.cr) {
			continue
		}
		field, host := "mysql", p.cr.Spec.MySQL.Host
		if !sameServer(p.cr, o, p.cr.Spec.MySQL, o.Spec.MySQL, resolve.DefaultMysqlPort) {
			if field, host = "clickhouse", p.cr.Spec.Clickhouse.Host; !sameServer(p.cr, o, p.cr.Spec.Clickhouse, o.Spec.Clickhouse, component.DefaultClickHousePort) {
				continue
			}
		}
		return fmt.Errorf("the database server %s (spec.%s) is that of cloud %s/%s already: give this cloud a server of its own", host, field, o.Namespace, o.Name)
	}
	return nil
}

// sameServer tells whether two clouds name the same server. A name without a dot is that of a Service in the cloud's own namespace.
func sameServer(a, b *v1alpha1.OnecloudCluster, x, y v1alpha1.DatabaseServer, usual int32) bool {
	port := func(s v1alpha1.DatabaseServer) int32 {
		if s.Port == 0 {
			return usual
		}
		return s.Port
	}
	return x.Host != "" && x.Host == y.Host && port(x) == port(y) && (a.Namespace == b.Namespace || strings.ContainsAny(x.Host, ".:"))
}

func older(a, b *v1alpha1.OnecloudCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

// list reads the objects of a cloud from the cache; answers to our own writes that the cache has not seen win.
func (r *Reconciler) list(ctx context.Context, cr *v1alpha1.OnecloudCluster) (live, error) {
	l := live{namespace: cr.Namespace, objects: map[engine.Key]client.Object{}}
	all := map[engine.Key]client.Object{}
	usual := v1alpha1.InstancePrefix + cr.Name
	for _, kind := range render.Kinds() {
		gvk, err := apiutil.GVKForObject(kind, r.scheme)
		if err != nil {
			return l, fmt.Errorf("listing %T: %w", kind, err)
		}
		obj, err := r.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return l, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		list, ok := obj.(client.ObjectList)
		if !ok {
			return l, fmt.Errorf("listing %s: %T is no list", gvk.Kind, obj)
		}
		if err := r.client.List(ctx, list, client.InNamespace(cr.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return l, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			c, ok := o.(client.Object)
			if !ok {
				return nil
			}
			owner := metav1.GetControllerOfNoCopy(c)
			if owner == nil || owner.UID == cr.UID || c.GetLabels()[v1alpha1.LabelInstance] == usual { // not another cloud's
				all[engine.Key{GVK: gvk, Namespace: c.GetNamespace(), Name: c.GetName()}] = c
			}
			return nil
		}); err != nil {
			return l, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
	}
	l.instance = instanceOf(cr, all)
	r.learn(cr.Namespace, l.instance, cr.Name)
	belongs := func(o client.Object) bool {
		label := o.GetLabels()[v1alpha1.LabelInstance]
		return label == l.instance || label == usual || cr.UID != "" && metav1.IsControlledBy(o, cr)
	}
	for k, o := range all {
		if belongs(o) {
			l.objects[k] = o
		}
	}
	r.applier.Overlay(l.objects, cr.Namespace, belongs)
	var pods corev1.PodList
	sel := client.MatchingLabels{v1alpha1.LabelInstance: l.instance}
	if err := r.client.List(ctx, &pods, client.InNamespace(cr.Namespace), sel, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("listing pods: %w", err)
	}
	l.pods = pods.Items
	var err error
	l.nodes, err = r.nodes(ctx)
	return l, err
}

// nodes of the Kubernetes cluster from the cache, nil where they may not be read.
func (r *Reconciler) nodes(ctx context.Context) ([]status.Node, error) {
	if r.options.WithoutNodes {
		return nil, nil
	}
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]status.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, status.NodeOf(&list.Items[i]))
	}
	return nodes, nil
}

// instanceOf is the value of the label app.kubernetes.io/instance of a cloud: made from its name, unless it has workloads that select
// their pods by another one. The earlier operator took it from the label of the resource, which it made at random in older releases.
func instanceOf(cr *v1alpha1.OnecloudCluster, all map[engine.Key]client.Object) string {
	count := map[string]int{}
	for k, o := range all {
		if k.Namespace != cr.Namespace || cr.UID == "" || !metav1.IsControlledBy(o, cr) {
			continue
		}
		if s, _ := selectorOf(o); s != nil && s.MatchLabels[v1alpha1.LabelInstance] != "" {
			count[s.MatchLabels[v1alpha1.LabelInstance]]++
		}
	}
	usual := v1alpha1.InstancePrefix + cr.Name
	best := usual
	for _, label := range slices.Sorted(maps.Keys(count)) {
		if count[label] > count[best] {
			best = label
		}
	}
	return best
}

// learn notes which cloud a label means: pods have no other hint.
func (r *Reconciler) learn(namespace, instance, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances[types.NamespacedName{Namespace: namespace, Name: instance}] = name
}

// cloudOf is the name of the cloud an object belongs to, "" if none.
func (r *Reconciler) cloudOf(o client.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == v1alpha1.Kind {
		return ref.Name
	}
	label := o.GetLabels()[v1alpha1.LabelInstance]
	r.mu.Lock()
	name := r.instances[types.NamespacedName{Namespace: o.GetNamespace(), Name: label}]
	r.mu.Unlock()
	if made, ok := strings.CutPrefix(label, v1alpha1.InstancePrefix); ok && name == "" {
		return made // before its first pass
	}
	return name
}

// own sets the owner reference, except on what may hold data or what data needs: claims and credentials outlive the cloud.
// With spec.deletionPolicy Delete the finalizer removes them, see finalize.go.
func (p *pass) own(o client.Object) client.Object {
	if o.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
		return o
	}
	yes := true
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: p.cr.Name, UID: p.cr.UID, Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	return o
}

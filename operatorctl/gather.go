// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// live is what the cache has of one cloud.
type live struct {
	objects map[engine.Key]client.Object
	pods    []corev1.Pod
}

// secret returns a Secret of the cloud, nil if there is none.
func (l live) secret(name string) *corev1.Secret {
	for k, o := range l.objects {
		if k.GVK.Kind == "Secret" && k.Name == name {
			s, _ := o.(*corev1.Secret)
			return s
		}
	}
	return nil
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
	if err := p.ensureCredentials(ctx); err != nil {
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
	mine := p.cr.Spec.MySQL
	for i := range all.Items {
		o := &all.Items[i]
		same := o.Spec.MySQL.Host == mine.Host && orDefault(o.Spec.MySQL.Port) == orDefault(mine.Port)
		if o.Namespace != p.cr.Namespace && !strings.ContainsAny(mine.Host, ".:") {
			same = false // a Service of its own namespace
		}
		if !same || mine.Host == "" || o.UID == p.cr.UID || !older(o, p.cr) {
			continue
		}
		return fmt.Errorf("the database server %s (spec.mysql) is that of cloud %s/%s already: give this cloud a server of its own", mine.Host, o.Namespace, o.Name)
	}
	return nil
}

func orDefault(port int32) int32 {
	if port == 0 {
		return resolve.DefaultMysqlPort
	}
	return port
}

func older(a, b *v1alpha1.OnecloudCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

// list reads the objects of a cloud from the cache; answers to our own writes that the cache has not seen win.
func (r *Reconciler) list(ctx context.Context, cr *v1alpha1.OnecloudCluster) (live, error) {
	l := live{objects: map[engine.Key]client.Object{}}
	sel := []client.ListOption{client.InNamespace(cr.Namespace), client.MatchingLabels{v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name}}
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
		if err := r.client.List(ctx, list, append(sel, client.UnsafeDisableDeepCopy)...); err != nil {
			return l, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if c, ok := o.(client.Object); ok {
				l.objects[engine.Key{GVK: gvk, Namespace: c.GetNamespace(), Name: c.GetName()}] = c
			}
			return nil
		}); err != nil {
			return l, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
	}
	r.applier.Overlay(l.objects, r.scheme, cr.Namespace, v1alpha1.LabelInstance, v1alpha1.InstancePrefix+cr.Name)
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, append(sel, client.UnsafeDisableDeepCopy)...); err != nil {
		return l, fmt.Errorf("listing pods: %w", err)
	}
	l.pods = pods.Items
	return l, nil
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

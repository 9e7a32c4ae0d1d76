// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// cloud is what is kept of one cloud between reconciles. Losing it costs a few requests and milliseconds, and nothing else.
type cloud struct {
	// mu is held during a reconcile.
	mu          sync.Mutex
	effects     *effects.Memory
	connections *effects.Connections
	memos       memos
	// valid is true if nothing was wrong with the spec when it was judged last. own is the revision that is just what this build renders.
	valid bool
	own   int
	// provided is a Secret of certificates that a user provides.
	provided *corev1.Secret
	// written is the answer to the last write of the cloud, until the cache has caught up.
	written *v1alpha1.OnecloudCluster
	// access is a hash of how databases and services are reached.
	access string
	last   last
}

// memos are what need not be worked out again for the same cloud.
type memos struct {
	desired memo[string, *Desired]
	judged  memo[int64, *judgement]
	// index is that of the release that a Secret holds, by UID and version of the Secret.
	index memo[string, *release.Release]
	// from are the objects of the release that an operation moves the cloud from.
	from   memo[string, map[string][]release.Object]
	issued memo[string, secrets.Certificates]
}

// last is what the last reconcile of a cloud saw and left undone.
type last struct {
	nextAudit time.Time
	// refusals is in how many reconciles on end the API server refused something.
	refusals int
	// served is, by Secret, the hash of the CA certificates that all pods ran with.
	served map[string]string
	// lost are the nodes of the cloud that were not Ready, and why; nil before the first reconcile.
	lost map[string]string
	// leaving are the components that were still there of a cloud that is being deleted, orphans its pods whose workload is gone, and since
	// when that is known. released is the cloud whose deletion has been completed.
	leaving  []string
	orphans  map[types.UID]time.Time
	released types.UID
}

// clouds are all that this process has seen.
type clouds struct {
	at *atomic.Int64 // when the last reconcile ended, in nanoseconds since 1970
	mu *sync.Mutex
	of map[types.NamespacedName]*cloud
	// instances are the clouds by namespace and label app.kubernetes.io/instance.
	instances map[types.NamespacedName]string
}

func newClouds() clouds {
	return clouds{at: &atomic.Int64{}, mu: &sync.Mutex{}, of: map[types.NamespacedName]*cloud{}, instances: map[types.NamespacedName]string{}}
}

func (c clouds) enter(key types.NamespacedName, firstAudit time.Time) *cloud {
	c.mu.Lock()
	m := c.of[key]
	if m == nil {
		m = &cloud{effects: effects.NewMemory(), last: last{nextAudit: firstAudit}}
		c.of[key] = m
	}
	c.mu.Unlock()
	m.mu.Lock()
	return m
}

func (c clouds) leave(m *cloud) {
	m.mu.Unlock()
	c.at.Store(time.Now().UnixNano())
}

// learn notes which cloud a label means: pods have no other hint.
func (c clouds) learn(namespace, instance, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[types.NamespacedName{Namespace: namespace, Name: instance}] = name
}

// forget drops everything about a cloud that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.reads.clouds.mu.Lock()
	defer r.reads.clouds.mu.Unlock()
	if m := r.reads.clouds.of[key]; m != nil && m.connections != nil {
		m.connections.Close()
	}
	delete(r.reads.clouds.of, key)
	maps.DeleteFunc(r.reads.clouds.instances, func(k types.NamespacedName, name string) bool {
		return k.Namespace == key.Namespace && name == key.Name
	})
	r.options.Observer.Gone(key)
}

// LastReconcile is when the last reconcile ended.
func (r *Reconciler) LastReconcile() time.Time { return time.Unix(0, r.reads.clouds.at.Load()) }

// Rest drops what reconciles keep for the next ones, and answers to writes that the cache has seen.
func (r *Reconciler) Rest(ctx context.Context) {
	r.reads.clouds.mu.Lock()
	all := maps.Clone(r.reads.clouds.of)
	r.reads.clouds.mu.Unlock()
	for key, m := range all {
		m.mu.Lock()
		m.memos.desired.drop()
		m.memos.issued.drop()
		if m.written != nil {
			cached := &v1alpha1.OnecloudCluster{}
			if err := r.acts.client.Get(ctx, key, cached, client.UnsafeDisableDeepCopy); err == nil && !engine.Older(cached.ResourceVersion, m.written.ResourceVersion) {
				m.written = nil
			}
		}
		m.mu.Unlock()
	}
}

// CloudOf is the name of the cloud an object belongs to, "" if none.
func (r *Reconciler) CloudOf(o client.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == v1alpha1.Kind {
		return ref.Name
	}
	label := o.GetLabels()[v1alpha1.LabelInstance]
	r.reads.clouds.mu.Lock()
	name := r.reads.clouds.instances[types.NamespacedName{Namespace: o.GetNamespace(), Name: label}]
	r.reads.clouds.mu.Unlock()
	if made, ok := strings.CutPrefix(label, v1alpha1.InstancePrefix); ok && name == "" {
		return made // before its first reconcile
	}
	return name
}

// Deleted drops everything that is remembered of an object.
func (r *Reconciler) Deleted(o client.Object) {
	if gvk, err := apiutil.GVKForObject(o, r.acts.client.Scheme()); err == nil {
		r.acts.applier.Forget(engine.Key{GVK: gvk, Namespace: o.GetNamespace(), Name: o.GetName()})
	}
}

// Woken delivers clouds that something outside Kubernetes has happened to.
func (r *Reconciler) Woken() <-chan event.GenericEvent { return r.acts.woken }

// waker brings another reconcile of a cloud. One too many does no harm, and one that is lost comes with the next watch or timer.
func waker(woken chan<- event.GenericEvent, key types.NamespacedName) func() {
	return func() {
		cr := &v1alpha1.OnecloudCluster{}
		cr.Namespace, cr.Name = key.Namespace, key.Name
		select {
		case woken <- event.GenericEvent{Object: cr}:
		default:
		}
	}
}

// jitter spreads audits of many clouds: between 1 and 1.25 times d, the same for the same name.
func jitter(d time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails to write
	return d + d*time.Duration(h.Sum32()%256)/1024
}

// catalogue is the list of components this build knows.
type catalogue struct {
	components []component.Component
	// names are in the catalogue's own order, order the same with dependencies first.
	names, order []string
	images       map[string]string
}

// newCatalogue orders the components; nil are those of the catalogue, whose own test keeps it free of cycles. own is the operator's image.
func newCatalogue(own string, components []component.Component) (catalogue, error) {
	table, err := images.Load()
	if err != nil {
		return catalogue{}, err
	}
	if components == nil {
		components = catalog.All()
	}
	c := catalogue{components: components, images: table.Refs()}
	if own != "" {
		c.images[component.OwnImage] = own
	}
	after := map[string][]string{}
	for _, one := range c.components {
		c.names = append(c.names, one.Name)
		after[one.Name] = one.After
	}
	if c.order, err = engine.Order(c.names, func(n string) []string { return after[n] }); err != nil {
		return c, fmt.Errorf("ordering the catalogue: %w", err)
	}
	return c, nil
}

// componentOf is the name of the component that an object belongs to, read from its label. A read-only replica ("-slave") belongs to its
// component. A component may label its objects with a name other than its own.
func (c catalogue) componentOf(o client.Object) string {
	label := strings.TrimSuffix(o.GetLabels()[v1alpha1.LabelComponent], "-slave")
	for _, one := range c.components {
		if label != "" && one.Workload.PodLabels[v1alpha1.LabelComponent] == label {
			return one.Name
		}
	}
	return label
}

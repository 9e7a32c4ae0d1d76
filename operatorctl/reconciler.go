// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Reconciler brings clouds to what their specs say.
type Reconciler struct {
	client  client.Client
	direct  client.Reader
	scheme  *runtime.Scheme
	applier *engine.Applier
	events  events.EventRecorder
	options Options
	log     *slog.Logger
	catalog []component.Component
	// names are the catalogue's in its own order, order the same with dependencies first.
	names, order []string
	images       map[string]string
	now          func() time.Time
	metrics      *instruments
	keys         keys
	// woken are clouds for which something has ended that a pass did not wait for.
	woken chan event.GenericEvent

	// lastPass is when the last pass ended, in nanoseconds since 1970.
	lastPass atomic.Int64

	mu     sync.Mutex
	clouds map[types.NamespacedName]*memory
	// instances are the clouds by namespace and label app.kubernetes.io/instance.
	instances map[types.NamespacedName]string
}

// memory is what is remembered of one cloud between passes. Losing it costs a few requests and nothing else.
type memory struct {
	// known is what the last pass worked out, nil after a rest.
	known     atomic.Pointer[known]
	effects   *effects.Memory
	clients   *effects.Connections
	nextAudit time.Time
	// defaultsHold is for what cloud the defaults were found to stand in the spec, see resolvedFrom.
	defaultsHold string
	// judged is what was said of the spec of the generation it names.
	judged *judgement
	// accessHash tells when the way to databases and services is another.
	accessHash string
	// refusals is in how many passes on end the API server refused something.
	refusals int
	// served are, by Secret, hashes of the CA certificates that all pods ran with at the end of the last pass.
	served map[string]string
	// leaving are the components of a cloud that is being deleted that were there in the last pass.
	leaving []string
	// orphans are pods of a cloud that is being deleted whose workload is gone, and since when that is known.
	orphans map[types.UID]time.Time
	// supplied is a Secret of certificates that is not ours.
	supplied *corev1.Secret
	// written is the answer to our last write of the cloud, until the cache has caught up.
	written atomic.Pointer[v1alpha1.OnecloudCluster]
	// lost are the nodes of the cloud that were not Ready in the last pass, and why; nil before the first one.
	lost map[string]string
	// released is the cloud whose deletion has been completed.
	released types.UID
	// adminPassword of the database where it lies in a Secret of somebody else, and which Secret it was read from.
	adminPassword, adminSecret string
}

func newReconciler(c client.Client, direct client.Reader, rec events.EventRecorder, o Options) (*Reconciler, error) {
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Audit == 0 {
		o.Audit = DefaultAudit
	}
	r := &Reconciler{
		client: c, direct: direct, scheme: c.Scheme(), applier: newApplier(c), events: rec,
		options: o, log: o.Log, catalog: catalog.All(), names: catalogNames(), order: catalogOrder(), now: time.Now,
		clouds: map[types.NamespacedName]*memory{}, instances: map[types.NamespacedName]string{}, woken: make(chan event.GenericEvent, 64), keys: newKeys(),
		metrics: newInstruments(registry()), images: table.Refs(),
	}
	r.applier.Now = func() time.Time { return r.now() }
	return r, nil
}

func catalogNames() []string {
	var names []string
	for _, c := range catalog.All() {
		names = append(names, c.Name)
	}
	return names
}

// catalogOrder is the catalogue's names, dependencies first. The catalogue's own test keeps it free of cycles.
func catalogOrder() []string {
	after := map[string][]string{}
	for _, c := range catalog.All() {
		after[c.Name] = c.After
	}
	order, err := engine.Order(catalogNames(), func(n string) []string { return after[n] })
	if err != nil {
		panic(fmt.Sprintf("the catalogue has no order: %v", err))
	}
	return order
}

// Reconcile makes one pass over one cloud.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer func() { r.lastPass.Store(time.Now().UnixNano()) }()
	m := r.memoryOf(req.NamespacedName)
	cr, err := r.read(ctx, req.NamespacedName, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cr == nil {
		r.drop(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	p := &pass{r: r, m: m, cr: cr, log: r.log.With("cluster", req.Name, "namespace", req.Namespace), now: r.now()}
	if !cr.DeletionTimestamp.IsZero() {
		return p.finalize(ctx)
	}
	all, left, _ := paused(cr.Annotations[v1alpha1.AnnotationPaused], r.catalog)
	if all {
		return p.paused(ctx)
	}
	p.left = left
	if err := p.guard(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return p.run(ctx)
}

// guard adds the finalizer, before anything is made outside Kubernetes. A merge patch leaves the rest of the object, which may hold
// fields we do not know, untouched.
func (p *pass) guard(ctx context.Context) error {
	before := p.cr.DeepCopy()
	if !controllerutil.AddFinalizer(p.cr, v1alpha1.Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := p.r.client.Patch(ctx, p.cr, patch, client.FieldOwner(engine.FieldManager)); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	p.wrote(p.cr)
	return nil
}

// wrote goes on with the answer to a write of the cloud.
func (p *pass) wrote(cr *v1alpha1.OnecloudCluster) {
	p.cr = cr
	p.m.written.Store(cr.DeepCopy())
}

// read gets the cloud from the cache, or the answer to our own last write where the cache is behind it. nil means it is gone.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName, m *memory) (*v1alpha1.OnecloudCluster, error) {
	cr := &v1alpha1.OnecloudCluster{}
	if err := r.client.Get(ctx, key, cr); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // documented: nil means it is gone
		}
		return nil, fmt.Errorf("reading the cloud: %w", err)
	}
	if w := m.written.Load(); w != nil && w.UID == cr.UID && engine.Older(cr.ResourceVersion, w.ResourceVersion) {
		return w.DeepCopy(), nil
	}
	m.written.Store(nil)
	return cr.DeepCopy(), nil
}

func (r *Reconciler) memoryOf(key types.NamespacedName) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.clouds[key]
	if m == nil {
		m = &memory{effects: effects.NewMemory(), nextAudit: r.now().Add(jitter(r.options.Audit, key.Name))}
		r.clouds[key] = m
	}
	return m
}

func (r *Reconciler) drop(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.clouds[key]; m != nil && m.clients != nil {
		m.clients.Close()
	}
	delete(r.clouds, key)
	maps.DeleteFunc(r.instances, func(k types.NamespacedName, name string) bool {
		return k.Namespace == key.Namespace && name == key.Name
	})
	r.metrics.forget(key.Namespace, key.Name)
}

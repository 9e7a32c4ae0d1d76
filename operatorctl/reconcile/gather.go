// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/status"
)

// reader reads everything that a reconcile decides on. It writes nothing.
type reader struct {
	// client reads the cache, direct bypasses it. applier knows which writes the cache must show.
	client, direct client.Reader
	applier        *engine.Applier
	scheme         *runtime.Scheme
	catalog        catalogue
	clouds         clouds
	withoutNodes   bool
	operations     bool
	atOnce         bool
	audits         bool
	now            func() time.Time
}

// gather reads everything that a reconcile decides on, for a settled cloud from the cache alone, and writes nothing. State.Cloud is nil if the cloud is gone.
func (r reader) gather(ctx context.Context, m *cloud, key types.NamespacedName) (State, error) {
	cr, err := r.read(ctx, m, key)
	if err != nil || cr == nil {
		return State{}, err
	}
	return r.gatherOf(ctx, m, cr)
}

// gatherOf is gather for a cloud that was already read.
func (r reader) gatherOf(ctx context.Context, m *cloud, cr *v1alpha1.OnecloudCluster) (State, error) {
	s := State{Cloud: cr, Now: r.now(), Last: m.last, Done: nothingDone()}
	var err error
	s.Audit = r.audits && !s.Now.Before(m.last.nextAudit)
	s.Catalog = r.catalog
	s.Paused = pausedBy(s.Cloud.Annotations[v1alpha1.AnnotationPaused], r.catalog.components)
	if s.Live, err = r.list(ctx, s.Cloud); err != nil {
		return s, err
	}
	if !s.Cloud.DeletionTimestamp.IsZero() {
		return s, nil
	}
	running, failed, err := r.rollout(ctx, cr)
	s.Releases.failed, s.Releases.cannotMove = failed, !r.operations
	if err != nil || s.Paused.all {
		return s, err
	}
	if err := r.ownDatabase(ctx, s.Cloud); err != nil {
		return s, err
	}
	kept, newest := releasesOf(s)
	if err := r.releaseKept(ctx, s, newest, running); err != nil {
		return s, err
	}
	s.Releases.kept = kept
	if err := gatherRelease(m, &s, newest, running, r.atOnce); err != nil {
		return s, err
	}
	return s, r.gatherSecrets(ctx, m, &s)
}

// read returns the cloud from the cache, or the response to our last write if that is newer; nil if the cloud is gone.
func (r reader) read(ctx context.Context, m *cloud, key types.NamespacedName) (*v1alpha1.OnecloudCluster, error) {
	cr := &v1alpha1.OnecloudCluster{}
	if err := r.client.Get(ctx, key, cr); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // documented: nil means it is gone
		}
		return nil, fmt.Errorf("reading the cloud: %w", err)
	}
	if w := m.written; w != nil && w.UID == cr.UID && engine.Older(cr.ResourceVersion, w.ResourceVersion) {
		return w.DeepCopy(), nil
	}
	m.written = nil
	return cr.DeepCopy(), nil
}

// ownDatabase rejects a cloud that shares its database server with an older cloud: database names are the same in every cloud, so one would change
// the passwords of the other, and perhaps drop its databases.
func (r reader) ownDatabase(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	var all v1alpha1.OnecloudClusterList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the clouds: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.UID == cr.UID || !older(o, cr) {
			continue
		}
		field, host := "mysql", cr.Spec.MySQL.Host
		if !sameServer(cr, o, cr.Spec.MySQL, o.Spec.MySQL, resolve.DefaultMysqlPort) {
			if field, host = "clickhouse", cr.Spec.Clickhouse.Host; !sameServer(cr, o, cr.Spec.Clickhouse, o.Spec.Clickhouse, component.DefaultClickHousePort) {
				continue
			}
		}
		return fmt.Errorf("the database server %s (spec.%s) already belongs to cloud %s/%s: use a different server for this cloud", host, field, o.Namespace, o.Name)
	}
	return nil
}

// sameServer reports whether two clouds use the same server. A name without a dot is a Service in the cloud's own namespace.
func sameServer(a, b *v1alpha1.OnecloudCluster, x, y v1alpha1.DatabaseServer, usual int32) bool {
	return x.Host != "" && x.Host == y.Host && cmp.Or(x.Port, usual) == cmp.Or(y.Port, usual) && (a.Namespace == b.Namespace || strings.ContainsAny(x.Host, ".:"))
}

// older reports whether a cloud came before another one. A cloud without a release has not used its server yet; a creation time may be of a clock that was
// ahead.
func older(a, b *v1alpha1.OnecloudCluster) bool {
	used := min(1, b.Status.Release.Revision) - min(1, a.Status.Release.Revision)
	return cmp.Or(used, a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)) < 0
}

// list reads the objects of a cloud from the cache. It returns a *staleCache error while the cache does not show our own writes.
func (r reader) list(ctx context.Context, cr *v1alpha1.OnecloudCluster) (Live, error) {
	l := Live{namespace: cr.Namespace, objects: map[engine.Key]client.Object{}}
	if behind, until, err := r.applier.Behind(ctx, cr.Namespace, cr.Name); err != nil {
		return l, fmt.Errorf("reading the cache: %w", err)
	} else if behind {
		return l, &staleCache{until}
	}
	all := map[engine.Key]client.Object{}
	usual := v1alpha1.InstancePrefix + cr.Name
	for _, kind := range render.Kinds() {
		err := r.each(ctx, kind, cr.Namespace, func(k engine.Key, o client.Object) {
			owner := metav1.GetControllerOfNoCopy(o)
			if owner == nil || owner.UID == cr.UID || o.GetLabels()[v1alpha1.LabelInstance] == usual { // not owned by another cloud
				all[k] = o
			}
		})
		if err != nil {
			return l, err
		}
	}
	l.redundancy, _ = all[coreKey("ConfigMap", cr.Namespace, dbpair.StateName)].(*corev1.ConfigMap)
	l.instance = instanceOf(cr, all)
	r.clouds.learn(cr.Namespace, l.instance, cr.Name)
	belongs := func(o client.Object) bool {
		label := o.GetLabels()[v1alpha1.LabelInstance]
		return label == l.instance || label == usual || cr.UID != "" && metav1.IsControlledBy(o, cr)
	}
	for k, o := range all {
		if belongs(o) {
			l.objects[k] = o
		}
	}
	var pods corev1.PodList
	sel := client.MatchingLabels{v1alpha1.LabelInstance: l.instance}
	if err := r.client.List(ctx, &pods, client.InNamespace(cr.Namespace), sel, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("listing pods: %w", err)
	}
	l.pods = pods.Items
	var err error
	l.nodes, err = r.nodes(ctx)
	l.address = status.PublicAddress(l.nodes)
	return l, err
}

// staleCache is the error of a cache without our last writes. A watch event triggers the next reconcile, at the latest it runs at until.
type staleCache struct{ until time.Time }

func (*staleCache) Error() string { return "the cache does not show the last writes yet" }

// each calls visit for the cached objects of one of render.Kinds in a namespace.
func (r reader) each(ctx context.Context, kind client.Object, namespace string, visit func(engine.Key, client.Object)) error {
	gvk := kind.GetObjectKind().GroupVersionKind()
	obj, err := r.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if list, ok := obj.(client.ObjectList); err == nil && ok {
		err = r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	}
	if err == nil {
		err = meta.EachListItem(obj, func(o runtime.Object) error {
			if c, ok := o.(client.Object); ok {
				visit(engine.Key{GVK: gvk, Namespace: c.GetNamespace(), Name: c.GetName()}, c)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", gvk.Kind, err)
	}
	return nil
}

// nodes returns the nodes of the Kubernetes cluster from the cache, nil if they may not be read.
func (r reader) nodes(ctx context.Context) ([]status.Node, error) {
	if r.withoutNodes {
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

// instanceOf returns the label app.kubernetes.io/instance of a cloud. It is derived from the cloud's name, unless workloads select their pods by
// another one. The earlier operator took it from the label of the resource, which was random in older releases.
func instanceOf(cr *v1alpha1.OnecloudCluster, all map[engine.Key]client.Object) string {
	count := map[string]int{}
	for k, o := range all {
		if k.Namespace != cr.Namespace || cr.UID == "" || !metav1.IsControlledBy(o, cr) {
			continue
		}
		if _, s := component.PodOf(o); s != nil && s.MatchLabels[v1alpha1.LabelInstance] != "" {
			count[s.MatchLabels[v1alpha1.LabelInstance]]++
		}
	}
	if len(count) == 0 && !cr.DeletionTimestamp.IsZero() { // the last workload is gone before its pods
		for _, o := range all {
			if label := o.GetLabels()[v1alpha1.LabelInstance]; label != "" && metav1.IsControlledBy(o, cr) {
				count[label]++
			}
		}
	}
	best := v1alpha1.InstancePrefix + cr.Name
	for _, label := range slices.Sorted(maps.Keys(count)) {
		if count[label] > count[best] {
			best = label
		}
	}
	return best
}

// A cloud whose release in force is lost stays as it is. Using the previous release would move all services back at once, without the checks and the
// backups of an operation. Rendering it again would bring the changes of another operator build.

// releasesOf returns the kept releases of a cloud, and the newest revision, 0 if there is none.
func releasesOf(s State) (kept map[int]*corev1.Secret, newest int) {
	kept = map[int]*corev1.Secret{}
	for _, o := range s.Live.objects {
		secret, ok := o.(*corev1.Secret)
		if n := release.Revision(o); ok && n > 0 && metav1.IsControlledBy(o, s.Cloud) {
			kept[n], newest = secret, max(newest, n)
		}
	}
	return kept, newest
}

// releaseKept returns an error if the release in force is lost and no user has let the cloud continue without it. A stale cache or a lost label does
// not count as loss.
func (r reader) releaseKept(ctx context.Context, s State, newest int, running *v1alpha1.OnecloudOperation) error {
	in := s.Cloud.Status.Release.Revision
	if newest >= in {
		return nil
	}
	secret := &corev1.Secret{}
	err := r.direct.Get(ctx, client.ObjectKey{Namespace: s.Cloud.Namespace, Name: release.SecretName(s.Cloud.Name, in)}, secret)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading release %d: %w", in, err)
	case err == nil && release.Revision(secret) == in && secret.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ValueManagedBy && metav1.IsControlledBy(secret, s.Cloud):
		return &staleCache{s.Now.Add(soon)}
	case err == nil:
		return fmt.Errorf("the labels or the owner of Secret %s-release-%d, which holds the release in force, were changed: restore them%s", s.Cloud.Name, in, without(s.Cloud))
	case running != nil:
		return fmt.Errorf("the release in force, %d, is lost: restore Secret %s-release-%d; or end operation %s first%s", in, s.Cloud.Name, in, running.Name, without(s.Cloud))
	case s.Cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(in):
		return nil
	}
	return fmt.Errorf("the release in force, %d, is lost: restore Secret %s-release-%d%s", in, s.Cloud.Name, in, without(s.Cloud))
}

// without describes how a user lets a cloud continue without its release in force.
func without(c *v1alpha1.OnecloudCluster) string {
	return fmt.Sprintf("; or let the cloud continue without it immediately, as this operator renders its spec (version %s): kubectl -n %s annotate --overwrite oc %s %s=%d",
		cmp.Or(c.Spec.Version, c.Status.Release.Version), c.Namespace, c.Name, v1alpha1.AnnotationAtOnce, c.Status.Release.Revision)
}

// gatherRelease reads the newest kept release of a cloud, 0 for none, and decides whether what this build renders may replace it.
func gatherRelease(m *cloud, s *State, current int, running *v1alpha1.OnecloudOperation, atOnce bool) error {
	if running == nil {
		m.memos.from.drop()
	}
	if s.Releases.free = current == 0 || current < s.Cloud.Status.Release.Revision; s.Releases.free { // no release, or it is lost
		s.Cloud.Spec.Version = cmp.Or(s.Cloud.Spec.Version, s.Cloud.Status.Release.Version)
		return nil
	}
	secret := s.Releases.kept[current]
	var err error
	s.Releases.current, err = m.memos.index.get(string(secret.UID)+"/"+secret.ResourceVersion, func() (*release.Release, error) {
		full, err := release.Decode(secret)
		if err == nil {
			err = full.Inputs()
		}
		if err != nil {
			return nil, err
		}
		return full.Index(), nil
	})
	if err != nil {
		return fmt.Errorf("%w: restore it%s; then: kubectl -n %s delete secret %s", err, without(s.Cloud), s.Cloud.Namespace, secret.Name)
	}
	s.Releases.asked = s.Cloud.Annotations[v1alpha1.AnnotationUpdateFrom] == strconv.Itoa(current)
	s.Cloud.Spec.Version = cmp.Or(s.Cloud.Spec.Version, s.Releases.current.Version) // without a version, the cloud stays where it is: latest is for new clouds
	moved := s.Cloud.Spec.Version != s.Releases.current.Version
	// A cloud that never ran has nothing to lose, and a user may have asked for this release to move without an operation.
	atOnce = atOnce || !s.Cloud.Status.HasRun() || s.Cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(current)
	if running != nil || !atOnce {
		if moved, err = s.heed(m, running, moved || s.Releases.asked); err != nil {
			return err
		}
	}
	s.Releases.free = m.own == current || s.Releases.asked || moved
	if !s.Releases.free {
		s.Catalog = s.Catalog.only(s.Releases.current.Catalog)
	}
	return nil
}

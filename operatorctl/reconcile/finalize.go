// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/operatorctl/status"
)

// abandonDatabases is the value of AnnotationAbandon.
const abandonDatabases = "databases"

// finalize removes a cloud in reverse order: a component is deleted once all that come after it are gone. Configuration, Services and certificates
// are deleted with the cloud by their owner reference. Databases, claims and credentials stay unless spec.deletionPolicy is Delete. A deletion that
// orphans the objects ("kubectl delete --cascade=orphan") leaves all of that.
func (r *Reconciler) finalize(ctx context.Context, m *cloud, s State) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.Cloud, v1alpha1.Finalizer) {
		if others := s.Cloud.Finalizers; len(others) > 0 {
			return ctrl.Result{}, r.reportDeleting(ctx, m, s, nil, "all workloads of the cloud were deleted; its own deletion is blocked by "+finalizers(others))
		}
		return ctrl.Result{}, nil
	}
	if m.last.released == s.Cloud.UID {
		return ctrl.Result{}, nil // the cache is stale: neither purge the data nor report the end twice
	}
	if controllerutil.ContainsFinalizer(s.Cloud, metav1.FinalizerOrphanDependents) {
		return ctrl.Result{}, r.release(ctx, m, s, "the cloud was deleted with --cascade=orphan: its objects and its data stay, and its pods continue to run")
	}
	left := remaining(s, r.acts.catalog)
	var errs []error
	for name, keys := range left {
		if neededBy(name, left, r.acts.catalog) {
			continue
		}
		for _, key := range keys {
			if s.Live.objects[key].GetDeletionTimestamp().IsZero() {
				errs = append(errs, r.acts.applier.Delete(ctx, key))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, r.blocked(ctx, m, s, err)
	}
	if len(left) > 0 {
		// A node that does not end a pod is reported after a while; no watch event triggers that.
		var blockers string
		blockers, m.last.orphans = deletionBlockers(s, r.acts.catalog, left)
		message := "waiting for the pods of " + strings.Join(slices.Sorted(maps.Keys(left)), ", ") + blockers
		return ctrl.Result{RequeueAfter: stuckAfter}, r.reportDeleting(ctx, m, s, left, message)
	}
	if m.effects.Busy() { // nothing may be created after this
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if s.Cloud.Spec.DeletionPolicy == v1alpha1.Delete {
		if err := r.acts.purge(ctx, m, s); err != nil {
			return ctrl.Result{}, r.blocked(ctx, m, s, fmt.Errorf(
				"%w; the operator retries. To keep all data, set spec.deletionPolicy to Retain; to keep only the databases: kubectl -n %s annotate oc %s %s=%s",
				err, s.Cloud.Namespace, s.Cloud.Name, v1alpha1.AnnotationAbandon, abandonDatabases))
		}
	}
	return ctrl.Result{}, r.release(ctx, m, s, "all workloads of the cloud were deleted")
}

// release lets the API server delete the cloud.
func (r *Reconciler) release(ctx context.Context, m *cloud, s State, note string) error {
	patch := kube.IfUnchanged(s.Cloud.DeepCopy())
	controllerutil.RemoveFinalizer(s.Cloud, v1alpha1.Finalizer)
	if err := r.acts.client.Patch(ctx, s.Cloud, patch, client.FieldOwner(engine.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing the cloud: %w", err)
	}
	m.last.released = s.Cloud.UID
	r.acts.event(s.Cloud, normal("Delete", "Deleted", "%s", note))
	return nil
}

// reportDeleting reports what is left of a cloud being deleted, and what was removed since the last report.
func (r *Reconciler) reportDeleting(ctx context.Context, m *cloud, s State, left map[string][]engine.Key, message string) error {
	out := status.Of(s.Cloud, s.Now)
	surroundings(s, out)
	out.Deleting(message)
	var events []pendingEvent
	if s.Cloud.Status.Phase != out.Phase {
		events = append(events, normal(wholeCloud, string(out.Phase), "deleting the cloud, last component first"))
	}
	for _, gone := range m.last.leaving {
		if _, still := left[gone]; !still {
			events = append(events, normal(subject(gone), "Deleted", "%s was deleted", gone))
		}
	}
	if err := r.acts.publish(ctx, m, s, out, events); err != nil {
		return err
	}
	m.last.leaving = slices.Sorted(maps.Keys(left))
	return nil
}

// remaining returns the live workloads by component, with an empty entry for a component that only has running pods.
func remaining(s State, c catalogue) map[string][]engine.Key {
	left := map[string][]engine.Key{}
	for key, o := range s.Live.objects {
		switch key.GVK.Kind {
		case "Deployment", "StatefulSet", "DaemonSet", "CronJob":
			name := c.componentOf(o)
			left[name] = append(left[name], key)
		}
	}
	for i := range s.Live.pods {
		p := &s.Live.pods[i]
		if kube.PodEnded(p) && p.DeletionTimestamp == nil {
			continue // pods of a backup Job stay for minutes and do nothing
		}
		name := c.componentOf(p)
		if _, there := left[name]; !there {
			left[name] = nil
		}
	}
	return left
}

// neededBy reports whether a remaining component comes after the named one.
func neededBy(name string, left map[string][]engine.Key, all catalogue) bool {
	return slices.ContainsFunc(all.components, func(c component.Component) bool {
		_, there := left[c.Name]
		return there && slices.Contains(c.After, name)
	})
}

// purge removes everything that holds data: databases and their accounts, claims, credentials and certificates.
func (a actor) purge(ctx context.Context, m *cloud, s State) error {
	if s.Cloud.Annotations[v1alpha1.AnnotationAbandon] != abandonDatabases {
		if err := a.purgeDatabases(ctx, m, s); err != nil {
			return err
		}
	}
	var errs []error
	for key, o := range s.Live.objects {
		claim := key.GVK.Kind == "PersistentVolumeClaim"
		if s, ok := o.(*corev1.Secret); ok && secrets.IsProvided(s) {
			continue // a user's
		}
		if claim && holdsBackups(o, a.catalog) && s.Cloud.Annotations[v1alpha1.AnnotationDeleteBackups] != "true" {
			// They are all that is left of a cloud that was deleted by mistake.
			a.event(s.Cloud, warning(wholeCloud, "BackupsKept",
				"claim %s contains the backups and is kept; to delete it when they are no longer needed: kubectl -n %s delete pvc %s",
				o.GetName(), s.Cloud.Namespace, o.GetName()))
			continue
		}
		if claim || key.GVK.Kind == "Secret" && o.GetLabels()[v1alpha1.LabelComponent] == "" {
			errs = append(errs, a.applier.Delete(ctx, key))
		}
	}
	return errors.Join(errs...)
}

func holdsBackups(claim client.Object, all catalogue) bool {
	name := all.componentOf(claim)
	return slices.ContainsFunc(all.components, func(c component.Component) bool { return c.Name == name && c.Storage != nil && c.Storage.Backups })
}

// purgeTimeout limits the dropping of all databases of a cloud.
const purgeTimeout = time.Minute

// purgeDatabases drops the databases of the cloud. It cannot reach a ClickHouse server that the spec no longer names.
func (a actor) purgeDatabases(ctx context.Context, m *cloud, s State) error {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	passwords, names := secrets.Split(s.Live.secret(secrets.CredentialsSecret(s.Cloud.Name)))
	s.Secrets.credentials = s.Live.secret(secrets.CredentialsSecret(s.Cloud.Name))
	clients := a.clients(m, s, component.Cluster{}, passwords, nil)
	recorded := onRecord(s.Cloud)
	var earlier []component.Component // recorded as created by this cloud, perhaps before databases were marked
	for _, c := range a.catalog.components {
		if c.UsesClickHouse() && recorded["clickhouse/"+c.Name] != "" {
			if err := effects.DropClickHouse(ctx, clients, c.Renamed(names), passwords); err != nil {
				return fmt.Errorf("dropping the databases of the cloud: %w", err)
			}
		}
		if c.Database != nil && recorded["database/"+c.Name] != "" {
			earlier = append(earlier, c.Renamed(names))
		}
	}
	admin, err := clients.MySQL(ctx)
	if err != nil {
		return fmt.Errorf("dropping the databases of the cloud: %w", err)
	}
	if err := effects.MarkEarlier(ctx, admin, earlier, passwords); err != nil {
		return err
	}
	return admin.DropOwned(ctx)
}

// stuckAfter is how long a node may take to end a pod before that is reported.
const stuckAfter = 30 * time.Second

// deletionBlockers describes deleted objects that do not go away, and why: a finalizer of another program or, after a while, a node that does not end
// a pod, or a pod without a controller; "" if there are none. It also returns when each orphaned pod was first seen.
func deletionBlockers(s State, all catalogue, left map[string][]engine.Key) (string, map[types.UID]time.Time) {
	var out []string
	add := func(what string, o client.Object, otherwise string) {
		at := o.GetDeletionTimestamp()
		if at == nil {
			return
		}
		why := otherwise
		if s.Now.Before(at.Add(stuckAfter)) {
			why = ""
		}
		others := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents // belongs to the garbage collector; soon over
		})
		if len(others) > 0 {
			why = "is blocked by " + finalizers(others)
		}
		if why != "" {
			out = append(out, what+" "+o.GetName()+" "+why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for _, key := range left[name] {
			add(key.GVK.Kind, s.Live.objects[key], "") // without a finalizer, it only waits for its pods
		}
	}
	// Nothing deletes an orphan: its workload left it behind ("kubectl delete --cascade=orphan"), or a user created it with our labels. It is not ours
	// to delete.
	orphans, names := map[types.UID]time.Time{}, []string(nil)
	for i := range s.Live.pods {
		pod := &s.Live.pods[i]
		add("pod", pod, fmt.Sprintf("does not terminate on node %q", pod.Spec.NodeName))
		if len(left[all.componentOf(pod)]) > 0 || pod.DeletionTimestamp != nil {
			continue
		}
		since, known := s.Last.orphans[pod.UID]
		if !known {
			since = s.Now
		}
		orphans[pod.UID] = since
		if !s.Now.Before(since.Add(stuckAfter)) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	for _, pod := range names {
		out = append(out, fmt.Sprintf("pod %s has no controller to delete it (kubectl -n %s delete pod %s)", pod, s.Cloud.Namespace, pod))
	}
	if len(out) == 0 {
		return "", orphans
	}
	return "; " + strings.Join(out, "; "), orphans
}

func finalizers(names []string) string {
	if len(names) == 1 {
		return "the finalizer " + names[0]
	}
	return "the finalizers " + strings.Join(names, ", ")
}

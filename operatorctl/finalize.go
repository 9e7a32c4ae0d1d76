// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// finalize removes a cloud in reverse order: a component goes once all that come after it are gone. Configuration, Services and
// certificates go with the owner reference when the cloud itself does. Databases, claims and credentials stay unless
// spec.deletionPolicy is Delete.
func (p *pass) finalize(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(p.cr, v1alpha1.Finalizer) {
		if others := p.cr.Finalizers; len(others) > 0 {
			return ctrl.Result{}, p.reportDeleting(ctx, nil, "every workload of the cloud is gone; the cloud itself is kept by "+finalizers(others))
		}
		return ctrl.Result{}, nil
	}
	if p.m.released == p.cr.UID {
		return ctrl.Result{}, nil // the cache is behind: its data is not removed, nor its end told, twice
	}
	var err error
	if p.live, err = p.r.list(ctx, p.cr); err != nil {
		return ctrl.Result{}, err
	}
	left := p.workloadsByComponent()
	var errs []error
	for name, objs := range left {
		if p.neededBy(name, left) {
			continue
		}
		for _, o := range objs {
			if o.GetDeletionTimestamp().IsZero() {
				errs = append(errs, p.r.applier.Delete(ctx, o))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if len(left) > 0 {
		// A node that does not end a pod is told once it has taken long, which no watch brings.
		message := "waiting for the pods of " + strings.Join(slices.Sorted(maps.Keys(left)), ", ") + p.holding(left)
		return ctrl.Result{RequeueAfter: stuckAfter}, p.reportDeleting(ctx, left, message)
	}
	if p.m.effects.Busy() { // nothing may be made any more after what follows
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if p.cr.Spec.DeletionPolicy == v1alpha1.Delete {
		if err := p.purge(ctx); err != nil {
			err = fmt.Errorf("%w; it is tried again. To leave all data where it is, set spec.deletionPolicy to Retain; to leave only the databases: kubectl -n %s annotate oc %s %s=%s",
				err, p.cr.Namespace, p.cr.Name, v1alpha1.AnnotationAbandon, abandonDatabases)
			if perr := p.reportBlocked(ctx, err); perr != nil {
				err = errors.Join(err, perr)
			}
			return ctrl.Result{}, err
		}
	}
	patch := client.MergeFromWithOptions(p.cr.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(p.cr, v1alpha1.Finalizer)
	if err := p.r.client.Patch(ctx, p.cr, patch, client.FieldOwner(engine.FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("releasing the cloud: %w", err)
	}
	p.m.released = p.cr.UID
	p.r.events.Eventf(p.cr, nil, corev1.EventTypeNormal, "Deleted", "Delete", "every workload of the cloud is gone")
	return ctrl.Result{}, nil
}

// workloadsByComponent are the live workloads and, while pods of a component still run, the component itself.
func (p *pass) workloadsByComponent() map[string][]client.Object {
	left := map[string][]client.Object{}
	for key, o := range p.live.objects {
		switch key.GVK.Kind {
		case "Deployment", "StatefulSet", "DaemonSet", "CronJob":
			c, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				continue
			}
			c.GetObjectKind().SetGroupVersionKind(key.GVK)
			name := p.componentOf(o)
			left[name] = append(left[name], c)
		}
	}
	for i := range p.live.pods {
		name := p.componentOf(&p.live.pods[i])
		if _, there := left[name]; !there {
			left[name] = nil
		}
	}
	return left
}

// componentOf is the name of the component that an object belongs to, read from its label. A read-only twin ("-slave") belongs to its
// component. A component may label its objects with a name other than its own.
func (p *pass) componentOf(o client.Object) string {
	label := strings.TrimSuffix(o.GetLabels()[v1alpha1.LabelComponent], "-slave")
	for _, c := range p.r.catalog {
		if label != "" && c.Workload.PodLabels[v1alpha1.LabelComponent] == label {
			return c.Name
		}
	}
	return label
}

// neededBy tells whether a component that is still there comes after the named one.
func (p *pass) neededBy(name string, left map[string][]client.Object) bool {
	for _, c := range p.r.catalog {
		if _, there := left[c.Name]; there && slices.Contains(c.After, name) {
			return true
		}
	}
	return false
}

// purge removes what holds data: databases and their accounts, claims, credentials and certificates.
func (p *pass) purge(ctx context.Context) error {
	if s := p.live.secret(p.cr.Name + "-" + v1alpha1.SecretCredentials); s != nil {
		p.setCredentials(s)
	}
	if p.cr.Annotations[v1alpha1.AnnotationAbandon] != abandonDatabases {
		if err := p.purgeDatabases(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for key, o := range p.live.objects {
		isSecret := key.GVK.Kind == "Secret" && o.GetLabels()[v1alpha1.LabelComponent] == ""
		if s, ok := o.(*corev1.Secret); ok && isSupplied(s) {
			continue // somebody else's
		}
		if key.GVK.Kind == "PersistentVolumeClaim" && p.keepsBackups(o) {
			p.event(wholeCloud, corev1.EventTypeWarning, "BackupsKept",
				"claim %s holds the backups and stays; when they are not needed: kubectl -n %s delete pvc %s", o.GetName(), p.cr.Namespace, o.GetName())
			continue
		}
		if key.GVK.Kind == "PersistentVolumeClaim" || isSecret {
			if c, ok := o.DeepCopyObject().(client.Object); ok {
				c.GetObjectKind().SetGroupVersionKind(key.GVK)
				errs = append(errs, p.r.applier.Delete(ctx, c))
			}
		}
	}
	return errors.Join(errs...)
}

// abandonDatabases is the value of AnnotationAbandon.
const abandonDatabases = "databases"

// purgeTimeout bounds dropping all databases of a cloud.
const purgeTimeout = time.Minute

func (p *pass) purgeDatabases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	if p.m.clients == nil {
		p.m.clients = effects.NewConnections(p.r.options.connections())
	}
	clients := p.m.clients.For(p.access())
	if err := p.purgeClickHouse(ctx, clients); err != nil {
		return err
	}
	admin, err := clients.MySQL(ctx)
	if err != nil {
		return fmt.Errorf("dropping the databases of the cloud: %w", err)
	}
	if err := effects.MarkEarlier(ctx, admin, p.earlierDatabases(), p.creds); err != nil {
		return err
	}
	return admin.DropOwned(ctx)
}

// earlierDatabases are the components whose databases this cloud is on record as having made, perhaps before they were marked.
func (p *pass) earlierDatabases() []component.Component {
	var out []component.Component
	for _, c := range p.r.catalog {
		if c.Database != nil && p.cr.Status.Effects["database/"+c.Name] != "" {
			out = append(out, c.Renamed(p.names))
		}
	}
	return out
}

// keepsBackups tells whether a claim holds backups that nobody has asked to delete: they are what is left of a cloud that was deleted by
// mistake.
func (p *pass) keepsBackups(claim client.Object) bool {
	return p.componentOf(claim) == "backup" && p.cr.Annotations[v1alpha1.AnnotationDeleteBackups] != "true"
}

// purgeClickHouse drops what this cloud has made in ClickHouse. Where the spec names no server any more, it is out of reach.
func (p *pass) purgeClickHouse(ctx context.Context, clients effects.Clients) error {
	if p.cr.Spec.Clickhouse.Host == "" {
		return nil
	}
	for _, c := range p.r.catalog {
		if !c.UsesClickHouse() || p.cr.Status.Effects["clickhouse/"+c.Name] == "" {
			continue
		}
		if err := effects.DropClickHouse(ctx, clients, c.Renamed(p.names), p.creds); err != nil {
			return fmt.Errorf("dropping the databases of the cloud: %w", err)
		}
	}
	return nil
}

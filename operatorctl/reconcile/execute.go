// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// actor acts on the cluster, and on databases and services.
type actor struct {
	client   client.Client
	direct   client.Reader
	applier  *engine.Applier
	events   events.EventRecorder
	observer Observer
	logger   *slog.Logger
	catalog  catalogue
	options  effects.Options
	now      func() time.Time
	// woken receives clouds with an effect that ended after the reconcile stopped waiting for it.
	woken chan event.GenericEvent
}

// apply applies the objects of a plan: first configuration and secrets, together with the defaults, then the workloads whose pods mount them. An
// error concerns the whole cloud.
func (a actor) apply(ctx context.Context, m *cloud, s State, d *Desired, p Plan) (State, error) {
	var g errgroup.Group
	var written *v1alpha1.OnecloudCluster
	var certificates []engine.Change
	g.Go(func() (err error) {
		written, err = writeDefaults(ctx, a.client, p)
		return err
	})
	g.Go(func() (err error) {
		certificates, err = writeCertificates(ctx, a.applier, p.Secrets)
		return err
	})
	err := a.applyItems(ctx, s, d, p.Base)
	if written := g.Wait(); written != nil {
		return s, written
	}
	for _, c := range certificates {
		a.note(s, nil, c)
	}
	if written != nil {
		s.Cloud, m.written = written, written.DeepCopy()
	}
	if apierrors.IsConflict(err) {
		return s, err
	}
	err = errors.Join(err, a.applyItems(ctx, s, d, p.Workloads))
	for _, i := range p.Workloads {
		s.outcome(i.target.Name).tried = true
	}
	if err != nil {
		a.log(s).Warn("applying", "error", err)
	}
	return s, nil
}

// writeDefaults writes the operator's choices into the spec, where "kubectl edit" shows them. It returns nil if it wrote nothing.
func writeDefaults(ctx context.Context, c client.Client, p Plan) (*v1alpha1.OnecloudCluster, error) {
	if p.Defaults == nil {
		return nil, nil //nolint:nilnil // documented: nothing was written
	}
	updated := &v1alpha1.OnecloudCluster{}
	err := c.Patch(ctx, p.Defaults, client.Apply, //nolint:staticcheck // typed apply configurations do not exist for the CR
		client.FieldOwner(v1alpha1.ManagerDefaults), client.ForceOwnership)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(p.Defaults.Object, updated)
	}
	if err != nil {
		return nil, fmt.Errorf("writing defaults into the spec: %w", err)
	}
	return updated, nil
}

// writeCertificates writes the CA before the certificates that it signed: an operator that is stopped in between continues with both.
func writeCertificates(ctx context.Context, applier *engine.Applier, all []client.Object) ([]engine.Change, error) {
	ca := min(1, len(all))
	first, err := applier.Apply(ctx, all[:ca])
	if err != nil {
		return first, err
	}
	signed, err := applier.Apply(ctx, all[ca:])
	return append(first, signed...), err
}

// applyItems applies objects. It does not even render those that are known to be up to date.
func (a actor) applyItems(ctx context.Context, s State, d *Desired, list []item) error {
	var errs []error
	var objs []client.Object
	var owners []item
	for _, i := range list {
		if s.outcome(i.target.Name).err != nil {
			continue
		}
		live := s.Live.objects[i.want.key]
		if live != nil {
			if c, ok := a.applier.Known(i.want.key, live.GetResourceVersion(), i.want.applied()); ok {
				a.note(s, i.target, c)
				continue
			}
		}
		pieces, err := d.render(s, i.target)
		o := object(pieces, i.want)
		if err == nil && o == nil {
			err = fmt.Errorf("rendering: %s %q changed in the meantime", i.want.key.GVK.Kind, i.want.key.Name)
		}
		if err != nil {
			errs = append(errs, s.notApplied(i.target, err))
			continue
		}
		// Users edit ConfigMaps. One that changed since it was read is not overwritten, but read again.
		if cm, ok := o.(*corev1.ConfigMap); ok && live != nil {
			cm.SetResourceVersion(live.GetResourceVersion())
		}
		objs, owners = append(objs, o), append(owners, i)
	}
	changes, perObject := a.applier.ApplyEach(ctx, objs)
	for n, err := range perObject {
		if err != nil {
			errs = append(errs, s.notApplied(owners[n].target, err))
		}
		a.note(s, owners[n].target, changes[n])
		if now := changes[n].Object; now != nil {
			s.Live.objects[owners[n].want.key] = now
		}
	}
	return errors.Join(errs...)
}

// note logs the change of an object, and keeps it for the report.
func (a actor) note(s State, c *target, change engine.Change) {
	if c != nil {
		o := s.outcome(c.Name)
		o.kept = append(o.kept, change.Kept...)
		if change.Conflict != nil {
			o.refusals = append(o.refusals, change.Conflict)
			s.retryAt(change.Conflict.Until)
		}
	}
	if change.Action != engine.Unchanged && change.Action != "" {
		a.log(s).Info("applied", "kind", change.Kind, "name", change.Name, "action", string(change.Action), "where", change.Where)
		s.Done.Changes = append(s.Done.Changes, change)
	}
}

// notApplied records that an object of a component was rejected. If it can never be accepted as it is, the rest of the component is still applied:
// that may contain the solution.
func (s State) notApplied(c *target, err error) error {
	o := s.outcome(c.Name)
	var refusal *engine.Refusal
	if errors.As(err, &refusal) {
		o.refusals = append(o.refusals, refusal)
		s.retryAt(refusal.Until)
	}
	if refusal == nil || refusal.Reason == engine.ReasonRefused {
		o.err = err
		s.Done.Refused = s.Done.Refused || refusal == nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// waitLimit is how long a reconcile waits for slow databases and services; a normal response takes milliseconds. Slower effects continue in the
// background and trigger another reconcile.
const waitLimit = 2 * time.Second

// ReasonRepaired is the event reason when something outside Kubernetes was lost or changed, and was made again.
const ReasonRepaired = "Repaired"

// ReasonReplaced is the event reason of lost passwords.
const ReasonReplaced = "CredentialsReplaced"

// perform runs the effects of a plan that are due. progress is true if it completed any for the first time.
func (a actor) perform(ctx context.Context, m *cloud, s State, d *Desired, p Plan) (progress bool) {
	recorded := s.recorded()
	runner := effects.Runner{
		Clients: a.connect(m, s, d), Memory: m.effects, Recorded: recorded, Audit: p.Audit, Now: a.now, WaitLimit: waitLimit,
		Available: func(name string) bool { return p.Available[name] },
		Serving:   func(name string) bool { return p.Serving[name] },
		Wake:      waker(a.woken, client.ObjectKeyFromObject(s.Cloud)),
	}
	for _, o := range runner.Run(ctx, p.Effects) {
		s.Done.Effects[o.Effect.Key] = o
		if o.State == effects.Done && !o.Effect.Note && recorded[o.Effect.Key] != o.Effect.Hash {
			progress = true
		}
		if o.Changed {
			a.log(s).Info("effect", "effect", o.Effect.Key)
			if !o.Effect.OwnEvents && s.Cloud.Status.Effects[o.Effect.Key] == o.Effect.Hash {
				a.event(s.Cloud, repaired(o.Effect))
			}
		}
		a.observer.Effect(o)
	}
	return progress
}

// repaired returns the event of an effect that was done, was undone by others, and was repaired.
func repaired(e effects.Effect) pendingEvent {
	note := "%s was changed or lost outside the operator and has been repaired"
	if e.Target == effects.MySQL || e.Target == effects.ClickHouse {
		return warning(subject(e.Key), ReasonRepaired, note+"; a lost database is now empty: restore a backup, then restart the pods of %s", e.Key, e.Component)
	}
	return warning(subject(e.Key), ReasonRepaired, note, e.Key)
}

// connect returns the clients for databases and services. If the connection settings changed, it retries all failed effects immediately: the change
// was probably a fix.
func (a actor) connect(m *cloud, s State, d *Desired) effects.Clients {
	way, err := engine.Hash([]any{s.Cloud.Spec.MySQL, s.Cloud.Spec.Clickhouse, d.Credentials, d.Certificates.CAPEM, s.Cloud.Annotations[v1alpha1.AnnotationAdoptDatabases]})
	if err == nil && way != m.access {
		if m.access != "" {
			m.effects.Retry()
		}
		m.access = way
	}
	return a.clients(m, s, d.Cluster, d.Credentials, d.Certificates.CAPEM)
}

// clients returns the clients for one round. They may be used after the reconcile, so they share nothing with the cloud.
func (a actor) clients(m *cloud, s State, cluster component.Cluster, credentials component.Credentials, ca []byte) effects.Clients {
	if m.connections == nil {
		m.connections = effects.NewConnections(a.options)
	}
	return m.connections.For(effects.Access{
		Cluster: cluster, Credentials: credentials, CAPEM: ca, MySQL: *s.Cloud.Spec.MySQL.DeepCopy(), ClickHouse: *s.Cloud.Spec.Clickhouse.DeepCopy(),
		Owner:  mysql.Owner{ID: idOf(s), Namespace: s.Cloud.Namespace, Name: s.Cloud.Name},
		Adopt:  effects.ParseAdoption(s.Cloud.Annotations[v1alpha1.AnnotationAdoptDatabases]),
		Secret: effects.Secrets(a.direct, s.Cloud.Namespace), SetState: a.setState(s, cluster), Notify: a.notify(s.Cloud),
	})
}

// clean deletes what is no longer wanted.
func (a actor) clean(ctx context.Context, s State, c cleanup) {
	for _, key := range c.deletes {
		if err := a.applier.Delete(ctx, key); err != nil {
			a.log(s).Warn("pruning", "error", err)
			s.Done.Refused = true
			continue
		}
		a.note(s, nil, engine.Change{Action: engine.Pruned, Kind: key.GVK.Kind, Name: key.Name})
	}
	for _, p := range c.patches {
		if err := a.client.Patch(ctx, p.Object, p.Patch, client.FieldOwner(engine.FieldManager)); err != nil && !apierrors.IsConflict(err) {
			a.log(s).Warn("removing leftovers of the earlier operator", "error", err)
			s.Done.Refused = true
		}
	}
}

// setState returns a function that writes the state of a component. Tasks may end after the reconcile.
func (a actor) setState(s State, cluster component.Cluster) func(ctx context.Context, component string, data map[string]string) error {
	empty := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: s.Cloud.Namespace, Labels: labels(s)},
	}
	own(s.Cloud, empty)
	return func(ctx context.Context, component string, data map[string]string) error {
		cm := empty.DeepCopy()
		cm.Name, cm.Data = cluster.State(component), data
		if data == nil {
			return a.applier.Delete(ctx, engine.KeyOf(cm))
		}
		_, err := a.applier.Apply(ctx, []client.Object{cm})
		return err
	}
}

// notify returns a function that turns the notices of tasks into events, also after the reconcile.
func (a actor) notify(cr *v1alpha1.OnecloudCluster) func(effects.Notice) {
	about := &v1alpha1.OnecloudCluster{TypeMeta: cr.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: cr.Name, Namespace: cr.Namespace, UID: cr.UID, ResourceVersion: cr.ResourceVersion,
	}}
	return func(n effects.Notice) {
		e := normal(subject(n.Component), n.Reason, "%s", n.Text)
		if n.Warning {
			e.kind = corev1.EventTypeWarning
		}
		a.event(about, e)
	}
}

// waker returns a function that triggers a reconcile of a cloud. A surplus one is harmless; a lost one is made up for by the next watch event or
// timer.
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

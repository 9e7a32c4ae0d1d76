// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/status"
)

// invalidSpec is a spec that cannot be carried out until somebody edits it.
type invalidSpec struct{ err error }

func (e *invalidSpec) Error() string { return e.err.Error() }
func (e *invalidSpec) Unwrap() error { return e.err }

// resolve turns the CR into values.
func (p *pass) resolve(ctx context.Context) error {
	if err := p.resolveOnce(); err != nil {
		return err
	}
	var err error
	if p.defaults, err = p.dueDefaults(); err != nil {
		return err
	}
	p.byName = map[string]*part{}
	for _, name := range p.r.order {
		c := &part{Resolved: p.cluster.Components[name], left: p.left[name]}
		p.parts = append(p.parts, c)
		p.byName[name] = c
	}
	p.gatherAdminPassword(ctx)
	if s := p.cr.Spec.Clickhouse; s.Password != "" {
		p.creds[component.ClickHouseAdminPassword] = s.Password // only to be kept out of what is told
	}
	return nil
}

// gatherAdminPassword puts the database administrator's password among the credentials if a component needs it: the backup dumps all
// databases of the cloud. A password in somebody else's Secret is read once, and again when the audit is due; it is not watched.
// Without it the backup alone cannot be made.
func (p *pass) gatherAdminPassword(ctx context.Context) {
	ref := p.cr.Spec.MySQL.PasswordSecretRef
	if p.cr.Spec.MySQL.Password != "" || ref == nil {
		p.creds[component.AdminPassword] = p.cr.Spec.MySQL.Password
		return
	}
	backup := p.byName["backup"]
	if backup == nil || !backup.Enabled {
		return
	}
	if from := ref.Name + "/" + ref.Key; p.m.adminSecret != from || p.auditDue() {
		pw, err := p.access().Secret(ctx, ref.Name, ref.Key)
		if err != nil {
			backup.err, p.refused = err, true
			return
		}
		p.m.adminPassword, p.m.adminSecret = pw, from
	}
	p.creds[component.AdminPassword] = p.m.adminPassword
}

func (p *pass) auditDue() bool { return p.r.options.Audit > 0 && !p.now.Before(p.m.nextAudit) }

// resolveOnce resolves the cloud, unless that was done of the same before.
func (p *pass) resolveOnce() error {
	read := p.resolvedFrom()
	if k := p.known; k.read == read {
		p.owned, p.cluster = k.owned, k.cluster
		return nil
	}
	var err error
	if p.owned, err = resolve.NewOwned(p.cr); err != nil {
		return fmt.Errorf("reading who owns the fields of the spec: %w", err)
	}
	facts := resolve.Facts{
		Components: p.r.catalog, Owned: p.owned, LastImages: resolve.LastImages(&p.cr.Status), Images: p.r.images,
		Names: p.names, Instance: p.live.instance, Address: p.address,
	}
	if err := p.admit(facts); err != nil {
		return err
	}
	// What goes on after the pass must not share the cloud with it.
	if p.cluster, err = resolve.Cluster(p.cr.DeepCopy(), facts); err != nil {
		return &invalidSpec{err}
	}
	p.blame()
	p.known.read, p.known.owned, p.known.cluster = read, p.owned, p.cluster
	return nil
}

// dueDefaults is what the operator chose and the spec does not show yet, where nobody else owns the field; nil if it shows everything.
func (p *pass) dueDefaults() (*unstructured.Unstructured, error) {
	// Working them out and comparing is a quarter of a pass that finds nothing to do.
	if p.m.defaultsHold == p.known.read {
		return nil, nil //nolint:nilnil // documented: nothing is due
	}
	defaults, err := resolve.Defaults(p.cr, p.cluster, p.owned)
	if err != nil {
		return nil, fmt.Errorf("working out the defaults: %w", err)
	}
	hold, err := engine.AppliedBy(p.cr, v1alpha1.ManagerDefaults, defaults)
	if err != nil {
		return nil, err
	}
	if hold {
		p.m.defaultsHold = p.known.read
		return nil, nil //nolint:nilnil // documented: nothing is due
	}
	// Only over what was read: a choice that a person makes at this moment must not be overwritten by a default.
	defaults.SetUID(p.cr.UID)
	defaults.SetResourceVersion(p.cr.ResourceVersion)
	return defaults, nil
}

// showDefaults begins to write what the operator chose into the spec, so that "kubectl edit" shows it. Nothing that is made of the resolved
// cloud is another for it, so the pass goes on meanwhile; written waits for the answer.
func (p *pass) showDefaults(ctx context.Context) (written func() error) {
	defaults := p.defaults
	if defaults == nil {
		return func() error { return nil }
	}
	var g errgroup.Group
	updated := &v1alpha1.OnecloudCluster{}
	g.Go(func() error {
		if err := p.r.client.Patch(ctx, defaults, client.Apply, //nolint:staticcheck // typed apply configurations do not exist for the CR
			client.FieldOwner(v1alpha1.ManagerDefaults), client.ForceOwnership); err != nil {
			return fmt.Errorf("writing defaults into the spec: %w", err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(defaults.Object, updated); err != nil {
			return fmt.Errorf("writing defaults into the spec: %w", err)
		}
		return nil
	})
	return func() error {
		if err := g.Wait(); err != nil {
			return err
		}
		p.wrote(updated)
		return nil
	}
}

// inputs of a component's render.
func (p *pass) inputs(c *part, options map[string]map[string]string) component.Inputs {
	return component.Inputs{
		Cluster: p.cluster, Self: c.Resolved, Credentials: p.creds, Options: options,
		CertHash: p.certs.certHash, EtcdHash: p.certs.etcdHash, Absent: p.absent(c),
		AdminPasswordTaken: p.passwordTaken(),
	}
}

// absent are the pods of a component that keep its rollout from going on, although they are no part of it.
func (p *pass) absent(c *part) int32 {
	if c.Workload.Kind != component.DaemonSet {
		return 0
	}
	o := p.live.objects[engine.Key{GVK: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Namespace: p.cr.Namespace, Name: p.cluster.Object(c.Name)}]
	if o == nil {
		return 0
	}
	return status.Absent(o, p.seen())
}

// passwordTaken tells whether the identity service has had the administrator's password.
func (p *pass) passwordTaken() bool {
	return effects.AdminPasswordTaken(string(p.cr.UID), p.creds, p.cr.Status.Effects)
}

// render makes the objects of every enabled component, unless they were made of the same before. One that cannot be rendered is its own
// failure, not the cloud's.
func (p *pass) render() {
	from := p.renderedFrom()
	if p.recall(from) {
		return
	}
	p.readOptions()
	for _, c := range p.parts {
		if !c.Enabled || c.err != nil {
			continue
		}
		if c.Problem != "" {
			c.err = errors.New(c.Problem)
			continue
		}
		if c.err = p.make(c); c.err == nil {
			c.wants, c.err = wantsOf(c.objects)
		}
	}
	p.planEffects()
	p.remember(from)
}

// made gives the objects of a component, which the pass before may have rendered.
func (p *pass) made(c *part) (component.Objects, error) {
	if c.made {
		return c.objects, nil
	}
	if p.chosen == nil {
		p.readOptions()
	}
	err := p.make(c)
	return c.objects, err
}

// make renders a component.
func (p *pass) make(c *part) error {
	in := p.inputs(c, p.chosen)
	in.Values = p.values
	var err error
	if c.objects, err = render.Component(c.Resolved, in); err != nil {
		return fmt.Errorf("rendering: %w", err)
	}
	c.made = true
	// Kinds and owners first: the hash by which an object is known again covers them.
	for _, o := range render.List(c.objects) {
		p.own(o)
		// People edit ConfigMaps. One that was changed since it was read is not overwritten, but read again.
		if cm, ok := o.(*corev1.ConfigMap); ok {
			if seen := p.live.get(cm); seen != nil {
				cm.SetResourceVersion(seen.GetResourceVersion())
			}
		}
	}
	return nil
}

// prune deletes what was applied once, or by the earlier operator, and is no longer rendered. Claims and certificates stay; so does
// everything of a component that could not be rendered in this pass, or that a person keeps the operator from, and the options people
// gave a component that is off.
func (p *pass) prune(ctx context.Context) {
	wanted := map[engine.Key]bool{}
	failed := map[string]bool{}
	for _, c := range p.parts {
		if c.err != nil || c.left {
			failed[c.Name] = true
			continue
		}
		if !c.Enabled {
			continue
		}
		for _, w := range c.wants {
			wanted[w.key] = true
		}
	}
	for key, o := range p.live.objects {
		comp := o.GetLabels()[v1alpha1.LabelComponent]
		if wanted[key] || comp == "" || failed[p.componentOf(o)] || key.GVK.Kind == "PersistentVolumeClaim" || !o.GetDeletionTimestamp().IsZero() ||
			o.GetAnnotations()[engine.HashAnnotation] == "" && !p.leftover(o) || isPeoples(o) {
			continue
		}
		u, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		u.GetObjectKind().SetGroupVersionKind(key.GVK)
		if err := p.r.applier.Delete(ctx, u); err != nil {
			p.log.Warn("pruning", "error", err)
			p.refused = true
			continue
		}
		p.log.Info("applied", "kind", key.GVK.Kind, "name", key.Name, "action", string(engine.Pruned))
		p.changes = append(p.changes, engine.Change{Action: engine.Pruned, Kind: key.GVK.Kind, Name: key.Name})
	}
}

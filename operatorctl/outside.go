// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// linger is how long a pass waits for databases and services that take their time; an ordinary answer takes milliseconds. What takes
// longer goes on by itself and brings a pass of its own.
const linger = 2 * time.Second

// ReasonRepaired is the event of something outside Kubernetes that was done once, was not there any more, and was done again.
const ReasonRepaired = "Repaired"

// ReasonReplaced is the event of passwords that were lost.
const ReasonReplaced = "CredentialsReplaced"

// effects performs the effects of a stage that are due, and tells whether any was done that was not done before.
func (p *pass) effects(ctx context.Context, stage effects.Stage) bool {
	if p.m.clients == nil {
		p.m.clients = effects.NewConnections(p.r.options.connections())
	}
	if p.outside == nil {
		p.noteAccess()
		clients := p.m.clients.For(p.access())
		p.outside = &clients
	}
	recorded := p.recorded()
	pass := effects.Pass{
		Clients:   *p.outside,
		Memory:    p.m.effects,
		Recorded:  recorded,
		Available: func(name string) bool { return p.canAsk(name, nil) },
		Serving:   func(name string) bool { d := p.byName[name]; return d != nil && d.serving },
		Audit:     p.auditDue() && p.round == 0,
		Now:       p.r.now,
		Linger:    linger,
		Wake:      p.r.waker(client.ObjectKeyFromObject(p.cr)),
	}
	fresh := false
	due := slices.DeleteFunc(effects.At(p.plan, stage), func(e effects.Effect) bool { return p.byName[e.Component].left })
	for _, o := range pass.Run(ctx, due) {
		c := p.byName[o.Effect.Component]
		c.outcomes = append(slices.DeleteFunc(c.outcomes, func(was effects.Outcome) bool { return was.Effect.Key == o.Effect.Key }), o)
		if o.State == effects.Done && !o.Effect.Note && recorded[o.Effect.Key] != o.Effect.Hash {
			fresh = true
		}
		if o.Changed {
			p.log.Info("effect", "effect", o.Effect.Key)
			p.tellRepaired(o.Effect)
		}
		p.r.metrics.effect(o)
	}
	return fresh
}

// tellRepaired makes an event of an effect that had been done as it is to be, and was not so any more.
func (p *pass) tellRepaired(e effects.Effect) {
	if p.cr.Status.Effects[e.Key] != e.Hash {
		return
	}
	note := "%s had been changed or lost outside the operator, and was put right"
	if e.Target == effects.MySQL || e.Target == effects.ClickHouse {
		note += "; a database that was lost is empty now: restore a backup, then restart the pods of %s"
		p.event(subject(e.Key), corev1.EventTypeWarning, ReasonRepaired, note, e.Key, e.Component)
		return
	}
	p.event(subject(e.Key), corev1.EventTypeWarning, ReasonRepaired, note, e.Key)
}

// tellReplaced makes an event of passwords that were in use and are lost: databases, accounts and pods get new ones.
func (p *pass) tellReplaced(secret string, missing []string) {
	var lost []string
	for _, c := range p.r.catalog {
		for effect, key := range map[string]string{
			"database/" + c.Name: component.DatabasePassword(c.Name), "account/" + c.Name: component.AccountPassword(c.Name),
			"clickhouse/" + c.Name: component.ClickHousePassword(c.Name),
		} {
			if p.cr.Status.Effects[effect] != "" && slices.Contains(missing, key) {
				lost = append(lost, key)
			}
		}
	}
	if len(lost) > 0 {
		p.event(wholeCloud, corev1.EventTypeWarning, ReasonReplaced,
			"Secret %s had lost %d passwords that were in use; databases, accounts and pods get new ones", secret, len(lost))
	}
}

// noteAccess has everything that failed tried at once when the way to databases and services was changed: perhaps to mend it.
func (p *pass) noteAccess() {
	access, err := engine.Hash([]any{p.cr.Spec.MySQL, p.cr.Spec.Clickhouse, p.creds, p.certs.caPEM, p.cr.Annotations[v1alpha1.AnnotationAdoptDatabases]})
	if err != nil || access == p.m.accessHash {
		return
	}
	if p.m.accessHash != "" {
		p.m.effects.Retry()
	}
	p.m.accessHash = access
}

// access is how this cloud's database and services are reached. It may be used after the pass, so it shares nothing with the cloud.
func (p *pass) access() effects.Access {
	namespace := p.cr.Namespace
	id := p.names[component.CloudID]
	if id == "" {
		id = string(p.cr.UID) // what a new Secret would get
	}
	return effects.Access{
		Cluster: p.cluster, Credentials: p.creds, CAPEM: p.certs.caPEM, MySQL: *p.cr.Spec.MySQL.DeepCopy(),
		ClickHouse: *p.cr.Spec.Clickhouse.DeepCopy(),
		Owner:      mysql.Owner{ID: id, Namespace: namespace, Name: p.cr.Name},
		Adopt:      effects.ParseAdoption(p.cr.Annotations[v1alpha1.AnnotationAdoptDatabases]),
		Secret: func(ctx context.Context, name, key string) (string, error) {
			s := &corev1.Secret{}
			if err := p.r.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
				return "", fmt.Errorf("reading the database password: %w", err)
			}
			v, ok := s.Data[key]
			if !ok {
				return "", fmt.Errorf("reading the database password: Secret %q has no key %q", name, key)
			}
			return string(v), nil
		},
	}
}

// waker brings another pass of a cloud. One too many is no matter, and one that is lost comes with the next watch or timer.
func (r *Reconciler) waker(key types.NamespacedName) func() {
	return func() {
		cr := &v1alpha1.OnecloudCluster{}
		cr.Namespace, cr.Name = key.Namespace, key.Name
		select {
		case r.woken <- event.GenericEvent{Object: cr}:
		default:
		}
	}
}

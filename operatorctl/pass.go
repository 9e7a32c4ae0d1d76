// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/status"
)

// pass is one reconcile of one cloud.
type pass struct {
	r   *Reconciler
	m   *memory
	cr  *v1alpha1.OnecloudCluster
	log *slog.Logger
	now time.Time

	// address by which users and hosts reach the cloud: the spec's, or a node's that becomes the spec's default; "" if there is neither.
	address string
	cluster component.Cluster
	// defaults are to be written into the spec, nil if they stand there.
	defaults *unstructured.Unstructured
	// known is what the pass before worked out, and what this one adds.
	known *known
	owned *resolve.Owned
	plan  []effects.Effect
	creds component.Credentials
	// names are what this cloud calls databases and accounts otherwise, see component.Renamed.
	names map[string]string
	certs certificates
	live  live
	// parts are the components of this cloud in dependency order, enabled or not.
	parts   []*part
	byName  map[string]*part
	changes []engine.Change
	// refused tells that something could not be read or pruned, retry when what the API server did not take is due again.
	refused bool
	retry   time.Time
	// certSecrets hold the certificates of this pass, the CA first, made from what secretsFrom tells; none if they are known to be there.
	certSecrets []client.Object
	certFrom    string
	// round counts how often effects were performed in this pass, with outside.
	round   int
	outside *effects.Clients
	// chosen are the options that people set, values what they mean, both by component; nil until they are needed.
	chosen map[string]map[string]string
	values map[string]map[string]any
	// left are the components that a person keeps the operator from, by the annotation of the cloud.
	left map[string]bool
}

// part is one component in this pass.
type part struct {
	component.Resolved
	// wants are the objects that it is to have. objects are they, where made tells that they were rendered in this pass.
	wants   []want
	objects component.Objects
	made    bool
	// err is why it could not be rendered or applied.
	err error
	// invalid says which options of its ConfigMap its service would not take, "" if none.
	invalid string
	// workload is the live one, nil if there is none.
	workload *status.Workload
	// twins are its further workloads.
	twins []status.Twin
	// refusals are objects that were not applied, kept what stays as it is in those that were.
	refusals []*engine.Refusal
	kept     []engine.Kept
	// current tells that the live workload is the one that was rendered.
	current bool
	// paused tells that a person keeps the operator from the workload, left from all of the component.
	paused, left bool
	// tried tells that its workload was applied in this pass.
	tried bool
	// gated are the components it waits for before its workload is made or moved.
	gated    []string
	outcomes []effects.Outcome
	// serving: the workload runs what was rendered. available: serving, and everything after it is done.
	serving, available bool
}

// workloads are those that are there.
func (c *part) workloads() (all []*status.Workload) {
	if c.workload != nil {
		all = append(all, c.workload)
	}
	for _, t := range c.twins {
		if t.Workload != nil {
			all = append(all, t.Workload)
		}
	}
	return all
}

// run makes the pass: gather → resolve → render → apply → observe → report.
func (p *pass) run(ctx context.Context) (ctrl.Result, error) {
	if p.known = p.m.known.Swap(nil); p.known == nil {
		p.known = &known{}
	}
	defer func() { p.m.known.Store(p.known) }()
	if err := p.gather(ctx); err != nil {
		return p.stop(ctx, err)
	}
	if err := p.resolve(ctx); err != nil {
		return p.stop(ctx, err)
	}
	written, kept := p.showDefaults(ctx), p.keepCertificates(ctx)
	p.adoptConfigs(ctx)
	p.render()
	p.checkEtcdClaims()
	err := p.applyBase(ctx)
	if err := errors.Join(written(), kept()); err != nil {
		return p.stop(ctx, err)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	} else if err != nil {
		p.log.Warn("applying", "error", err)
	}
	p.observe()
	if err := p.applyWorkloads(ctx, p.prepared); err != nil {
		p.log.Warn("applying", "error", err)
	}
	more := p.advance(ctx)
	p.settle(ctx)
	p.prune(ctx)
	onward, taken := p.noteServed(), p.passwordTaken()
	if err := p.report(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if onward || p.passwordTaken() != taken { // the identity service's configuration follows
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	return p.next(more), nil
}

// advanceFor is how long a pass goes on with what its own effects have made possible; after that, the status is told first.
const advanceFor = time.Second

// advance does what can be done outside Kubernetes, and makes the workloads that waited for it, until nothing more comes of it. It tells
// whether the last round did something that was not done before.
func (p *pass) advance(ctx context.Context) (fresh bool) {
	for p.round = 0; ; p.round++ {
		fresh = p.effects(ctx, effects.Before)
		if err := p.applyWorkloads(ctx, p.ready); err != nil {
			p.log.Warn("applying", "error", err)
		}
		p.observe()
		if p.effects(ctx, effects.After) {
			fresh = true
			p.observe()
		}
		p.forgetTrouble()
		if !fresh || !p.opened() || p.r.now().Sub(p.now) > advanceFor || ctx.Err() != nil {
			return fresh
		}
	}
}

// forgetTrouble has the next round read anew what could not be read in this one.
func (p *pass) forgetTrouble() {
	for _, c := range p.parts {
		if slices.ContainsFunc(c.outcomes, func(o effects.Outcome) bool { return o.Err != nil }) {
			p.outside = nil
		}
	}
}

// soon is the shortest way to the next pass that is not the direct consequence of this one. It also follows a write that came too late:
// what was read is old, and has to be read anew.
const soon = 50 * time.Millisecond

// next tells when the next pass is due if no watch brings one before.
func (p *pass) next(more bool) ctrl.Result {
	if more && p.opened() {
		return ctrl.Result{RequeueAfter: time.Millisecond}
	}
	next := p.m.nextAudit
	if p.r.options.Audit < 0 {
		next = p.now.Add(24 * time.Hour)
	}
	if t := p.certs.renewAt; !t.IsZero() && t.Before(next) {
		next = t
	}
	for _, part := range p.parts {
		for _, o := range part.outcomes {
			if !o.Retry.IsZero() && o.Retry.Before(next) {
				next = o.Retry
			}
		}
		for _, w := range part.workloads() {
			if !w.Due.IsZero() && w.Due.Before(next) {
				next = w.Due
			}
		}
	}
	for _, retry := range []time.Time{p.retry, p.retryRefused(), p.r.applier.Unseen(p.cr.Namespace)} {
		if !retry.IsZero() && retry.Before(next) {
			next = retry
		}
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(p.r.now()), soon)}
}

// What could not be read or pruned is tried again after a second, then after twice as long each time, at most a minute: a failing
// request leaves no trace that a watch could bring.
const (
	firstRefusedRetry = time.Second
	lastRefusedRetry  = time.Minute
)

// retryRefused is when that is due; zero if everything was taken.
func (p *pass) retryRefused() time.Time {
	if !p.refused {
		p.m.refusals = 0
		return time.Time{}
	}
	delay := min(firstRefusedRetry<<min(p.m.refusals, 10), lastRefusedRetry)
	p.m.refusals++
	return p.r.now().Add(delay)
}

// opened tells whether something that waited can go on now.
func (p *pass) opened() bool {
	for _, part := range p.parts {
		if !part.Enabled {
			continue
		}
		for _, o := range part.outcomes {
			if o.State == effects.Pending && o.Retry.IsZero() && p.allAvailable(o.Effect.Needs, part) {
				return true
			}
		}
		if len(part.gated) > 0 && len(p.missing(part)) == 0 {
			return true
		}
	}
	return false
}

func (p *pass) allAvailable(names []string, self *part) bool {
	for _, n := range names {
		if !p.canAsk(n, self) {
			return false
		}
	}
	return true
}

// stop reports an error that keeps the whole cloud from being reconciled.
func (p *pass) stop(ctx context.Context, err error) (ctrl.Result, error) {
	var invalid *invalidSpec
	if errors.As(err, &invalid) {
		// Trying again changes nothing; the next edit of the spec brings the next pass.
		return ctrl.Result{}, p.reportInvalid(ctx, invalid)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	if perr := p.reportBlocked(ctx, err); perr != nil {
		err = errors.Join(err, perr)
	}
	return ctrl.Result{}, err
}

// jitter spreads audits of many clouds: between 1 and 1.25 times d, the same for the same name.
func jitter(d time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails to write
	return d + d*time.Duration(h.Sum32()%256)/1024
}

// applyBase brings everything but workloads to the cluster: configuration, secrets, claims, Services, Ingresses.
// They disturb nobody and may be there long before what uses them.
func (p *pass) applyBase(ctx context.Context) error {
	var list []due
	for _, c := range p.parts {
		if !c.Enabled || c.err != nil || c.left {
			continue
		}
		for _, w := range c.wants {
			if w.role == roleBase {
				list = append(list, due{c, w})
			}
		}
	}
	return p.apply(ctx, list)
}

// applyWorkloads brings those workloads to the cluster whose gates are open and whose effects are done; a pass tries each once.
func (p *pass) applyWorkloads(ctx context.Context, done func(*part, effects.Stage) bool) error {
	var list []due
	for _, c := range p.parts {
		if _, ok := c.workloadWant(); !c.Enabled || c.err != nil || c.left || !ok || c.tried {
			continue
		}
		c.gated = p.missing(c)
		if len(c.gated) > 0 || !done(c, effects.Before) {
			continue
		}
		c.tried = true
		for _, w := range c.wants {
			if w.role != roleBase && !p.isPaused(w.key) {
				list = append(list, due{c, w})
			}
		}
	}
	return p.apply(ctx, list)
}

// isPaused tells whether a person keeps the operator from a live workload.
func (p *pass) isPaused(key engine.Key) bool {
	live := p.live.objects[key]
	return live != nil && live.GetAnnotations()[v1alpha1.AnnotationPaused] == "true"
}

// due is an object of a component that is to be as rendered now.
type due struct {
	part *part
	want want
}

// apply brings objects to the cluster. Those that are known to be right are not even rendered.
func (p *pass) apply(ctx context.Context, list []due) error {
	var errs []error
	var objs []client.Object
	var owners []*part
	for _, d := range list {
		if d.part.err != nil {
			continue
		}
		if live := p.live.objects[d.want.key]; live != nil {
			if c, ok := p.r.applier.Known(d.want.key, live.GetResourceVersion(), d.want.hash); ok {
				p.note(d.part, c)
				continue
			}
		}
		made, err := p.made(d.part)
		if err != nil {
			errs = append(errs, p.notApplied(d.part, err))
			continue
		}
		o := object(made, d.want)
		if o == nil {
			errs = append(errs, p.notApplied(d.part, fmt.Errorf("rendering: %s %q is not what it was", d.want.key.GVK.Kind, d.want.key.Name)))
			continue
		}
		objs = append(objs, o)
		owners = append(owners, d.part)
	}
	changes, perObject := p.r.applier.ApplyEach(ctx, objs)
	for i, err := range perObject {
		if err != nil {
			errs = append(errs, p.notApplied(owners[i], err))
		}
		p.note(owners[i], changes[i])
	}
	return errors.Join(errs...)
}

// note keeps for the report what happened to an object.
func (p *pass) note(owner *part, c engine.Change) {
	owner.kept = append(owner.kept, c.Kept...)
	if c.Fight != nil {
		owner.refusals = append(owner.refusals, c.Fight)
		p.again(c.Fight.Until)
	}
	if c.Action != engine.Unchanged && c.Action != "" {
		p.log.Info("applied", "kind", c.Kind, "name", c.Name, "action", string(c.Action), "where", c.Where)
		p.changes = append(p.changes, c)
	}
}

// notApplied notes that an object of a component was not taken. What can never be taken as it is does not keep the rest of the
// component from being applied: the way out may be in there.
func (p *pass) notApplied(c *part, err error) error {
	var r *engine.Refusal
	if errors.As(err, &r) {
		c.refusals = append(c.refusals, r)
		p.again(r.Until)
	}
	if r == nil || r.Reason == engine.ReasonRefused {
		c.err = err
		p.refused = p.refused || r == nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// again makes the next pass come at t at the latest; the zero time says nothing.
func (p *pass) again(t time.Time) {
	if !t.IsZero() && (p.retry.IsZero() || t.Before(p.retry)) {
		p.retry = t
	}
}

func base(o component.Objects) []client.Object {
	var out []client.Object
	for _, list := range [][]client.Object{o.ConfigMaps, o.Secrets, o.PVCs, o.Services, o.Ingresses} {
		out = append(out, list...)
	}
	return out
}

// prepared tells whether all effects of a stage were done before this pass, or there are none: what needs nothing is not kept waiting by
// the databases and accounts of others.
func (p *pass) prepared(c *part, s effects.Stage) bool {
	for _, e := range p.plan {
		if e.Component == c.Name && e.Stage == s && p.cr.Status.Effects[e.Key] != e.Hash {
			return false
		}
	}
	return true
}

// ready tells whether all effects of a stage are done. One that was done and that an audit cannot verify now does not hold up a change.
func (p *pass) ready(c *part, s effects.Stage) bool {
	for _, o := range c.outcomes {
		if o.Effect.Stage == s && o.State != effects.Done && p.cr.Status.Effects[o.Effect.Key] != o.Effect.Hash {
			return false
		}
	}
	return true
}

// missing are the components that must be Available before this one's workload is made.
// One that is not part of this cloud is nothing to wait for.
func (p *pass) missing(c *part) []string {
	var out []string
	for _, n := range c.After {
		if d := p.byName[n]; d != nil && d.Enabled && !d.available {
			out = append(out, n)
		}
	}
	return out
}

// canAsk tells whether effects may talk to a component: it is Available, or it is the component's own and serves.
func (p *pass) canAsk(name string, self *part) bool {
	d := p.byName[name]
	if d == nil || !d.Enabled {
		return false
	}
	if self != nil && self.Name == name {
		return d.serving
	}
	return d.available
}
